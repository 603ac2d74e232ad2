"""Faults that come and go on a real host: moments of a low rate, a hog beside its ranks, ranks that stand still.

    python -m tests.cluster.disturbances [fault ...]    # measure how often each is named, as rows of a table

Each lasts as long as its `with` block. Times are drawn at random with a fixed seed, the same mean in every run.
"""

import os
import random
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.bed import TestBed
from tests.cluster.controller import Controller
from tests.cluster.host import ClusterHost
from tests.cluster.pairs import HEALTHY, four_healthy_hosts, measure, view_of

# A tenth of pairs.HEALTHY for a twentieth of the time: a moment in each second on average.
TENTH, MOMENT_S, BETWEEN_S = "20mbit", 0.05, 0.95
STOP_S, BETWEEN_STOPS_S = 0.1, 0.9
# Loops of the ranks' own priority show in no message: a rank that mostly waits preempts them.
HOG_NICE = -8
RANK_PROGRAMS = ("python", "python3", "python3.11")


@contextmanager
def rate(bed: TestBed, victim: ClusterHost, speed: str) -> Iterator[None]:
    """The host sends at this speed all the time."""
    victim.impair(rate=speed)
    try:
        yield
    finally:
        victim.impair(rate=HEALTHY)


@contextmanager
def loss(bed: TestBed, victim: ClusterHost, share: float) -> Iterator[None]:
    """This share of the host's packets is lost."""
    victim.impair(rate=HEALTHY, loss=share)
    try:
        yield
    finally:
        victim.impair(rate=HEALTHY)


@contextmanager
def moments(bed: TestBed, victim: ClusterHost) -> Iterator[None]:
    """The host sends at a tenth of its rate for a twentieth of the time."""
    with _repeatedly(lambda: victim.change_rate(TENTH), lambda: victim.change_rate(HEALTHY), MOMENT_S, BETWEEN_S):
        yield


@contextmanager
def stops(bed: TestBed, victim: ClusterHost) -> Iterator[None]:
    """The host's ranks stand still (SIGSTOP) for a tenth of the time."""
    with _repeatedly(
        lambda: _signal(victim, signal.SIGSTOP), lambda: _signal(victim, signal.SIGCONT), STOP_S, BETWEEN_STOPS_S
    ):
        yield


@contextmanager
def hog(bed: TestBed, victim: ClusterHost) -> Iterator[None]:
    """A loop of a higher priority has the CPU of the host's ranks; the other hosts have the rest of the machine.

    It is in a session of its own with that session's priority, as sessions share a CPU where the kernel groups them
    (sched(7), autogroup).
    """
    cpus = sorted(os.sched_getaffinity(0))
    for host in bed.hosts:
        mine = {cpus[0]} if host is victim else set(cpus[1:] or cpus)
        for pid in host.pids("sshd"):
            os.sched_setaffinity(pid, mine)
    loop = f"echo {HOG_NICE} > /proc/self/autogroup; while :; do :; done"
    begun = f"setsid nice -n {HOG_NICE} sh -c '{loop}' >/dev/null 2>&1 & echo $!"
    started = victim.exec(["taskset", "-c", str(cpus[0]), "sh", "-c", begun])
    try:
        yield
    finally:
        victim.exec(["kill", *started.stdout.split()], check=False)
        for host in bed.hosts:
            for pid in host.pids("sshd"):
                os.sched_setaffinity(pid, set(cpus))


def _signal(victim: ClusterHost, kind: signal.Signals) -> None:
    for pid in victim.pids(*RANK_PROGRAMS):
        with suppress(ProcessLookupError):
            os.kill(pid, kind)


@contextmanager
def _repeatedly(
    begin: Callable[[], object], end: Callable[[], object], lasts_s: float, pause_s: float
) -> Iterator[None]:
    """Begin and end something again and again in a thread; times are exponential with these means."""
    over, draw = threading.Event(), random.Random(1)

    def loop() -> None:
        while not over.wait(draw.expovariate(1 / pause_s)):
            begin()
            over.wait(draw.expovariate(1 / lasts_s))
            end()

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        end()


@dataclass(frozen=True)
class Disturbance:
    """A fault of one host, how it is measured, and the kinds of fault that describe it."""

    begin: Callable[[TestBed, ClusterHost], AbstractContextManager[None]]
    kinds: frozenset[str]
    settings: Mapping[str, object] = field(default_factory=dict)


_FEW = {"repeats": 3, "iterations": 8}
# So few of the measurements show these faults that only many of them tell (docs/reference/network-benchmarks.md).
_MANY = {"repeats": 20, "iterations": 60}
_MOST = {"repeats": 60, "iterations": 60}
DISTURBANCES = {
    "none": Disturbance(lambda bed, victim: nullcontext(), frozenset(), {"repeats": 5, "iterations": 20}),
    "rate -50 %": Disturbance(lambda bed, victim: rate(bed, victim, "100mbit"), frozenset({"constant"}), _FEW),
    "rate -80 %": Disturbance(lambda bed, victim: rate(bed, victim, "40mbit"), frozenset({"constant"}), _FEW),
    "rate -95 %": Disturbance(lambda bed, victim: rate(bed, victim, "10mbit"), frozenset({"constant"}), _FEW),
    "a tenth of the rate, 5 % of the time": Disturbance(moments, frozenset({"intermittent"}), _MOST),
    "3 loops of nice -8 on the CPU of its rank": Disturbance(
        hog, frozenset({"constant", "intermittent"}), {"repeats": 10, "iterations": 20}
    ),
    "SIGSTOP of 0.1 s, 10 % of the time": Disturbance(stops, frozenset({"intermittent", "stalls"}), _MANY),
    "3 % of the packets lost": Disturbance(
        lambda bed, victim: loss(bed, victim, 0.03), frozenset({"stalls"}), {"repeats": 5, "iterations": 40}
    ),
}
VICTIM = 2


def found(
    controller: Controller, bed: TestBed, name: str
) -> tuple[list[tuple[str, tuple[str, ...], str]], tuple[str, ...]]:
    """(part, hosts, kind) of each finding of a run with this disturbance of the third host, and its sentences."""
    chosen = DISTURBANCES[name]
    with chosen.begin(bed, bed.hosts[VICTIM]):
        view = view_of(measure(controller, chosen.settings))
    assert view.analysis is not None
    return [(each.part, each.hosts, each.kind) for each in view.analysis.findings], view.sentences


def main(names: list[str]) -> None:
    """Print a row for each run: what was named, rightly or not."""
    with tempfile.TemporaryDirectory() as folder, four_healthy_hosts(Path(folder) / "bed") as bed:
        for number, name in enumerate(names or [*DISTURBANCES, *["none"] * 9]):
            own = Path(folder) / str(number)
            own.mkdir()
            named, sentences = found(Controller(own, bed), bed, name)
            victim = bed.hosts[VICTIM].address
            right = [kind for part, hosts, kind in named if part == "host" and hosts == (victim,)]
            others = len(named) - len(right)
            print(f"| {name} | {', '.join(right) or 'no'} | {others} | {'; '.join(sentences)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
