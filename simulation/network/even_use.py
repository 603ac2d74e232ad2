"""Spreads the bytes of flows evenly over their times: how busy ports were where not every packet was simulated."""

from collections.abc import Sequence

import numpy as np

from simulation.network.packet_state import BINS
from simulation.network.routing import Ints, Places


def even_use(ways: Sequence[tuple[Places, Ints]], start: Ints, end: Ints, ports: int) -> tuple[Ints, int]:
    """The bytes of each port by bin of time, and the ns of a bin, a power of two; bins begin at 0.

    Args:
        ways: the ports of each flow, the rest of a row below 0, and the bytes that it sends there: data, ACKs.
        start: of each flow (ns), as `end`; one that did not end is below 0, and left out.
        ports: their number.
    """
    bin_ns = 1 << max(8, (int(end.max(initial=0)) // BINS).bit_length())
    usage = np.zeros((ports, BINS))
    for place in range(BINS):
        since, until = place * bin_ns, (place + 1) * bin_ns
        flows = np.flatnonzero((start < until) & (end > since))
        first, last = start[flows], end[flows]
        shares = (np.minimum(last, until) - np.maximum(first, since)) / (last - first)
        for path, sent in ways:
            its = path[flows]
            weights = np.broadcast_to((sent[flows] * shares)[:, None], its.shape)
            usage[:, place] += np.bincount(its[its >= 0], weights[its >= 0], ports)
    whole: Ints = np.diff(np.rint(usage.cumsum(axis=1)).astype(np.int64), axis=1, prepend=0)
    return whole, bin_ns
