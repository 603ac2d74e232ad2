"""Says what a flow takes of the links on its way: the time of each byte with its header, of ACKs, and the delay.

Transmissions take whole ns, truncated, as in SimAI's ns-3; a packet has a header of 52 bytes, its ACK 60.
"""

from typing import NamedTuple

from simulation.network.flow_level.fluid_state import Lanes
from simulation.network.flow_level.ways import DPORT, FIRST_SPORT, SPREAD, Shares, Ways

HEADER_BYTES, ACK_BYTES = 52, 60
BITS = 8_000_000_000  # a byte's bits over a rate in bit/s, in ns


class Way(NamedTuple):
    """The ports to a receiver and back, each with the share of the bytes that it carries."""

    forward: tuple[tuple[int, float], ...]
    back: tuple[tuple[int, float], ...]


class Costs(NamedTuple):
    """What flows of one size take on a way: time per byte of each port, forward and for ACKs; ns after the last byte.

    `halves` is half a packet's time on each port back: what an ACK waits for where data is on its way.
    """

    forward: tuple[tuple[int, float], ...]
    back: tuple[tuple[int, float], ...]
    halves: tuple[tuple[int, float], ...]
    delay: float


class CostModel:
    """Knows the costs of ways; `payload` is the bytes of a full packet."""

    def __init__(self, ways: Ways, payload: int) -> None:
        self.ways, self.payload = ways, payload
        self._known: dict[tuple[Way, int], Costs] = {}

    def costs(self, way: Way, size: int) -> Costs:
        """The costs of a flow of `size` bytes."""
        found = self._known.get((way, size))
        if found is None:
            found = self._known[way, size] = self._made(way, size)
        return found

    def _made(self, way: Way, size: int) -> Costs:
        links, payload = self.ways.links, self.payload
        packets = -(-size // payload)
        full, last = payload + HEADER_BYTES, size - (packets - 1) * payload + HEADER_BYTES
        forward, back, halves = [], [], []
        for port, share in way.forward:
            bps = links[port].bps
            time = (packets - 1) * (full * BITS // bps) + last * BITS // bps
            forward.append((port, share * time / size))
        for port, share in way.back:
            bps = links[port].bps
            back.append((port, share * packets * (ACK_BYTES * BITS // bps) / size))
            halves.append((port, share * 0.5 * full * BITS / bps))
        delay = sum(share * links[port].delay_ns for port, share in (*way.forward, *way.back))
        delay += sum(share * (last * BITS // links[port].bps) for port, share in way.forward[1:])
        delay += sum(share * (ACK_BYTES * BITS // links[port].bps) for port, share in way.back)
        return Costs(tuple(forward), tuple(back), tuple(halves), delay)


def way_of_flow(ways: Ways, source: int, target: int, number: int) -> Way:
    """The way of the `number`-th flow (from 0) from a sender to a receiver, which has a port number of its own."""
    if ways.routing == SPREAD:
        return Way(_ordered(ways.shares(source, target)), _ordered(ways.shares(target, source)))
    forward = ways.path(source, target, FIRST_SPORT + number, DPORT)
    back = ways.path(target, source, DPORT, FIRST_SPORT + number)
    return Way(tuple((port, 1.0) for port in forward), tuple((port, 1.0) for port in back))


def _ordered(shares: Shares) -> tuple[tuple[int, float], ...]:
    return tuple(shares.items())


class LaneBook:
    """Numbers lanes and lists them as columns; links are numbered in order of appearance."""

    def __init__(self) -> None:
        self.lanes = Lanes([0], [], [], [], [], [0], [], [], [], 0)
        self.numbers: dict[int, int] = {}
        self._known: dict[Costs, int] = {}

    def number(self, link: int) -> int:
        """The number of a link."""
        return self.numbers.setdefault(link, len(self.numbers))

    def add(self, costs: Costs, counts: tuple[int, ...] = ()) -> int:
        """The number of a lane; `counts` is how many flows like it each link forward carries (default: one)."""
        known = self._known.get(costs) if not counts else None
        if known is not None:
            return known
        lanes = self.lanes
        number = len(lanes.delay)
        for at, (port, cost) in enumerate(costs.forward):
            lanes.load_link.append(self.number(port))
            lanes.load_cost.append(cost)
            lanes.load_count.append(counts[at] if counts else 1)
        lanes.data_end.append(len(lanes.load_link))
        for port, cost in costs.back:
            if cost > 0:
                lanes.load_link.append(self.number(port))
                lanes.load_cost.append(cost)
                lanes.load_count.append(0)
        lanes.load_begin.append(len(lanes.load_link))
        for port, half in costs.halves:
            lanes.wait_link.append(self.number(port))
            lanes.wait_half.append(half)
        lanes.wait_begin.append(len(lanes.wait_link))
        lanes.delay.append(costs.delay)
        if not counts:
            self._known[costs] = number
        return number

    def columns(self) -> Lanes:
        """The lanes so far."""
        return self.lanes._replace(links=len(self.numbers))
