"""Finds the window of every flow, which follows from the round trips of a network, at both levels."""

from simulation.network.flow_level.lanes import BITS
from simulation.network.flow_level.port_routes import PortRoutes, round_trip

ALL_PAIRS = 64  # GPUs up to which the flow level looks at all pairs


def window_bytes(ways: PortRoutes, gpus: int, payload: int, *, some: bool = False) -> tuple[int, int]:
    """The window of every flow (bytes) and the longest round trip (ns): the largest over all pairs of the network's
    GPUs, whoever works there; with `some` over some pairs of a large network.

    window = rtt * slowest link, rounded down to bytes.
    """
    some = some and gpus > ALL_PAIRS
    targets = [*range(0, gpus, gpus // ALL_PAIRS if some else 1), gpus - 1]
    sources = (0, 1, gpus - 1) if some else range(gpus)
    kinds = {ways.first_kinds(source, target) for source in sources for target in targets} - {()}
    trips = [round_trip(tuple([ways.kinds[kind] for kind in each]), payload) for each in kinds]
    largest = max((rtt * slowest // BITS for rtt, slowest in trips), default=0)
    return largest, max((rtt for rtt, _slowest in trips), default=0)
