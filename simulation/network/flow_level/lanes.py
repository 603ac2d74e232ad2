"""Computes what a flow takes of the links on its way: the time of each byte with its header, of ACKs, and the delay.

Transmissions take whole ns, truncated, as in SimAI's ns-3; a packet has a header of 52 bytes, its ACK 60.
"""

from collections.abc import Sequence
from typing import NamedTuple

from simulation.network.flow_level.fluid_state import Lanes, Whole
from simulation.network.flow_level.port_routes import DPORT, FIRST_SPORT, SPREAD, Link, PortRoutes

HEADER_BYTES, ACK_BYTES = 52, 60
BITS = 8_000_000_000  # a byte's bits over a rate in bit/s, in ns


class Way(NamedTuple):
    """The ports to a receiver and back, and the share of the bytes that each carries (empty: all of them)."""

    forward: tuple[int, ...]
    back: tuple[int, ...]
    forward_shares: tuple[float, ...] = ()
    back_shares: tuple[float, ...] = ()


class Window(NamedTuple):
    """The time of a byte of a flow alone within its window (ns), and how often by byte it waits for an ACK.

    Both are 0 where the window holds all of the flow. At the receiver's port, which sends ACKs first, it waits for the
    part `phase` of a packet, at others behind a whole one; `slowest` is the time of a byte if so at all ports.
    """

    alone: float
    turns: float
    phase: float
    slowest: float


NO_WINDOW = Window(0.0, 0.0, 0.0, 0.0)


class Costs(NamedTuple):
    """The costs of flows of one size on ways of one kind: ns per byte of each port, forward and for ACKs on the way
    back.

    `paces` is the time of a byte on each port back, `half` the bytes of half a packet: what an ACK waits for where such
    data is on its way. `delay` is the time from the last byte to the last ACK (ns).
    """

    forward: tuple[float, ...]
    back: tuple[float, ...]
    paces: tuple[float, ...]
    delay: float
    half: float
    window: Window


Shared = list[tuple[Link, float]]  # links on a way, with the share of the bytes of each


