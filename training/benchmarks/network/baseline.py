"""Saves the measurements of a good run as a baseline file, and compares later runs with it.

    python -m training.benchmarks.network baseline save result/run20261121191924 baseline.json
    python -m training.benchmarks.network baseline compare result/run20261121201010 baseline.json

Reads the PerfLog of every rank 0 below the folder. A measurement is compared with the one of the same collective, type,
form, size, pattern and group; slower by more than --percent and by more than the noise of both is a regression.
"""

import argparse
import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Self

from training.benchmarks.driver.protocol.perflog import Event, LineFinder, PerfLogError, find_lines, parse_line
from training.benchmarks.network.samples import median_of
from training.benchmarks.network.sizes import format_size

MODEL = "network"
SCHEMA_VERSION = 2
USAGE_EXIT_CODE = 2
# No operation takes less than a clock tick or more than 30 years; ratios of such times are finite.
_MIN_US, _MAX_US = 1e-3, 1e15
_LOG = "rank0.out.log"
_KEY_FIELDS = ("collective", "variant", "dtype", "in_place", "world_size", "size_bytes", "pattern", "round", "group")


class BaselineError(Exception):
    """A run or a baseline file cannot be used; the message names it and states what is expected."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One measurement: p50 in microseconds (median over its repeats and rounds), busbw in GB/s.

    `low_us` and `high_us` are the range of the repeats' p50; of a single repeat, of its iterations (minimum to p95).

    What was measured is in its key; by itself, for people, also here: collective, size, group and its hosts' own names.
    """

    p50_us: float
    low_us: float
    high_us: float
    busbw_gbps: float
    n: int
    collective: str = ""
    size_bytes: int = 0
    group: str = ""
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A measurement and its baseline. `percent` is the increase of its time, below 0 for a decrease."""

    key: str
    now: Entry
    then: Entry
    percent: float
    regression: bool
    sentence: str


def read_run(folder: Path) -> dict[str, Entry]:
    """Every measurement of the run (or case, or round) in `folder`.

    Raises:
        BaselineError: the folder has no such run.
    """
    found = entries((case, value) for log in sorted(folder.rglob(_LOG)) for case, value in _steps(log))
    if not found:
        raise BaselineError(f"{folder}: no {_LOG} with measurements of the network benchmark below it; expected a run")
    return found


def entries(steps: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, Entry]:
    """The measurements in (case, value of a STEP_END of rank 0), by a key that identifies what was measured.

    Where `hosts` were renamed, `own_hosts` are their own names. Values of another form are skipped: a host may send
    anything.
    """
    found: dict[str, list[_Times]] = {}
    rows: dict[str, Mapping[str, Any]] = {}
    for case, value in steps:
        groups: Any = value.get("groups")
        for group in groups if isinstance(groups, list) else [value]:
            try:
                row = {**value, **group}
                times = _Times.read(row["time_us"], row["busbw_GBps"])
                if not isinstance(row.get("size_bytes", 0), int):
                    continue
            except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
                continue
            key = " ".join([case, *(f"{name}={value}" for name, value in _identity(row).items())])
            found.setdefault(key, []).append(times)
            rows[key] = row
    return {key: _entry(values, rows[key]) for key, values in found.items()}


def _identity(row: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that identify a measurement. A pair is identified by its two hosts in any round and order, since other
    hosts change both.
    """
    found = {name: row[name] for name in _KEY_FIELDS if name in row}
    hosts = row.get("own_hosts", row.get("hosts"))
    if row.get("pattern") == "pairs" and isinstance(hosts, list):
        found.pop("round", None)
        found["group"] = "-".join(sorted(map(str, hosts)))
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class _Times:
    """One repeat: p50, minimum and p95 of its iterations in microseconds, and busbw in GB/s."""

    p50: float
    low: float
    high: float
    busbw: float

    @classmethod
    def read(cls, time_us: Any, busbw: Any) -> Self:
        """The times of one value of STEP_END: `time_us` in microseconds, `busbw` in GB/s.

        Raises:
            KeyError, TypeError, ValueError: the value is no measurement.
        """
        p50 = float(time_us["p50"])
        low, high, bandwidth = float(time_us.get("min", p50)), float(time_us.get("p95", p50)), float(busbw)
        if not all(_MIN_US <= time <= _MAX_US for time in (p50, low, high)) or not math.isfinite(bandwidth):
            raise ValueError(f"p50 {p50}, min {low}, p95 {high}; allowed: {_MIN_US:g} to {_MAX_US:g} us")
        return cls(p50=p50, low=low, high=high, busbw=bandwidth)


def _entry(values: Sequence[_Times], row: Mapping[str, Any]) -> Entry:
    time_us = median_of([each.p50 for each in values])
    single = len(values) == 1
    hosts = row.get("hosts")
    return Entry(
        p50_us=time_us.value,
        low_us=values[0].low if single else time_us.low,
        high_us=values[0].high if single else time_us.high,
        busbw_gbps=median([each.busbw for each in values]),
        n=time_us.n,
        collective=str(row.get("variant") or row.get("collective", "")),
        size_bytes=row.get("size_bytes", 0),
        group=str(row.get("group", "")),
        hosts=tuple(map(str, hosts)) if isinstance(hosts, list) else (),
    )


