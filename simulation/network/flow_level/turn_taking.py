"""Finds out by how much ranks end later because packets of flows that begin together leave one after the other.

A sender deals its packets out in turn, one to each. The link of the receiver to which all come last gets its first
packets when each sender has served the others, and is busy from then on: so much later it ends than by fair rates.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache

from simulation.network.flow_level.lanes import BITS, HEADER_BYTES
from simulation.network.flow_level.net import HopNet
from simulation.network.flow_level.port_routes import PortRoutes


def lateness(net: HopNet, ways: PortRoutes, payload: int) -> dict[int, float]:
    """By how much ranks end after a flow that leaves a full link of its receiver (ns), by the number of its hop.

    Of collectives in which no flow waits for another. It is the same for hops of as many bytes and ns that share their
    ends with as many others, whatever their order is: that of the last of them. `payload` is in bytes.
    """
    late: dict[int, float] = {}
    for key in net.keys:
        places = net.of_key(key)
        if not any(net.hops[place].parents or net.hops[place].steps > 1 for place in places):
            late.update(zip(places, _of_pairs(net, places, ways, payload), strict=True))
    return late


def _of_pairs(net: HopNet, places: Sequence[int], ways: PortRoutes, payload: int) -> list[float]:
    """The lateness of hops that all begin at once, in the order of their numbers.

    A receiver's link is idle until its first packets come, of each flow for its share of the link.
    """

    @cache
    def took(links: tuple[int, ...], size: int) -> tuple[int, int]:
        """The time (ns) that the first packet of a flow takes of the first of its links, by their kinds, and of all."""
        bits = (min(size, payload) + HEADER_BYTES) * BITS
        on_each = [bits // ways.kinds[kind].bps for kind in links]
        return on_each[0], sum(on_each) + sum(ways.kinds[kind].delay_ns for kind in links)

    dealt = defaultdict[int, int](int)  # ns, by the sender's port
    arrived = defaultdict[int, int](int)  # ns of all first packets, by the receiver's port
    hops = []
    for place in places:
        source, target, _steps, size = net.hops[place][:4]
        out, links = ways.first_way(source, target)
        into = ways.next_ports(target, source)[0] ^ 1
        sent, trip = took(links, size)
        arrived[into] += dealt[out] + trip
        dealt[out] += sent
        hops.append((out, into, size, trip))
    sharing = Counter([out for out, _into, _size, _trip in hops])  # hops by their ports at both ends
    sharing.update([into for _out, into, _size, _trip in hops])
    kinds = [(sharing[out], sharing[into], size, trip) for out, into, size, trip in hops]
    most: dict[tuple[int, ...], float] = {}
    for (_out, into, _size, trip), kind in zip(hops, kinds, strict=True):
        most[kind] = max(most.get(kind, 0.0), arrived[into] / sharing[into] - trip)
    return [most[kind] for kind in kinds]
