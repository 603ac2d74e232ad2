"""Spreads the bytes of flows evenly over their times: how busy ports were where not every packet was simulated."""

from collections.abc import Sequence

import numpy as np

from simulation.network.packet_state import ACK_BYTES, BINS, HEADER_BYTES
from simulation.network.routing import Ints, Places


def wire_bytes(path: Places, back: Places, size: Ints, payload: int) -> list[tuple[Places, Ints]]:
    """The ways of flows of `size` bytes there and back, and the bytes of their packets (`payload` each) and ACKs."""
    packets = -(-size // payload)
    return [(path, size + HEADER_BYTES * packets), (back, ACK_BYTES * packets)]


def sent_once(ways: Sequence[tuple[Places, Ints]], ports: int) -> Ints:
    """The bytes of each of a number of ports; for `ways` see `even_use`."""
    total = np.zeros(ports, np.int64)
    for path, sent in ways:
        np.add.at(total, path[path >= 0], np.broadcast_to(sent[:, None], path.shape)[path >= 0])
    return total


def even_use(
    ways: Sequence[tuple[Places, Ints]], start: Ints, end: Ints, ports: int, more: Ints | int = 0
) -> tuple[Ints, int]:
    """The bytes of each port by bin of time, and the ns of a bin, a power of two; bins begin at 0.

    Args:
        ways: the ports of each flow, the rest of a row below 0, and the bytes that it sends there: data, ACKs.
        start: of each flow (ns), as `end`; one that did not end is below 0, and left out.
        ports: their number.
        more: bytes that each sent besides, spread as those.
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
    total = usage.sum(axis=1)
    usage *= (1 + more / np.maximum(total, 1))[:, None]
    whole: Ints = np.diff(np.rint(usage.cumsum(axis=1)).astype(np.int64), axis=1, prepend=0)
    return whole, bin_ns