def _steps(log: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(case, value) of each STEP_END in the log of a network case that finished with correct data."""
    try:
        with log.open("rb") as file:
            records = [parse_line(line.text) for line in find_lines(file, LineFinder())]
    except (OSError, PerfLogError) as error:
        raise BaselineError(f"{log}: {error}") from error
    values = [(record.event, record.value) for record in records if record and isinstance(record.value, dict)]
    submitted = next((value for event, value in values if event is Event.SUBMIT_INFO), {})
    finished = next((value for event, value in values if event is Event.FINISHED), None)
    if submitted.get("model") != MODEL or finished is None or finished.get("correct") == "fail":
        return
    case = str(submitted.get("case") or "by hand")
    yield from ((case, value) for event, value in values if event is Event.STEP_END)


def save(run: str, found: Mapping[str, Entry], file: Path) -> None:
    """Write the measurements of the run of that name to `file` atomically.

    Raises:
        BaselineError: the file cannot be written.
    """
    data = {"schema_version": SCHEMA_VERSION, "run": run, "entries": {k: asdict(v) for k, v in found.items()}}
    unfinished = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        unfinished.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        unfinished.replace(file)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise BaselineError(f"{file}: cannot be written: {error}") from error


def load(file: Path) -> dict[str, Entry]:
    """The entries of a baseline file.

    Raises:
        BaselineError: the file is missing or has another form.
    """
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        if data["schema_version"] != SCHEMA_VERSION:
            raise BaselineError(f"{file}: schema_version {data['schema_version']!r}, expected {SCHEMA_VERSION}")
        return {
            key: Entry(**{**value, "hosts": tuple(value.get("hosts", ()))}) for key, value in data["entries"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BaselineError(f"{file}: is no baseline: {error}; make one with `baseline save RUN_DIR FILE`") from error


def compare(found: Mapping[str, Entry], known: Mapping[str, Entry], percent: float) -> list[Change]:
    """Every measurement that both hold, the largest increase first; `percent` is the bound of a regression.

    A regression is slower in the median by more than `percent`, and its range lies above the baseline's: overlapping
    ranges prove nothing.
    """
    changes = []
    for key in found.keys() & known.keys():
        now, then = found[key], known[key]
        longer = 100 * (now.p50_us / then.p50_us - 1)
        regression = longer > percent and now.low_us > then.high_us
        sentence = f"{key}: {now.p50_us:.1f} us, baseline {then.p50_us:.1f} us ({longer:+.1f} %)"
        changes.append(Change(key=key, now=now, then=then, percent=longer, regression=regression, sentence=sentence))
    return sorted(changes, key=lambda change: (-change.percent, change.key))


def regressions_in_words(changes: Sequence[Change]) -> list[str]:
    """The regressions in words: first hosts all of whose pairs regressed while other pairs did not; then the rest."""
    pairs = [change for change in changes if len(set(change.now.hosts)) == 2]
    slower = [change for change in changes if change.regression]
    sentences, told = [], set()
    for host in sorted({host for change in pairs for host in change.now.hosts}):
        for size in sorted({change.now.size_bytes for change in pairs}):
            own = [c for c in pairs if host in c.now.hosts and c.now.size_bytes == size]
            others = [c for c in pairs if host not in c.now.hosts and c.now.size_bytes == size]
            if len(own) < 2 or not all(c.regression for c in own) or all(c.regression for c in others):
                continue
            told |= {change.key for change in own}
            longer = median([change.percent for change in own])
            sentences.append(f"host {host}: all its {len(own)} pairs take {longer:.0f} % longer at {_size(size)}")
    for change in slower:
        if change.key not in told:
            group = "-".join(change.now.hosts) if len(change.now.hosts) == 2 else change.now.group
            where = f" {group}" if group not in ("", "all") else ""
            what = f"{change.now.collective}{where} at {_size(change.now.size_bytes)}"
            sentences.append(f"{what} takes {change.percent:.0f} % longer")
    return sentences


def _size(size_bytes: int) -> str:
    return format_size(size_bytes) if size_bytes else "no size"


def main(argv: Sequence[str]) -> int:
    """The command; returns 0, 1 if `compare` found a regression, 2 for files that cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m training.benchmarks.network baseline",
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
        if options.command == "save":
            found = read_run(options.run)
            save(options.run.name, found, options.file)
            print(f"{options.file}: {len(found)} measurements of {options.run}")
            return 0
        return _report(read_run(options.run), load(options.file), options.percent)
    except BaselineError as error:
        print(f"baseline: {error}", file=sys.stderr)
        return USAGE_EXIT_CODE


def _report(found: Mapping[str, Entry], known: Mapping[str, Entry], percent: float) -> int:
    changes = compare(found, known, percent)
    if not changes:
        raise BaselineError("the run measured nothing that the baseline holds: same cases, settings and hosts needed")
    regressions = [change for change in changes if change.regression]
    for change in changes:
        print(f"{'SLOWER' if change.regression else 'ok':6} {change.sentence}")
    for key in sorted(known.keys() - found.keys()):
        print(f"absent {key}: not measured in this run")
    new = len(found.keys() - known.keys())
    print(f"{len(changes)} compared, {len(regressions)} slower by more than {percent:g} %, {new} without a baseline")
    return 1 if regressions else 0
