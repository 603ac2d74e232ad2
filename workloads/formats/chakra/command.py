"""Runs `export` and `import`: workload CSVs to execution traces of every rank, and one trace to a CSV."""

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from types import ModuleType

from common.command_line import FunctionVerb, VerbParser, new_folder, new_path
from common.errors import MistakeList
from common.reading import read_bounded
from common.summary import Summary
from common.whole_files import whole_set, write_whole
from workloads.formats import csvfile, fullcsv
from workloads.formats.chakra.reading import read
from workloads.formats.chakra.schema import load_schema
from workloads.formats.chakra.writing import Communicators, trace
from workloads.formats.workload import Workload
from workloads.job.errors import AicbError, WorkloadFileError
from workloads.job.groups import RankGroups, located, size_by_rows
from workloads.job.parameters import WorkloadArgs
from workloads.rows.calls import POINT_TO_POINT
from workloads.rows.conversion import fold_items
from workloads.rows.ops import LogItem
from workloads.rows.placement import first_of, moved
from workloads.rows.ranks import Ranks

GROUPS_FILE = "comm_groups.json"
LARGEST_GROUPS = 64 << 20
MOST_ROWS = 20_000_000
"""Rows of all traces of a call together: a node takes some hundred bytes."""


def _add_export(parser: VerbParser) -> None:
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="a workload CSV for each pipeline stage, in order"
    )
    parser.add_argument("--chakra", type=new_folder, required=True, metavar="DIR", help="where the traces go")
    parser.add_argument(
        "--world_size", type=int, metavar="N", help="write a trace for each of N ranks (default: one a FILE)"
    )


def _add_import(parser: VerbParser) -> None:
    parser.add_argument("file", type=Path, metavar="TRACE", help="an execution trace, .et or .et.gz")
    parser.add_argument("--output", type=new_path, required=True, metavar="FILE", help="the workload CSV")
    parser.add_argument(
        "--comm_groups",
        type=Path,
        metavar="JSON",
        help=f"names of groups and their ranks (default: {GROUPS_FILE} beside it)",
    )
    parser.add_argument("--world_size", type=int, metavar="N", help="ranks of a group without a name")


def _export(arguments: argparse.Namespace) -> Summary:
    """Write `workload.<rank>.et` for each rank, and the groups."""
    given = vars(arguments)
    schema = load_schema()
    mistakes, files, loaded = MistakeList(), list[Path](), list[tuple[Workload, WorkloadArgs | None]]()
    if given["world_size"] is not None and given["world_size"] < 1:
        mistakes.add("--world_size", given["world_size"], "must be at least 1")
    for path in given["files"]:
        with mistakes.noted():
            for stage in range(csvfile.sections(path)):
                loaded.append(Workload.load(path, stage))
                files.append(path)
    mistakes.check()
    workloads = [workload for workload, _ in loaded]
    stages = len(workloads)
    world = stages if given["world_size"] is None else given["world_size"]
    if world % stages:
        raise AicbError(f"--world_size {world} is not a multiple of the {stages} files, one for each pipeline stage")
    each = world // stages
    groups = [_groups(path, *read, stages, given["world_size"]) for path, read in zip(files, loaded, strict=True)]
    owns = [stage * each for stage in range(stages)] if given["world_size"] else _own_ranks(workloads, groups)
    if sum(map(len, workloads)) * each > MOST_ROWS:
        raise AicbError(f"the traces would have more than {MOST_ROWS} nodes: export fewer ranks or a single iteration")
    _check(files, workloads, owns, given["world_size"])
    _check_located(files, workloads, owns, groups)
    names: Communicators = {}
    written = 0
    with whole_set():
        for own, workload, sizes in zip(owns, workloads, groups, strict=True):
            ranks = range(own, own + each)
            _write_traces(given["chakra"], list(workload), ranks, sizes, names, schema)
            written += len(ranks)
        text = json.dumps({name: list(ranks) for ranks, name in names.items()}, indent=1).encode()
        write_whole(given["chakra"] / GROUPS_FILE, [text])
    return Summary(
        f"wrote {written} traces and {len(names)} groups to {given['chakra']}",
        {"folder": str(given["chakra"]), "traces": written, "groups": len(names)},
    )


def _write_traces(
    folder: Path, items: list[LogItem], ranks: range, groups: RankGroups, names: Communicators, schema: ModuleType
) -> None:
    """Write the trace of each rank; `items` are those of the first."""
    for rank in ranks:
        find = partial(located, groups=groups, rank=rank)
        data = b"".join(trace([moved(item, ranks[0], rank) for item in items], rank, names, schema, find))
        write_whole(folder / f"workload.{rank}.et", [data])


def _own_ranks(workloads: list[Workload], groups: list[RankGroups]) -> list[int]:
    """The rank of each file."""
    return [_own_rank(workload, stage, groups[stage]) for stage, workload in enumerate(workloads)]


def _groups(path: Path, workload: Workload, args: WorkloadArgs | None, stages: int, world: int | None) -> RankGroups:
    """The job's groups, which rows of AICB's form leave out: by the file's record, else by its rows and `stages`."""
    rows = [item for item in workload.rows.tally_kinds() if item.is_communication]
    if all(item.ranks is not None for item in rows):
        return RankGroups(world_size=1)
    try:
        if args is None:
            tp, ep, dp = (size_by_rows(rows, axis) for axis in ("tp", "ep", "dp"))
            return RankGroups(world_size=world or tp * dp * stages, tp=tp, pp=stages, ep=ep)
        return _recorded_groups(args, rows, stages, world)
    except ValueError as error:
        said = "" if args else f"; its record, {path.name}.args.json, would say the sizes of the job's groups"
        raise AicbError(f"{path}: {error}{said}") from None


