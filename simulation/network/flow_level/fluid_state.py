"""Holds what flows of a network are at one moment: in lists for few of them, in arrays for code that numba compiles."""

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, chain, pairwise, repeat
from typing import Any, NamedTuple, Protocol, TypeAlias

Whole: TypeAlias = Any  # a list of whole numbers, or an array of them
Real: TypeAlias = Any

STARTED, COMPLETED, RELEASED = range(3)  # kinds of events
NOW, TIGHT, BEHIND = range(3)  # in `clock`
ACTIVE, EVENTS, PLANNED, ENDED, CHANGED, STAMP = range(6)  # in `counts`
COUNTS = 6


class Fluid(NamedTuple):
    """Hops, lanes, flows, links and events.

    A hop is what flows of one size from a sender to a receiver have in common; flow `hop_begin[h] + k` is its step k.
    Those that wait for step k of a hop are the steps k + `child_shift` of its children. `out_part` and `in_part` are
    the sender's and the receiver's part of the collective (-1: none), of which each flow completes `out_count` flows.
    `hop_late` is by how much parts end after a flow that leaves a full link of its receiver (ns; see turn_taking),
    `part_until` the latest such end.
    `load_*` say what a byte on a lane takes of links (forward up to `data_end`, then for ACKs), `load_burst` how
    many bytes of the lane's flows may queue up before a link, `wait_*` a byte's time on each link back, `lane_half` the
    bytes of half a packet. `lane_alone` to `lane_slowest` are those of a Window, `lane_most` is the rate that it leaves
    to a flow now (bytes per ns); they are empty where windows hold whole flows. TIGHT of `clock` is the largest part of
    a window that a flow has needed at its rate, BEHIND that of which the ACKs stood in queues, or that of a flow which
    was sent into them whole. `held` is what may queue up before a link, `entered` what came to such queues by it.
    Lanes with active flows stand in a list of each of their links, from `first_entry` on, where flows share lanes.
    """

    hop_begin: Whole
    hop_steps: Whole
    hop_size: Real
    hop_lane: Whole
    hop_gap: Real
    release_gap: Real
    out_part: Whole
    out_count: Whole
    in_part: Whole
    in_count: Whole
    hop_late: Real
    child_begin: Whole
    child_hop: Whole
    child_shift: Whole
    released: Whole
    load_begin: Whole
    data_end: Whole
    load_link: Whole
    load_cost: Real
    load_burst: Whole
    wait_begin: Whole
    wait_link: Whole
    wait_byte: Real
    lane_delay: Real
    lane_half: Real
    lane_alone: Real
    lane_turns: Real
    lane_phase: Real
    lane_slowest: Real
    lane_most: Real
    lane_burst: Whole
    lane_flows: Whole
    lane_mark: Whole
    changed: Whole
    entry_lane: Whole
    entry_before: Whole
    entry_after: Whole
    first_entry: Whole
    flow_hop: Whole
    flow_lane: Whole
    waiting: Whole
    start: Real
    end: Real
    active: Whole
    active_lane: Whole
    left: Real
    rate: Real
    waiting_rate: Whole
    fixed: Whole
    room: Real
    weight: Real
    data: Real
    crowd: Whole
    held: Whole
    peak_held: Whole
    entered: Whole
    peak_entered: Whole
    mark: Whole
    touched: Whole
    event_time: Real
    event_order: Whole
    event_kind: Whole
    event_flow: Whole
    pending: Whole
    part_until: Real
    ended: Whole
    clock: Real
    counts: Whole


class FluidCode(Protocol):
    """The code that moves flows: the module `fluid`, or what is compiled of it."""

    def run(self, state: Fluid, until: float, most: int) -> int:
        """Go on, at most to `until` (ns)."""

    def issue(self, state: Fluid, hops: Whole, gap: float) -> None:
        """Let flows start in `gap` ns."""


class Lanes(NamedTuple):
    """The lanes of a network as flat columns; see Fluid. `links` is how many links they name."""

    load_begin: Whole
    data_end: Whole
    load_link: Whole
    load_cost: Real
    load_burst: Whole
    wait_begin: Whole
    wait_link: Whole
    wait_byte: Real
    delay: Real
    half: Real
    alone: Real
    turns: Real
    phase: Real
    slowest: Real
    burst: Whole
    links: int

    @property
    def of_flows(self) -> tuple[Real, ...]:
        """The columns that a flow's Costs have, too: the delay, half a packet, the window."""
        return self.delay, self.half, self.alone, self.turns, self.phase, self.slowest


class HopColumns(NamedTuple):
    """The hops as columns; see Fluid. `parents` of a hop are (hop, shift); one `issued` waits for its sender, too."""

    steps: list[int]
    size: list[float]
    lane: list[int]
    gap: list[float]
    release_gap: list[float]
    out_part: list[int]
    out_count: list[int]
    in_part: list[int]
    in_count: list[int]
    late: list[float]
    parents: list[Sequence[tuple[int, int]]]
    issued: list[int]


