"""Looks up, fills in, shows, checks and merges compute times: the verbs of `compute`."""

import argparse
import csv
import io
from collections import Counter
from dataclasses import asdict
from math import isinf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.command_line import FunctionVerb, VerbParser, new_file, new_path
from common.errors import MistakeList, stated
from common.summary import JsonValue, Summary
from workloads.compute.operators import DTYPE_BYTES, OPERATORS, parse_shape
from workloads.job.errors import AicbError

if TYPE_CHECKING:  # the start of a command needs no table
    from workloads.compute.measurement import ComputeTime

KIND = ("device", "op", "dtype", "source")
GPU_TABLES = "gpu-tables"  # gpu_tables.EXTRA, whose import takes longer than the start of a command may


def _files(parser: VerbParser) -> None:
    parser.elsewhere = GPU_TABLES
    parser.add_argument(
        "--database", type=Path, nargs="+", default=[], metavar="FILE",
        help="databases, CSV tables, aiob's JSON, folders of runs of base, or parquet tables of aiconfigurator-core to"
        " read beside the shipped tables",
    )  # fmt: skip
    parser.add_argument("--no_shipped", action="store_true", help="leave the shipped tables out")


def _rows(given: dict[str, Any]) -> "list[ComputeTime]":
    from workloads.compute import database

    rows, mistakes = [] if given.pop("no_shipped") else database.shipped(), MistakeList()
    for path in given.pop("database"):
        with mistakes.noted():
            rows += database.load(path)
    mistakes.check()
    return rows


def _add_look_up(parser: VerbParser) -> None:
    parser.add_argument("--device", required=True, help="its name as the driver or the datasheet spells it")
    parser.add_argument("--op", required=True, choices=OPERATORS, metavar="OP", help=", ".join(OPERATORS))
    parser.add_argument("--shape", required=True, help="its axes, for example 'm=4096 k=4096 n=12288'")
    parser.add_argument("--dtype", default="bf16", choices=DTYPE_BYTES, help="default: %(default)s")
    parser.add_argument("--kernel", help="only rows of this kernel")
    _files(parser)


def _look_up(arguments: argparse.Namespace) -> Summary:
    from workloads.compute.lookup import ComputeTimes

    given, mistakes = vars(arguments), MistakeList()
    try:
        given["shape"] = parse_shape(given["op"], given["shape"])
    except ValueError as wrong:
        mistakes.mistakes += stated([str(wrong)])
    rows = mistakes.result(lambda: _rows(given))
    mistakes.check()
    answer = ComputeTimes(rows).look_up(**given)
    basis = answer.basis
    error = "no upper bound" if isinf(answer.error) else f"error {answer.error:.1%}"
    bound = "" if answer.bound is None else f", bound by {answer.bound}"
    lines = [f"{answer.ns / 1000:.3f} us, {answer.how}, {error}{bound}: {answer.why}"]
    lines += [
        f"  {row.device}, {row.shape}: {row.ns / 1000:.3f} us, {row.kernel}, {row.versions}" for row in answer.basis
    ]
    lines += [f"  source: {source}" for source in dict.fromkeys(row.source for row in basis)]
    return Summary("\n".join(lines), {**asdict(answer), "error": None if isinf(answer.error) else answer.error})


def _add_fill(parser: VerbParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="a workload CSV with computation rows")
    parser.add_argument("--output", type=new_path, required=True, metavar="FILE", help="the CSV with times")
    parser.add_argument("--device", required=True, help="its name as the driver or the datasheet spells it")
    parser.add_argument("--dtype", default="bf16", choices=DTYPE_BYTES, help="default: %(default)s")
    _files(parser)


def _fill(arguments: argparse.Namespace) -> Summary:
    from workloads.compute.filling import fill
    from workloads.compute.lookup import ComputeTimes
    from workloads.formats.workload import Workload

    given = vars(arguments)
    mistakes, output, file = MistakeList(), given.pop("output"), given.pop("file")
    loaded, rows = mistakes.result(lambda: Workload.load(file)[0]), mistakes.result(lambda: _rows(given))
    mistakes.check()
    filled = fill(loaded, ComputeTimes(rows), **given)
    size = filled.workload.save(output)
    lines = [f"wrote {output}: {len(filled.workload)} rows, {size} bytes", *filled.lines()]
    data: dict[str, JsonValue] = {"file": str(output), "rows": len(filled.workload), "bytes": size, "filled": lines[1:]}
    return Summary("\n".join(lines), data)


def _add_show(parser: VerbParser) -> None:
    _files(parser)
    parser.add_argument("--rows", action="store_true", help="every row, as a CSV table")


def _show(arguments: argparse.Namespace) -> Summary:
    from workloads.compute.measurement import COLUMNS

    given = vars(arguments)
    each = given.pop("rows")
    rows = _rows(given)
    counts = Counter((row.device, row.op, row.dtype, row.source) for row in rows)
    ordered = sorted(counts.items())
    kinds: list[JsonValue] = [dict(zip((*KIND, "rows"), (*kind, count), strict=True)) for kind, count in ordered]
    if each:
        table = io.StringIO()
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(row.values() for row in rows)
        return Summary(table.getvalue().removesuffix("\n"), {"kinds": kinds, "rows": [asdict(row) for row in rows]})
    lines = [
        f"{device:<24} {op:<26} {dtype:<5} {count:>6} rows  {source}" for (device, op, dtype, source), count in ordered
    ]
    lines.append(f"{len(rows)} rows of {len({row.device for row in rows})} devices")
    return Summary("\n".join(lines), {"kinds": kinds})


def _check(arguments: argparse.Namespace) -> Summary:
    from workloads.compute import check

    lines, error = check.report(_rows(vars(arguments)))
    if error is None:
        raise AicbError("there are no two rows of which one could predict the other; give a --database")
    said = f"leave-one-out error: median {error:.1%}, allowed {check.LIMIT:.0%}"
    data: dict[str, JsonValue] = {"median_error": error, "allowed": check.LIMIT, "lines": lines}
    return Summary("\n".join([*lines, said]), data, failed=error >= check.LIMIT)


def _add_merge(parser: VerbParser) -> None:
    parser.add_argument(
        "database", type=new_file, metavar="DATABASE", help="the one to add to, made if it is not there"
    )
    parser.elsewhere = GPU_TABLES
    parser.add_argument("inputs", type=Path, nargs="+", metavar="FILE", help="what --database of the other verbs reads")


def _merge(arguments: argparse.Namespace) -> Summary:
    from workloads.compute import database

    output: Path = arguments.database
    before, after = database.merge(output, arguments.inputs)
    data: dict[str, JsonValue] = {"file": str(output), "rows": after, "new": after - before}
    return Summary(f"wrote {output}: {after} rows, {after - before} of them new", data)


LOOK_UP = FunctionVerb(_add_look_up, _look_up)
FILL = FunctionVerb(_add_fill, _fill)
SHOW = FunctionVerb(_add_show, _show)
CHECK = FunctionVerb(_files, _check)
MERGE = FunctionVerb(_add_merge, _merge)
