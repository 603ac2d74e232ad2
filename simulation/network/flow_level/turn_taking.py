"""Finds out by how much ranks end later because packets of flows that begin together leave one after the other.

A sender deals its packets out in turn. The link of the receiver to which every sender comes last gets its first packet
when each sender has sent one to all others, and is busy from then on: so much later it ends than fair rates have it.
"""

from collections import Counter
from collections.abc import Sequence

from simulation.network.flow_level.lanes import BITS, HEADER_BYTES
from simulation.network.flow_level.net import HopNet
from simulation.network.flow_level.port_routes import PortRoutes


def lateness(net: HopNet, ways: PortRoutes, payload: int) -> dict[int, float]:
    """By how much ranks end after their last flow, by the number of its hop (ns), if the receiver's link is full.

    It is the same for flows of as many bytes that share both ends with as many others, whatever their order is: what it
    is for the last of them. `payload` is that of a packet (bytes).
    """
    late: dict[int, float] = {}
    for key in net.keys:
        places = net.of_key(key)
        if any(net.hops[place].parents or net.hops[place].steps > 1 for place in places):
            continue
        late |= _of_pairs(net, places, ways, payload)
    return late


def _of_pairs(net: HopNet, places: Sequence[int], ways: PortRoutes, payload: int) -> dict[int, float]:
    """The lateness of hops that all begin at once, in the order of their numbers."""
    sharing: Counter[int] = Counter()  # hops by their ports at both ends
    dealt: Counter[int] = Counter()  # ns
    first: dict[int, int] = {}
    ends = []
    for place in places:
        source, target, _steps, size = net.hops[place][:4]
        out, into = ways.next_ports(source, target)[0], ways.next_ports(target, source)[0] ^ 1
        first[into] = min(first.get(into, dealt[out]), dealt[out])
        dealt[out] += (min(size, payload) + HEADER_BYTES) * BITS // ways.link(out).bps
        sharing.update((out, into))
        ends.append((out, into, size))
    kinds = [(sharing[out], sharing[into], size) for out, into, size in ends]
    most: dict[tuple[int, int, int], int] = {}
    for (_out, into, _size), kind in zip(ends, kinds, strict=True):
        most[kind] = max(most.get(kind, 0), first[into])
    return {place: float(most[kind]) for place, kind in zip(places, kinds, strict=True)}
