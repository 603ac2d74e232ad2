"""Holds the ports and the next hops of a network as arrays, for packets."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from common.units import bandwidth_bps, time_seconds
from simulation.network.flow_level.port_routes import Link, round_trip
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
    """The next hops of node n towards a GPU or NVSwitch g: ports `hops[begin[n, g] : begin[n, g] + counts[n, g]]`."""

    begin: Ints
    counts: Ints
    hops: Ints


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


def first_links(ports: Ports, routes: Routes, source: int, target: int) -> tuple[Link, ...]:
    """The links between two nodes on the first of the shortest ways."""
    node, links = source, list[Link]()
    while node != target:
        port = int(routes.hops[routes.begin[node, target]])
        links.append(Link(int(ports.bps[port]), int(ports.delay_ns[port])))
        node = int(ports.peer[port])
    return tuple(links)


def window_bytes(ports: Ports, routes: Routes, gpus: int, payload: int) -> tuple[int, int]:
    """The window of every flow (bytes) and the longest round trip (ns): the largest over all pairs of GPUs.

    window = rtt * slowest link, rounded down to bytes.
    """
    largest = longest = 0
    for source in range(gpus):
        for target in range(gpus):
            if source != target and routes.counts[source, target]:
                rtt, slowest = round_trip(first_links(ports, routes, source, target), payload)
                longest = max(longest, rtt)
                largest = max(largest, rtt * slowest // 8_000_000_000)
    return largest, longest
