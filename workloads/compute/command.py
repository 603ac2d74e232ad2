"""Runs the command `compute`: look-up, fill, show, check and merge of the database of compute times."""

import argparse
import csv
import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from math import isinf
from pathlib import Path
from typing import Any

from workloads.compute import check, database
from workloads.compute.filling import fill
from workloads.compute.lookup import ComputeTimes
from workloads.compute.measurement import COLUMNS, ComputeDataError, ComputeTime
from workloads.compute.operators import DTYPE_BYTES, OPERATORS
from workloads.formats.workload import Workload
from workloads.job.errors import AicbError

VERBS = ("look-up", "fill", "show", "check", "merge")
Parse = Callable[[argparse.ArgumentParser, list[str]], dict[str, Any]]


def main(parser: argparse.ArgumentParser, parse: Parse, words: list[str]) -> int:
    """Run one verb. parser: an empty one with the command's name. Returns the exit code.

    Raises:
        AicbError: a file cannot be used, or there is no time.
    """
    parser.add_argument("verb", choices=VERBS, help="what to do; each has its own --help")
    if not words or words[0] not in VERBS:
        parse(parser, words)
        return 2
    own = argparse.ArgumentParser(prog=f"{parser.prog} {words[0]}", description=_VERBS[words[0]][1])
    return _VERBS[words[0]][0](own, parse, words[1:])


def _files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--database", type=Path, nargs="+", default=[], metavar="FILE",
        help="databases or CSV tables to read beside the shipped tables",
    )  # fmt: skip
    parser.add_argument("--no_shipped", action="store_true", help="leave the shipped tables out")


def _rows(given: dict[str, Any]) -> list[ComputeTime]:
    rows = [] if given.pop("no_shipped") else database.shipped()
    problems = []
    for path in given.pop("database"):
        try:
            rows += database.load(path)
        except ComputeDataError as error:
            problems.append(str(error))
    if problems:
        raise ComputeDataError("\n".join(problems))
    return rows


def _look_up(parser: argparse.ArgumentParser, parse: Parse, words: list[str]) -> int:
    parser.add_argument("--device", required=True, help="its name as the driver or the datasheet spells it")
    parser.add_argument("--op", required=True, choices=OPERATORS, metavar="OP", help=", ".join(OPERATORS))
    parser.add_argument("--shape", required=True, help="its axes, for example 'm=4096 k=4096 n=12288'")
    parser.add_argument("--dtype", default="bf16", choices=DTYPE_BYTES, help="default: %(default)s")
    parser.add_argument("--kernel", help="only rows of this kernel")
    parser.add_argument("--json", action="store_true", help="the answer as JSON")
    _files(parser)
    given = parse(parser, words)
    as_json = given.pop("json")
    answer = ComputeTimes(_rows(given)).look_up(**given)
    if as_json:
        record = {**asdict(answer), "error": None if isinf(answer.error) else answer.error}
        print(json.dumps(record, indent=1))
        return 0
    error = "no upper bound" if isinf(answer.error) else f"error {answer.error:.1%}"
    bound = "" if answer.bound is None else f", bound by {answer.bound}"
    print(f"{answer.ns / 1000:.3f} us, {answer.how}, {error}{bound}: {answer.why}")
    for row in answer.basis:
        print(f"  {row.device}, {row.shape}: {row.ns / 1000:.3f} us, {row.kernel}, {row.versions}")
    for source in dict.fromkeys(row.source for row in answer.basis):
        print(f"  source: {source}")
    return 0


def _fill(parser: argparse.ArgumentParser, parse: Parse, words: list[str]) -> int:
    parser.add_argument("file", type=Path, help="a workload CSV with computation rows")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="the CSV with times")
    parser.add_argument("--device", required=True, help="its name as the driver or the datasheet spells it")
    parser.add_argument("--dtype", default="bf16", choices=DTYPE_BYTES, help="default: %(default)s")
    _files(parser)
    given = parse(parser, words)
    output, workload = given.pop("output"), Workload.load(given.pop("file"))[0]
    filled = fill(workload, ComputeTimes(_rows(given)), **given)
    size = filled.workload.save(output)
    print(f"wrote {output}: {len(filled.workload)} rows, {size} bytes")
    print("\n".join(filled.lines()))
    return 0


def _show(parser: argparse.ArgumentParser, parse: Parse, words: list[str]) -> int:
    _files(parser)
    parser.add_argument("--rows", action="store_true", help="every row, as a CSV table")
    given = parse(parser, words)
    each = given.pop("rows")
    rows = _rows(given)
    if each:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(row.values() for row in rows)
        return 0
    counts = Counter((row.device, row.op, row.dtype, row.source) for row in rows)
    for (device, op, dtype, source), count in sorted(counts.items()):
        print(f"{device:<24} {op:<26} {dtype:<5} {count:>6} rows  {source}")
    print(f"{len(rows)} rows of {len({row.device for row in rows})} devices")
    return 0


def _check(parser: argparse.ArgumentParser, parse: Parse, words: list[str]) -> int:
    _files(parser)
    lines, error = check.report(_rows(parse(parser, words)))
    if error is None:
        raise AicbError("there are no two rows of which one could predict the other; give a --database")
    print("\n".join(lines))
    print(f"leave-one-out error: median {error:.1%}, allowed {check.LIMIT:.0%}")
    return 0 if error < check.LIMIT else 1


def _merge(parser: argparse.ArgumentParser, parse: Parse, words: list[str]) -> int:
    parser.add_argument("output", type=Path, help="the database to add to, made if it is not there")
    parser.add_argument("inputs", type=Path, nargs="+", metavar="FILE", help="databases or CSV tables")
    given = parse(parser, words)
    before, after = database.merge(given["output"], given["inputs"])
    print(f"wrote {given['output']}: {after} rows, {after - before} of them new")
    return 0


_VERBS: dict[str, tuple[Callable[[argparse.ArgumentParser, Parse, list[str]], int], str]] = {
    "look-up": (_look_up, "Answers with a time, how it was found (exact, interpolated, roofline) and its error bar."),
    "fill": (_fill, "Writes a workload CSV with the time of each of its matrix products on a device."),
    "show": (_show, "Lists what is in the shipped tables and in databases."),
    "check": (_check, "Predicts each row from the others. Exit code 1: the median error is not under 10 %."),
    "merge": (_merge, "Merges databases; rows that differ in version, source or time are kept apart."),
}
