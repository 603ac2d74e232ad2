"""Holds the ports and the next hops of a network as arrays, for packets."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from common.units import bandwidth_bps, time_seconds
from simulation.topology.fabric import Fabric

Ints = NDArray[np.int64]
Places = NDArray[np.int32]
Floats = NDArray[np.float64]


class Ports(NamedTuple):
    """One direction of each link: from `owner` to `peer`, at `bps`, with `delay_ns`; port 2k+1 is the reverse of 2k."""

    owner: Ints
    peer: Ints
    bps: Ints
    delay_ns: Ints
    error_rate: Floats


class Routes(NamedTuple):
    """The next hops of node n towards a GPU or NVSwitch g: ports `hops[begin[n, g] : begin[n, g] + counts[n, g]]`.

    `longest` is the number of ports of the longest way from one of these to another.
    """

    begin: Ints
    counts: Ints
    hops: Ints
    longest: int


def ports_of(fabric: Fabric, error_rate: float = 0.0) -> Ports:
    """Two ports for every link of the network; `error_rate` is that of links without one, from 0 to 1."""
    ends = [end for first, second, _kind in fabric.links() for end in (first, second)]
    owner = np.array(ends, dtype=np.int64)
    peer = owner.reshape(-1, 2)[:, ::-1].reshape(-1).copy()
    speeds = [int(bandwidth_bps(text.bandwidth)) for text in fabric.texts]
    delays = [round(time_seconds(text.latency) * 1e9) for text in fabric.texts]
    errors = [float(text.error_rate) or error_rate for text in fabric.texts]
    kinds = np.repeat(np.array(fabric.kinds, dtype=np.int64), 2)
    return Ports(
        owner,
        peer,
        np.array(speeds, dtype=np.int64)[kinds],
        np.array(delays, dtype=np.int64)[kinds],
        np.array(errors)[kinds],
    )
