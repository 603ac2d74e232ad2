"""Measures the round trips of a network, and the window of every flow, which follows from them at both levels."""

from functools import cache

from simulation.network.flow_level.lanes import BITS
from simulation.network.flow_level.port_routes import Link, PortRoutes

ALL_PAIRS = 64  # GPUs up to which the flow level looks at all pairs


def round_trip(ways: PortRoutes, source: int, target: int, payload: int) -> tuple[int, int]:
    """The shortest round trip between two nodes (ns) and the slowest link on the way (bit/s).

    rtt = 2 * propagation + the transmission of a payload at each hop.
    """
    return _trip(tuple([ways.kinds[kind] for kind in ways.first_kinds(source, target)]), payload)


@cache
def _trip(links: tuple[Link, ...], payload: int) -> tuple[int, int]:
    return sum(2 * link.delay_ns + payload * BITS // link.bps for link in links), min(link.bps for link in links)


def window_bytes(ways: PortRoutes, gpus: int, payload: int, *, some: bool = False) -> tuple[int, int]:
    """The window of every flow (bytes) and the longest round trip (ns): the largest over all pairs of the network's
    GPUs, whoever works there; with `some` over some pairs of a large network.

    window = rtt * slowest link, rounded down to bytes.
    """
    some = some and gpus > ALL_PAIRS
    targets = [*range(0, gpus, gpus // ALL_PAIRS if some else 1), gpus - 1]
    largest = longest = 0
    for source in (0, 1, gpus - 1) if some else range(gpus):
        for target in targets:
            if source != target and ways.next_ports(source, target):
                rtt, slowest = round_trip(ways, source, target, payload)
                longest = max(longest, rtt)
                largest = max(largest, rtt * slowest // BITS)
    return largest, longest
