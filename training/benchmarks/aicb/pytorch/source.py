"""Gets the workload of a rank's pipeline stage, from a file or generated, and the job's parallel sizes. No torch."""

import re
from pathlib import Path

from training.benchmarks.aicb.pytorch.config import Config
from training.benchmarks.aicb.pytorch.work.stage import StageWorkload, groups_of, rank_groups
from workloads.dialects.framework.rows import workload_rows
from workloads.dialects.generation import generate
from workloads.formats import csvfile
from workloads.formats.workload import Workload
from workloads.job.errors import AicbError
from workloads.job.groups import RankGroups, size_by_rows
from workloads.job.parameters import WorkloadArgs
from workloads.rows.calls import POINT_TO_POINT
from workloads.rows.ops import LogItem

_STAGE_FILE = re.compile(r"(?:^|\.)stage([0-9]{1,6})\.csv$")
_SIZES = {"tensor_model_parallel_size": "tp", "pipeline_model_parallel": "pp", "expert_model_parallel_size": "ep"}


def stage_workload(config: Config, rank: int, world_size: int, folder: Path | None) -> StageWorkload:
    """The workload that `rank` of `world_size` executes. Relative paths are below `folder`, the case's data, if any.

    Raises:
        AicbError: a file is missing or malformed, or the workload is not for this number of ranks.
    """
    if config.is_generated:
        return _generated(config, rank, world_size)
    if config.workload is not None:
        path = _placed(config.workload, folder)
        count = csvfile.sections(path)
        workload, args = Workload.load(path, 0)
        groups = _groups(path, workload, args, config, world_size)
        if count > 1:
            if count != groups.pp:
                raise AicbError(f"{path}: has sections for {count} pipeline stages, the job has {groups.pp}")
            workload, _ = Workload.load(path, rank // (world_size // count))
        elif groups.pp > 1 and rank // (world_size // groups.pp) > 0 and _has_stages(workload):
            raise AicbError(
                f"{path}: is the workload of pipeline stage 0 of {groups.pp}; set stages to a folder with stage0.csv"
                f" to stage{groups.pp - 1}.csv"
            )
    else:
        base = _placed(config.stages or "", folder)
        files = stage_files(base)
        if 0 not in files:
            raise AicbError(f"{base}: has no stage0.csv, or NAME.stage0.csv as trace --all_stages writes it")
        first, args = Workload.load(files[0])
        groups = _groups(files[0], first, args, config, world_size)
        stage = rank // (world_size // groups.pp)
        missing = [f"stage{number}.csv" for number in range(groups.pp) if number not in files]
        if missing:
            raise AicbError(f"{base}: lacks {', '.join(missing)}; the job has {groups.pp} pipeline stages")
        path = files[stage]
        workload = first if stage == 0 else Workload.load(path)[0]
    size = world_size // groups.pp
    stage = rank // size
    return StageWorkload(workload, groups, stage, stage * size, str(path), "" if args is None else args.frame)


def stage_files(folder: Path) -> dict[int, Path]:
    """The files of a folder by pipeline stage: stage0.csv, or NAME.stage0.csv.

    Raises:
        AicbError: two files are of one stage.
    """
    found: dict[int, Path] = {}
    for path in sorted(folder.glob("*.csv")):
        name = _STAGE_FILE.search(path.name)
        if name is None:
            continue
        if int(name[1]) in found:
            raise AicbError(f"{folder}: {found[int(name[1])].name} and {path.name} are both of stage {name[1]}")
        found[int(name[1])] = path
    return found


def _generated(config: Config, rank: int, world_size: int) -> StageWorkload:
    args = config.parameters(world_size)
    groups = groups_of(args, config.dialect)
    size = world_size // groups.pp
    stage = rank // size
    if config.dialect == "framework":
        # Tokens are routed rank by rank: each has splits of its own.
        return StageWorkload(Workload(workload_rows(args, rank), args), groups, stage, rank, "generated", args.frame)
    workload = generate(args, dialect=config.dialect, pp_stage=stage)
    return StageWorkload(workload, groups, stage, stage * size, "generated", args.frame)


def _placed(path: str, folder: Path | None) -> Path:
    return Path(path).expanduser() if folder is None else folder / Path(path).expanduser()


def _has_stages(workload: Workload) -> bool:
    """Whether a row is sent between pipeline stages, so that each stage has rows of its own."""
    return any(item.comm_type in POINT_TO_POINT for item in workload.rows.tally_kinds())


def _groups(path: Path, workload: Workload, args: WorkloadArgs | None, config: Config, world_size: int) -> RankGroups:
    """The parallel sizes by the file's record, else by the settings, else by its rows."""
    rows = list(workload.rows.tally_kinds())
    if not any(item.is_communication for item in rows):
        raise AicbError(f"{path}: has no communication to run")
    states_ranks = all(item.ranks is not None for item in rows if item.is_communication)
    if args is None:
        sizes = {short: getattr(config, name) or _by_rows(path, rows, short) for name, short in _SIZES.items()}
    else:
        sizes = _recorded_sizes(path, args, config, world_size)
        if args.context_parallel_size > 1 and not states_ranks:
            raise AicbError(f"{path}: context_parallel_size {args.context_parallel_size} needs rows that state ranks")
    groups = rank_groups(str(path), world_size, sizes["tp"], sizes["pp"], sizes["ep"], is_exact=not states_ranks)
    dp = _by_rows(path, rows, "dp")
    if args is None and dp > 1 and dp != groups.dp:
        raise AicbError(
            f"{path}: is for {dp * groups.tp * groups.pp} ranks (tp {groups.tp}, dp {dp}, pp {groups.pp}), this run"
            f" has {world_size}"
        )
    return groups


def _recorded_sizes(path: Path, args: WorkloadArgs, config: Config, world_size: int) -> dict[str, int]:
    """The parallel sizes of a file's record."""
    if args.world_size != world_size:
        raise AicbError(f"{path}: is for {args.world_size} ranks, this run has {world_size}")
    sizes = {short: int(getattr(args, name)) for name, short in _SIZES.items()}
    wrong = [
        f"{name} = {value}: the record of {path} says {sizes[short]}"
        for name, short in _SIZES.items()
        if (value := getattr(config, name)) not in (None, sizes[short])
    ]
    if wrong:
        raise AicbError("\n".join(wrong))
    return sizes


def _by_rows(path: Path, rows: list[LogItem], axis: str) -> int:
    try:
        return size_by_rows(rows, axis)
    except ValueError as error:
        names = [name for name, short in _SIZES.items() if short == axis]
        remedy = f"set {names[0]}, or keep" if names else "keep"
        raise AicbError(f"{path}: {error}: {remedy} the record {path.name}.args.json beside it") from None
