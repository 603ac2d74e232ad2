"""Counts how often an acceptance on four real hosts finds a bad one, and how often it takes out a good one.

    python -m tests.performance.acceptance                  # runs as long as 9 minutes allow; the next call goes on
    python -m tests.performance.acceptance --minutes 120

After each run its count is in docs/data/accepted-on-real-hosts.csv; without that file all counts begin at none. Every
way of tests/cluster/acceptances.py is tried RUNS times, two of them on two hosts of the same runs, and hosts that are
all good HEALTHY_RUNS times. The machine must have nothing else to do.
"""

import argparse
import csv
import io
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from common.whole_files import write_text
from tests.cluster.acceptances import FAULTS, SUSPECTED, accepted, accepted_hosts
from tests.cluster.bed import TestBed
from tests.tiers import most

FILE = Path(__file__).resolve().parents[2] / "docs" / "data" / "accepted-on-real-hosts.csv"
HEALTHY, RUNS, HEALTHY_RUNS = "none", 10, 20
FIRST_S = 240
"""Of a run of which none was made: what a bed and a run take on two cores."""


@dataclass
class Count:
    """The runs with a fault. found: those that take its host out, for it; others: those that take out a good one; once:
    those that suspect a host on one occasion alone; ready: those that say so; seconds: of a run, on average.
    """

    fault: str
    rungs: str
    runs: int = 0
    of: int = RUNS
    found: int = 0
    others: int = 0
    once: int = 0
    ready: int = 0
    seconds: float = 0.0

    @property
    def is_wrong(self) -> bool:
        """Whether a bad host is missed, a good one taken out, or a healthy cluster too often not ready."""
        if self.fault == HEALTHY:
            return self.others > 0 or self.runs - self.ready > most(self.runs, SUSPECTED)
        return self.others > 0 or self.ready > 0 or self.found < self.runs

    def add(self, victim: str | None, bad: set[str], record: Mapping[str, Any], seconds: float) -> None:
        """Count a run by its record: the host with this fault if there is one, and all bad ones."""
        drained = record["drain"]
        evidence = FAULTS[self.fault].evidence if self.fault in FAULTS else ""
        self.seconds = round((self.seconds * self.runs + seconds) / (self.runs + 1), 1)
        self.runs += 1
        self.found += any(evidence in said for said in drained.get(victim or "", []))
        self.others += bool(drained.keys() - bad)
        self.once += any(rung["unsteady"] for rung in record["rungs"])
        self.ready += record["ready"]


def read(file: Path) -> list[Count]:
    """The counts so far, by fault."""
    rows = {row["fault"]: row for row in csv.DictReader(file.open(encoding="utf-8"))} if file.is_file() else {}
    counts = [Count(name, fault.rung) for name, fault in FAULTS.items()]
    counts.append(Count(HEALTHY, "single,network", of=HEALTHY_RUNS))
    for count in counts:
        row = rows.get(count.fault, {})
        for key in ("runs", "found", "others", "once", "ready"):
            setattr(count, key, int(row.get(key, 0)))
        count.seconds = float(row.get("seconds", 0))
    return counts


def write(file: Path, counts: list[Count]) -> None:
    """Write the counts whole."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [each.name for each in fields(Count)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(map(asdict, counts))
    write_text(file, text.getvalue())


def following(counts: list[Count], seconds: float) -> Count | None:
    """The count that is farthest from its end among those of which a run takes no longer; None: there is none."""
    left = [each for each in counts if each.runs < each.of and (each.seconds or FIRST_S) <= seconds]
    return min(left, key=lambda each: each.runs / each.of, default=None)


def together(count: Count, counts: list[Count]) -> list[Count]:
    """The counts that a run of one adds to: those of the faults beside it that are not at their end, too."""
    fault = FAULTS.get(count.fault)
    beside = [each for each in counts if fault and each.fault == fault.beside and each.runs < each.of]
    return [count, *beside]


def run(bed: TestBed, counts: list[Count], folder: Path) -> None:
    """Make one run of faults, each time of the next hosts, and count it for each of them."""
    begin, first = time.monotonic(), counts[0]
    victims = {
        count.fault: bed.hosts[(first.runs + place) % len(bed.hosts)]
        for place, count in enumerate(counts)
        if count.fault in FAULTS
    }
    with ExitStack() as stack:
        for fault, host in victims.items():
            stack.enter_context(FAULTS[fault].begin(bed, host))
        _, record, _ = accepted(folder, bed, "--rungs", first.rungs, "--budget", "30m")
    addresses = {fault: host.address for fault, host in victims.items()}
    for count in counts:
        seconds, bad = time.monotonic() - begin, {*addresses.values()}
        count.add(addresses.get(count.fault), bad, record, seconds)


def main(words: list[str]) -> int:
    """Run as long as the minutes allow; returns 1 where a count is wrong so far."""
    parser = argparse.ArgumentParser(prog="python -m tests.performance.acceptance")
    parser.add_argument("--minutes", type=float, default=9.0)
    end = time.monotonic() + 60 * parser.parse_args(words).minutes
    counts = read(FILE)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that hosts and loops are ended, too
    with tempfile.TemporaryDirectory() as folder, accepted_hosts(Path(folder) / "bed") as bed:
        while (count := following(counts, end - time.monotonic())) is not None:
            added = together(count, counts)
            run(bed, added, Path(folder) / f"{count.fault} {count.runs}".replace(" ", "-"))
            write(FILE, counts)
            print(*added, sep="\n", flush=True)
    return int(any(each.is_wrong for each in counts))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
