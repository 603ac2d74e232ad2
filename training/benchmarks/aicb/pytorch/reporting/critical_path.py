"""Finds the critical path of an iteration over all ranks: what its time consists of, by class of operation. No torch.

The path is walked backwards from the rank that ends last. Where the program waited for a call, the call's own time
begins when the last of its group arrived; what was before that happened on that rank, and the walk goes on there. Time
between calls is the program's: computation, and the executor itself.

Source: the backward walk of Böhme et al., Scalable critical-path based performance analysis, 2012.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

PROGRAM = "program"


@dataclass(frozen=True, slots=True)
class PathCall:
    """One call of a rank. label: its class; instance: the same text on all ranks that take part in it.

    issue_ns and done_ns by rank 0's clock; waited: whether the program waited for it.
    """

    label: str
    instance: str
    issue_ns: int
    done_ns: int
    waited: bool


@dataclass(frozen=True, slots=True)
class RankIteration:
    """The calls of a rank in one iteration, begin and end in ns by rank 0's clock; calls in the order of issue."""

    begin_ns: int
    end_ns: int
    calls: Sequence[PathCall]


def critical_path(ranks: Sequence[RankIteration]) -> dict[str, int]:
    """ns of the path by label, `program` among them, the largest first. They add up to the time from the beginning on
    the rank where the path begins to the last end.
    """
    arrivals: dict[str, tuple[int, int]] = {}
    for rank, own in enumerate(ranks):
        for call in own.calls:
            arrivals[call.instance] = max(arrivals.get(call.instance, (call.issue_ns, rank)), (call.issue_ns, rank))
    waited = [sorted((call for call in own.calls if call.waited), key=lambda call: call.done_ns) for own in ranks]
    dones = [[call.done_ns for call in calls] for calls in waited]
    limits = [len(calls) for calls in waited]
    rank = max(range(len(ranks)), key=lambda each: ranks[each].end_ns)
    now, parts = ranks[rank].end_ns, dict[str, int]()

    def spend(label: str, until: int) -> None:
        nonlocal now
        parts[label] = parts.get(label, 0) + max(0, now - until)
        now = min(now, until)

    while True:
        place = min(limits[rank], bisect_right(dones[rank], now)) - 1
        if place < 0:
            spend(PROGRAM, ranks[rank].begin_ns)
            return dict(sorted(parts.items(), key=lambda part: -part[1]))
        call, limits[rank] = waited[rank][place], place  # so that the walk ends, whatever the clocks say
        spend(PROGRAM, call.done_ns)
        arrived_ns, last = arrivals[call.instance]
        # The clocks' error may put an arrival after the end.
        spend(call.label, min(max(arrived_ns, call.issue_ns), call.done_ns))
        rank = last