def _recorded_groups(args: WorkloadArgs, rows: list[LogItem], stages: int, world: int | None) -> RankGroups:
    """The groups by a file's record."""
    if args.context_parallel_size > 1:
        raise ValueError(f"context_parallel_size is {args.context_parallel_size}, and rows state no ranks")
    if world not in (None, args.world_size):
        raise ValueError(f"is for {args.world_size} ranks, --world_size is {world}")
    pp = args.pipeline_model_parallel
    if world is not None and pp != stages and any(item.comm_type in POINT_TO_POINT for item in rows):
        raise ValueError(f"has {pp} pipeline stages: give a file for each, in order")
    tp, ep = args.tensor_model_parallel_size, args.expert_model_parallel_size
    return RankGroups(world_size=args.world_size, tp=tp, pp=pp, ep=ep)


def _check_located(paths: list[Path], workloads: list[Workload], owns: list[int], groups: list[RankGroups]) -> None:
    """Check that each row's group and peer are known."""
    problems: dict[str, None] = {}
    for path, workload, own, sizes in zip(paths, workloads, owns, groups, strict=True):
        for item in workload.rows.tally_kinds():
            try:
                located(item, sizes, own) if item.is_communication else item
            except ValueError as error:
                group = "" if item.comm_group is None else f" {item.comm_group.name}"
                problems[f"{path}: row {item.comm_type.name}{group} {item.stage}: {error}"] = None
    if problems:
        raise AicbError("\n".join(problems))


def _own_rank(workload: Workload, number: int, groups: RankGroups) -> int:
    """The first rank in all groups of a workload; the first of stage `number` if no row states ranks."""
    common: set[int] | None = None
    for item in workload.rows.tally_kinds():
        if item.ranks is not None:
            common = set(item.ranks) if common is None else common & set(item.ranks)
    return min(common) if common else number * (groups.world_size // groups.pp)


def _check(paths: list[Path], workloads: list[Workload], owns: list[int], world: int | None) -> None:
    """Check, before anything is written, that the traces of the workloads fit together.

    owns: the rank of each workload's file. world: the number of ranks, each of which gets a trace, made of the file of
    its stage; None: the files' ranks alone get one.

    Raises:
        AicbError: a rank has two files, or groups are of other ranks; it names all of them.
    """
    problems = [
        f"{path}: is of rank {own}, as another file"
        for path, own in zip(paths, owns, strict=True)
        if owns.count(own) > 1
    ]
    for path, workload, own in zip(paths, workloads, owns, strict=True):
        if world is None:
            continue
        stage = range(own, own + world // len(paths))
        for ranks in {item.ranks for item in workload.rows.tally_kinds() if item.ranks is not None}:
            if own not in ranks:
                problems.append(f"{path}: is not of rank {own}, the first of its stage: its group {ranks} lacks it")
                continue
            try:
                last = max(first_of(rank, ranks) for rank in stage) + max(ranks) - min(ranks)
            except ValueError as error:
                problems.append(f"{path}: {error}")
                continue
            if last >= world:
                problems.append(f"{path}: beside group {ranks} there is one with rank {last}; --world_size is {world}")
    if problems:
        raise AicbError("\n".join(problems))


def _import(arguments: argparse.Namespace) -> Summary:
    """Write the rows of a trace as a workload CSV."""
    given = vars(arguments)
    path: Path = given["file"]
    groups = given["comm_groups"] or path.with_name(GROUPS_FILE)
    mistakes, world, schema = MistakeList(), given["world_size"], load_schema()
    known: dict[str, Ranks] = {}
    with mistakes.noted():
        known = _communicators(groups) if groups.exists() or given["comm_groups"] else {}
    if world is not None and world < 1:
        mistakes.add("--world_size", world, "it is at least 1")
    elif world is not None:
        known |= {"": Ranks(0, 1, world)}
    found = mistakes.result(lambda: read(path, known, schema))
    mistakes.check()
    workload = Workload(fold_items(found.rows))
    try:
        fullcsv.check(workload.rows)
        size = workload.save(given["output"])
    except ValueError as error:
        raise AicbError(f"{path}: {error}") from None
    if found.skipped:
        print(f"note: no rows are {', '.join(found.skipped)}", file=sys.stderr)
    return Summary(
        f"wrote {given['output']}: {len(workload)} rows, {size} bytes",
        {"file": str(given["output"]), "rows": len(workload), "bytes": size, "skipped": list(found.skipped)},
    )


def _communicators(path: Path) -> dict[str, Ranks]:
    try:
        record = json.loads(read_bounded(path, LARGEST_GROUPS))
        return {str(name): Ranks.of(map(int, ranks)) for name, ranks in record.items()}
    except OSError as error:
        raise WorkloadFileError(path, None, error.strerror or str(error)) from None
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise WorkloadFileError(path, None, f"does not map names of groups to lists of ranks: {error}") from None


EXPORT = FunctionVerb(_add_export, _export)
IMPORT = FunctionVerb(_add_import, _import)
