"""Saves the measurements of a good run as a baseline file, and compares later runs with it.

    python -m training.benchmarks.network baseline save result/run20261121191924 baseline.json
    python -m training.benchmarks.network baseline compare result/run20261121201010 baseline.json

Reads the PerfLog of every rank 0 below the folder; the file is that of `run.py --save-baseline`.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from protocol.baseline_file import BaselineError, CaseBaseline, load, save
from protocol.default_outcome import compare
from protocol.outcome import Change, MeasuredCase, MeasuredRound
from protocol.perflog import Event, LineFinder, PerfLogError, find_lines, parse_line
from training.benchmarks.network.pytorch.outcome import OUTCOME

MODEL = "network"
USAGE_EXIT_CODE = 2
BY_HAND = "by hand"
_LOG = "rank0.out.log"


def read_run(folder: Path) -> list[CaseBaseline]:
    """The measurements of each case of the run (or case, or round) in `folder`.

    Raises:
        BaselineError: the folder has no such run.
    """
    submitted: dict[str, Mapping[str, Any]] = {}
    rounds: dict[str, list[MeasuredRound]] = {}
    for log in sorted(folder.rglob(_LOG)):
        info, steps = _read(log)
        if steps:
            case = str(info.get("case") or BY_HAND)
            submitted[case] = info
            of_case = rounds.setdefault(case, [])
            of_case.append(MeasuredRound(number=len(of_case) + 1, metrics={}, steps=steps, hosts={}))
    found = [_case(folder.name, name, info, rounds[name]) for name, info in submitted.items()]
    if not any(case.entries for case in found):
        raise BaselineError(f"{folder}: no {_LOG} with measurements of the network benchmark below it; expected a run")
    return found


def _case(run: str, name: str, info: Mapping[str, Any], rounds: Sequence[MeasuredRound]) -> CaseBaseline:
    config = info.get("config")
    case = MeasuredCase(name=name, config=config if isinstance(config, dict) else {}, nnodes=1, nproc=1)
    return CaseBaseline(
        case=name,
        model=MODEL,
        framework=str(info.get("framework")),
        device=str(info.get("device_name") or info.get("device")),
        run=run,
        conditions=dict(OUTCOME.conditions(case)),
        entries=dict(OUTCOME.references(case, rounds)),
    )


def _read(log: Path) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]]:
    """SUBMIT_INFO and each STEP_END of a network case that finished with right data; nothing of another log."""
    try:
        with log.open("rb") as file:
            records = [parse_line(line.text) for line in find_lines(file, LineFinder())]
    except (OSError, PerfLogError) as error:
        raise BaselineError(f"{log}: {error}") from error
    values = [(record.event, record.value) for record in records if record and isinstance(record.value, dict)]
    submitted = next((value for event, value in values if event is Event.SUBMIT_INFO), {})
    finished = next((value for event, value in values if event is Event.FINISHED), None)
    if submitted.get("model") != MODEL or finished is None or finished.get("correct") == "fail":
        return {}, []
    return submitted, [value for event, value in values if event is Event.STEP_END]


def main(argv: Sequence[str]) -> int:
    """The command; returns 0, 1 if `compare` found a regression, 2 for files that cannot be used."""
    parser = argparse.ArgumentParser(
        prog=".venv/bin/python -m training.benchmarks.network baseline",
        description="Keep what a good run measured, and compare a later one with it.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (("save", "write the baseline"), ("compare", "name what became slower; exit code 1 if any")):
        command = commands.add_parser(name, help=text)
        command.add_argument("run", type=Path, metavar="RUN_DIR", help="a run's folder, or a case's or round's in it")
        command.add_argument("file", type=Path, metavar="FILE", help="the baseline")
    commands.choices["compare"].add_argument(
        "--percent", type=float, default=10.0, help="how much slower is a regression (default: %(default)s)"
    )
    options = parser.parse_args(argv)
    try:
        found = read_run(options.run)
        if options.command == "save":
            save(found, options.file)
            print(f"{options.file}: {sum(len(case.entries) for case in found)} measurements of {options.run}")
            return 0
        return _compare(found, options.file, options.percent)
    except BaselineError as error:
        print(f"baseline: {error}", file=sys.stderr)
        return USAGE_EXIT_CODE


def _compare(found: Sequence[CaseBaseline], file: Path, percent: float) -> int:
    """Print every comparison of the cases with those of the same name, device and conditions in the file."""
    baseline = load(file)
    changes: list[tuple[str, Change]] = []
    absent: list[str] = []
    new = 0
    for case in found:
        fitting, mismatches = baseline.counterpart(case)
        for mismatch in mismatches:
            print(f"other  {case.case}: not compared: {mismatch}")
        then = fitting.entries if fitting else {}
        changes += [(case.case, change) for change in compare(case.entries, then, percent)]
        absent += [f"{case.case} {key}" for key in sorted(then.keys() - case.entries.keys())]
        new += len(case.entries.keys() - then.keys())
    if not changes:
        raise BaselineError("the run measured nothing that the baseline holds: same cases, settings and hosts needed")
    for name, change in sorted(changes, key=lambda each: -each[1].percent):
        times = f"{change.now.value:.1f} us, baseline {change.then.value:.1f} us ({change.percent:+.1f} %)"
        print(f"{'SLOWER' if change.is_regression else 'ok':6} {name} {change.what}: {times}")
    for line in absent:
        print(f"absent {line}: not measured in this run")
    slower = sum(change.is_regression for _, change in changes)
    print(f"{len(changes)} compared, {slower} slower by more than {percent:g} %, {new} without a baseline")
    return 1 if slower else 0