def _waiting(hops: HopColumns, hop: int) -> Iterable[int]:
    """For how many others each step of a hop waits."""
    steps, issued = hops.steps[hop], hops.issued[hop]
    if not hops.parents[hop]:
        return [issued] * steps
    # The steps that wait for each parent.
    parts = [range(max(shift, 0), min(steps, hops.steps[parent] + shift)) for parent, shift in hops.parents[hop]]
    edges = sorted({0, steps, *(edge for part in parts for edge in (part.start, part.stop) if part)})
    return chain.from_iterable(
        repeat(issued + sum(begun in part for part in parts), ended - begun) for begun, ended in pairwise(edges)
    )


def _children(parents: Sequence[Sequence[tuple[int, int]]]) -> tuple[list[int], list[int], list[int]]:
    """Of each hop those that wait for it, one hop's after another's: where they begin, they, and their shifts."""
    counts = [0] * len(parents)
    for its in parents:
        for parent, _shift in its:
            counts[parent] += 1
    begins = [0, *accumulate(counts)]
    free, total = begins[:-1], begins[-1]
    children, shifts = [0] * total, [0] * total
    for hop, its in enumerate(parents):
        for parent, shift in its:
            children[free[parent]], shifts[free[parent]] = hop, shift
            free[parent] += 1
    return begins, children, shifts


def begin(
    hops: HopColumns, lanes: Lanes, pending: Sequence[int], flow_lane: Whole, filled: Callable[[object, int], Whole]
) -> Fluid:
    """The state before the first event; `filled` makes a column of one value, a list or an array."""
    begins = [0, *accumulate(hops.steps)]
    total = begins.pop()
    waiting: list[int] = []
    flow_hop: list[int] = []
    for hop, steps in enumerate(hops.steps):
        flow_hop += [hop] * steps
        waiting += _waiting(hops, hop)
    child_begin, child_hop, child_shift = _children(hops.parents)
    most, links, ways = max(total, 1), lanes.links, len(lanes.delay)
    entry_lane = (
        [] if len(flow_lane) else [lane for lane in range(ways) for _at in range(*lanes.load_begin[lane : lane + 2])]
    )
    short = any(lanes.turns)

    def windows(column: Real) -> Real:
        return column if short else []

    return Fluid(
        hop_begin=begins, hop_steps=hops.steps, hop_size=hops.size, hop_lane=hops.lane, hop_gap=hops.gap,
        release_gap=hops.release_gap, out_part=hops.out_part, out_count=hops.out_count, in_part=hops.in_part,
        in_count=hops.in_count, hop_late=hops.late, child_begin=child_begin,
        child_hop=child_hop, child_shift=child_shift, released=filled(0, len(begins)),
        load_begin=lanes.load_begin, data_end=lanes.data_end, load_link=lanes.load_link, load_cost=lanes.load_cost,
        load_burst=lanes.load_burst, wait_begin=lanes.wait_begin, wait_link=lanes.wait_link,
        wait_byte=lanes.wait_byte, lane_delay=lanes.delay, lane_half=lanes.half,
        lane_alone=windows(lanes.alone), lane_turns=windows(lanes.turns), lane_phase=windows(lanes.phase),
        lane_slowest=windows(lanes.slowest),
        lane_most=filled(0.0, ways if short else 0), lane_burst=lanes.burst, lane_flows=filled(0, ways),
        lane_mark=filled(-1, ways), changed=filled(0, ways), entry_lane=entry_lane,
        entry_before=filled(0, len(entry_lane)), entry_after=filled(0, len(entry_lane)),
        first_entry=filled(-1, links), flow_hop=flow_hop, flow_lane=flow_lane,
        waiting=waiting, start=filled(-1.0, total), end=filled(-1.0, total), active=filled(0, most),
        active_lane=filled(0, most), left=filled(0.0, most), rate=filled(0.0, most), waiting_rate=filled(0, most),
        fixed=filled(0, most), room=filled(0.0, links), weight=filled(0.0, links), data=filled(0.0, links),
        crowd=filled(0, links), held=filled(0, links), peak_held=filled(0, links), entered=filled(0, links),
        peak_entered=filled(0, links), mark=filled(-1, links),
        touched=filled(0, links), event_time=filled(0.0, most + 1), event_order=filled(0, most + 1),
        event_kind=filled(0, most + 1), event_flow=filled(0, most + 1), pending=list(pending),
        part_until=filled(0.0, max(len(pending), 1)), ended=filled(0, max(len(pending), 1)), clock=[0.0] * 3,
        counts=[0] * COUNTS,
    )  # fmt: skip
