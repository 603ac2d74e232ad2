"""Finds the critical path of a run: from the last end back, what each flow waited for, and which link held it up."""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple, Protocol, TypeVar

from simulation.network.job import WAITS, Job

MOST_STEPS = 200
ROUNDING_NS = 1
_FINE = 40  # bits behind the point of a rate: whole numbers add up without loss


class PathStep(NamedTuple):
    """A flow on the critical path (ns). Before it its rank waited `idle_ns` for nothing but its own steps.

    `port` is the most loaded port on its way, `busy` the share of the flow's time in which that one had to send,
    `shared` the number of other flows that it carried in that time.
    """

    source: int
    target: int
    collective: int
    begin: int
    end: int
    idle_ns: int
    port: int
    busy: float
    shared: int


class FlowFacts(NamedTuple):
    """A flow's ends, the number of its collective, and its time (ns)."""

    source: int
    target: int
    collective: int
    begin: int
    end: int


class PortUsers(NamedTuple):
    """The flows of a port, in columns: times, how long the port takes to send one (ns), and how many are alike."""

    begins: list[int]
    ends: list[int]
    busy: list[float]
    counts: list[int]


Flow = TypeVar("Flow")


class FlowGraph(Protocol[Flow]):
    """The flows of a run that ended, in whichever form a level has them."""

    def last(self) -> Flow | None:
        """The flow that ended last."""

    def last_of(self, collective: int, rank: int) -> Flow | None:
        """The flow of a rank's part of a collective that ended last."""

    def parents(self, flow: Flow) -> Iterable[Flow]:
        """The flows of the same collective that it waited for."""

    def facts(self, flow: Flow) -> FlowFacts:
        """The ends of a flow and its time (ns)."""

    def ports(self, flow: Flow) -> Sequence[int]:
        """The ports on its way that may hold it up."""

    def users(self, ports: Collection[int]) -> Mapping[int, PortUsers]:
        """The flows of each of these ports."""


def critical_path(job: Job, flows: FlowGraph[Flow], most: int = MOST_STEPS) -> tuple[int, list[PathStep]]:
    """How many steps there are, and the last ones, `most` at most."""
    before = _before(job)
    chain: list[tuple[Flow, FlowFacts, int]] = []
    flow = flows.last()
    while flow is not None:
        own = flows.facts(flow)
        found = [*flows.parents(flow)]
        if own.source < job.ranks:
            former = before.get((job.program_of[own.source], own.collective))
            last = flows.last_of(former, own.source) if former is not None else None
            found += [] if last is None else [last]
        ends = [(flows.facts(each).end, each) for each in found]
        ends = [each for each in ends if 0 <= each[0] <= own.begin + ROUNDING_NS]
        ended, cause = max(ends, key=lambda each: each[0], default=(0, None))
        chain.append((flow, own, max(own.begin - ended, 0)))
        flow = cause
    shown = chain[:most][::-1]
    ports = {port for flow, _own, _idle in shown for port in flows.ports(flow)}
    loads = {port: _Load(its) for port, its in flows.users(ports).items()}
    return len(chain), [PathStep(*own, idle, *_worst(own, flows.ports(flow), loads)) for flow, own, idle in shown]


def _before(job: Job) -> dict[tuple[int, int], int]:
    """By program and collective: the collective that a rank waited for last before it."""
    found: dict[tuple[int, int], int] = {}
    for number, program in enumerate(job.programs):
        waited = None
        for phase in program:
            if phase.collective is None:
                continue
            if waited is not None:
                found[number, phase.collective] = waited
            if phase.mode == WAITS:
                waited = phase.collective
    return found


class _Slopes:
    """The sum of lines that rise from a time on, each at its rate, so many times. counts: lines of the first times."""

    def __init__(self, lines: Iterable[tuple[int, int, int]]) -> None:
        ordered = sorted(lines)
        self.times = [time for time, _rate, _count in ordered]
        self.counts = [0, *accumulate(count for _time, _rate, count in ordered)]
        self._rates = [0, *accumulate(rate * count for _time, rate, count in ordered)]
        self._offsets = [0, *accumulate(time * rate * count for time, rate, count in ordered)]

    def at(self, time: int) -> int:
        place = bisect_left(self.times, time)
        return time * self._rates[place] - self._offsets[place]


class _Load:
    """How long a port had to send up to any time, if each flow goes on evenly."""

    def __init__(self, users: PortUsers) -> None:
        ends = [max(end, begin + 1) for begin, end in zip(users.begins, users.ends, strict=True)]
        times = zip(users.begins, ends, users.busy, strict=True)
        rates = [int(busy * (1 << _FINE)) // (end - begin) for begin, end, busy in times]
        self._begun = _Slopes(zip(users.begins, rates, users.counts, strict=True))
        self._ended = _Slopes(zip(ends, rates, users.counts, strict=True))

    def within(self, begin: int, end: int) -> tuple[float, int]:
        """The share of a time in which it had to send, and the number of other flows meanwhile."""
        sent = [self._begun.at(time) - self._ended.at(time) for time in (begin, end)]
        begun = self._begun.counts[bisect_left(self._begun.times, end)]
        users = begun - self._ended.counts[bisect_right(self._ended.times, begin)]
        return (sent[1] - sent[0]) / (1 << _FINE) / (end - begin), users - 1


def _worst(own: FlowFacts, ports: Sequence[int], loads: Mapping[int, _Load]) -> tuple[int, float, int]:
    """Port, busy share and number of other flows of the most loaded port on a flow's way."""
    worst = (-1, 0.0, 0)
    for port in ports:
        busy, shared = loads[port].within(own.begin, max(own.end, own.begin + 1))
        if busy > worst[1]:
            worst = (port, min(busy, 1.0), shared)
    return worst