class CostModel:
    """Knows the costs of ways by the kinds of their links; `payload` and `window` are those of a flow (bytes)."""

    def __init__(self, ways: PortRoutes, payload: int, window: int) -> None:
        self.ways, self.payload, self.window = ways, payload, window
        self._known: dict[tuple[object, ...], Costs] = {}

    def costs(self, way: Way, size: int) -> Costs:
        """The costs of a flow of `size` bytes."""
        kind_of = self.ways.kind_of.__getitem__
        kinds = tuple(map(kind_of, way.forward)), tuple(map(kind_of, way.back))
        key = (*kinds, way.forward_shares, way.back_shares, size)
        found = self._known.get(key)
        if found is None:
            links = [[self.ways.kinds[kind] for kind in each] for each in kinds]
            shares = way.forward_shares or [1.0] * len(way.forward), way.back_shares or [1.0] * len(way.back)
            found = self._known[key] = self._made(links, shares, size)
        return found

    def _made(self, links: Sequence[Sequence[Link]], shares: Sequence[Sequence[float]], size: int) -> Costs:
        packets = -(-size // self.payload)
        full = min(self.payload, size) + HEADER_BYTES
        last = size - (packets - 1) * self.payload + HEADER_BYTES
        forth, back = (list(zip(*each, strict=True)) for each in zip(links, shares, strict=True))
        times = [(packets - 1) * (full * BITS // link.bps) + last * BITS // link.bps for link, _share in forth]
        delay = sum(share * link.delay_ns for link, share in (*forth, *back))
        delay += sum(share * (last * BITS // link.bps) for link, share in forth[1:])
        delay += sum(share * (ACK_BYTES * BITS // link.bps) for link, share in back)
        return Costs(
            tuple(share * time / size for time, (_link, share) in zip(times, forth, strict=True)),
            tuple(share * packets * (ACK_BYTES * BITS // link.bps) / size for link, share in back),
            tuple(share * BITS / link.bps for link, share in back),
            delay,
            full / 2,
            self._window(forth, back, size),
        )

    def _window(self, forth: Shared, back: Shared, size: int) -> Window:
        """The time that a window leaves to a flow alone: as many packets as fit, then as many each round trip.

        Alike GPUs begin their packets at the same time, with an ACK before each: so long after the arrival of a packet
        its own ACK leaves.
        """
        packets, full = -(-size // self.payload), self.payload + HEADER_BYTES
        turns, rest = divmod(packets - 1, max(1, -(-self.window // self.payload)))
        if not turns:
            return NO_WINDOW
        data = [full * BITS // link.bps for link, _share in forth]
        acks = [ACK_BYTES * BITS // link.bps for link, _share in back]
        trip = sum(share * (link.delay_ns + time) for time, (link, share) in zip(data, forth, strict=True))
        trip += sum(share * (link.delay_ns + time) for time, (link, share) in zip(acks, back, strict=True))
        alone = turns * trip + (rest + 1) * max(data)
        if not alone:
            return NO_WINDOW
        beat = data[0] + acks[0]
        arrival = acks[0] + sum(time + link.delay_ns for time, (link, _share) in zip(data, forth, strict=True))
        alike = data[0] > 0 and len({link.bps for link, _share in (*forth, *back)}) == 1
        slowest = alone + turns * sum(share * full * BITS / link.bps for link, share in back)
        return Window(alone / size, turns / size, -arrival % beat / data[0] if alike else 0.5, slowest / size)


def way_of_flow(ways: PortRoutes, source: int, target: int, number: int) -> Way:
    """The way of the `number`-th flow (from 0) from a sender to a receiver, which has a port number of its own."""
    if ways.routing == SPREAD:
        forth, back = ways.shares(source, target), ways.shares(target, source)
        return Way(tuple(forth), tuple(back), tuple(forth.values()), tuple(back.values()))
    forward = ways.path(source, target, FIRST_SPORT + number, DPORT)
    return Way(tuple(forward), tuple(ways.path(target, source, DPORT, FIRST_SPORT + number)))


def on_wire(size: Whole, payload: int) -> tuple[Whole, Whole]:
    """The bytes of a flow, or of each of an array, with headers, and those of the ACKs; both arguments are in bytes."""
    packets = -(-size // payload)
    return size + packets * HEADER_BYTES, packets * ACK_BYTES


class SentFlows(NamedTuple):
    """Columns of hops whose flows take ways of their own: ends, the number of the first flow among those of the pair,
    from there to the next, how many, and bytes of each.
    """

    source: list[int]
    target: list[int]
    first: list[int]
    stride: list[int]
    steps: list[int]
    size: list[int]


class LaneBook:
    """Numbers lanes and lists them as columns; links are numbered in order of appearance.

    `free` says whether a lane has links that it takes no time of, which its columns leave out.
    """

    def __init__(self) -> None:
        self.free = False
        self.lanes = Lanes([0], [], [], [], [], [0], [], [], [], [], [], [], [], [], [], 0)
        self.numbers: dict[int, int] = {}

    def number(self, link: int) -> int:
        """The number of a link."""
        return self.numbers.setdefault(link, len(self.numbers))

    def add(
        self,
        data: Sequence[tuple[int, float, int]],
        acks: Sequence[tuple[int, float]],
        paces: Sequence[tuple[int, float]],
        costs: Costs,
        burst: int,
    ) -> int:
        """A new lane's number: links with the time of a byte on each, and the bytes that may queue up before it.

        `costs` are those of one of its flows.
        """
        lanes, number = self.lanes, self.number
        for link, cost, together in data:
            if cost > 0:
                lanes.load_link.append(number(link))
                lanes.load_cost.append(cost)
                lanes.load_burst.append(together)
            else:
                self.free = True
        lanes.data_end.append(len(lanes.load_link))
        for link, cost in acks:
            if cost > 0:
                lanes.load_link.append(number(link))
                lanes.load_cost.append(cost)
                lanes.load_burst.append(0)
        lanes.load_begin.append(len(lanes.load_link))
        for link, pace in paces:
            lanes.wait_link.append(number(link))
            lanes.wait_byte.append(pace)
        lanes.wait_begin.append(len(lanes.wait_link))
        for column, value in zip(lanes.of_flows, (costs.delay, costs.half, *costs.window), strict=True):
            column.append(value)
        lanes.burst.append(burst)
        return len(lanes.delay) - 1

    def columns(self) -> Lanes:
        """The lanes so far."""
        return self.lanes._replace(links=len(self.numbers))
