"""Saves the measurements of a good run as a baseline file, and compares later runs with it.

    python -m training.benchmarks.network baseline save result/run20261121191924 baseline.json
    python -m training.benchmarks.network baseline compare result/run20261121201010 baseline.json

Reads the PerfLog of every rank 0 below the folder; the file is that of `run.py --save-baseline`.
"""

import argparse
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

from common.command_line import FunctionVerb, Program, VerbParser, new_path
from common.errors import InputProblems, MistakeList, stated
from common.summary import JsonValue, Summary
from protocol.baseline_file import BaselineError, CaseBaseline, load, save
from protocol.default_outcome import compare
from protocol.outcome import Change, MeasuredCase, MeasuredRound
from protocol.perflog import Event, LineFinder, PerfLogError, find_lines, parse_line
from training.benchmarks.network.pytorch.outcome import OUTCOME

MODEL = "network"
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


def _add_run(parser: VerbParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN_DIR", help="a run's folder, or a case's or round's in it")


def _add_save(parser: VerbParser) -> None:
    _add_run(parser)
    parser.add_argument("file", type=new_path, metavar="FILE", help="the baseline")


def _percent(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = inf
    if not 0 <= value < inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage of 0 or more")
    return value


def _add_compare(parser: VerbParser) -> None:
    _add_run(parser)
    parser.add_argument("file", type=Path, metavar="FILE", help="the baseline")
    parser.add_argument(
        "--percent", type=_percent, default=10.0, help="how much slower is a regression (default: %(default)s)"
    )


def _save(arguments: argparse.Namespace) -> Summary:
    found = read_run(arguments.run)
    save(found, arguments.file)
    count = sum(len(case.entries) for case in found)
    said = f"{arguments.file}: {count} measurements of {arguments.run}"
    return Summary(said, {"file": str(arguments.file), "measurements": count})


def _compare(arguments: argparse.Namespace) -> Summary:
    """Every comparison of the cases with those of the same name, device and conditions in the file."""
    mistakes = MistakeList()
    with mistakes.noted():
        found = read_run(arguments.run)
    with mistakes.noted():
        baseline = load(arguments.file)
    mistakes.check()
    lines: list[str] = []
    changes: list[tuple[str, Change]] = []
    absent: list[str] = []
    new = 0
    for case in found:
        fitting, mismatches = baseline.counterpart(case)
        lines += [f"other  {case.case}: not compared: {mismatch}" for mismatch in mismatches]
        then = fitting.entries if fitting else {}
        changes += [(case.case, change) for change in compare(case.entries, then, arguments.percent)]
        absent += [f"{case.case} {key}" for key in sorted(then.keys() - case.entries.keys())]
        new += len(case.entries.keys() - then.keys())
    if not changes:
        nothing = "the run measured nothing that the baseline holds: same cases, settings and hosts needed"
        raise InputProblems(stated([*lines, nothing]))
    changes.sort(key=lambda each: -each[1].percent)
    for name, change in changes:
        times = f"{change.now.value:.1f} us, baseline {change.then.value:.1f} us ({change.percent:+.1f} %)"
        lines.append(f"{'SLOWER' if change.is_regression else 'ok':6} {name} {change.what}: {times}")
    lines += [f"absent {each}: not measured in this run" for each in absent]
    slower = sum(change.is_regression for _, change in changes)
    lines.append(
        f"{len(changes)} compared, {slower} slower by more than {arguments.percent:g} %, {new} without a baseline"
    )
    data: dict[str, JsonValue] = {"compared": len(changes), "slower": slower, "new": new, "lines": lines}
    return Summary("\n".join(lines), data, failed=slower > 0)


SAVE, COMPARE = FunctionVerb(_add_save, _save), FunctionVerb(_add_compare, _compare)
PROGRAM = Program(
    module="training.benchmarks.network baseline",
    purpose="Keep what a good run of the network benchmark measured, and compare a later one with it.",
    verbs={
        "save": (f"{__name__}:SAVE", "write the baseline"),
        "compare": (f"{__name__}:COMPARE", "name what became slower; exit code 1 if any"),
    },
)
