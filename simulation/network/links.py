"""Says how busy the links of a network were over the time of a run, and writes it as a table."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from simulation.network.outcome import NetworkRun
from simulation.network.routing import Floats, Ints, ports_of
from simulation.topology.fabric import Fabric, port_names


class BusyLink(NamedTuple):
    """One direction of a link: its name, speed (Gbit/s), bytes, and the share of each bin of the time that it sent."""

    port: int
    name: str
    gbps: float
    sent_bytes: int
    shares: list[float]


def busiest(fabric: Fabric, run: NetworkRun, most: int) -> list[BusyLink]:
    """The links that sent for the longest time, those first; links without traffic are left out."""
    bps = ports_of(fabric).bps
    sent = run.usage.sum(axis=1)
    order = np.argsort(-(sent / bps), kind="stable")[:most]
    chosen = [port for port in order.tolist() if sent[port]]
    shares = _shares(run, bps)
    named = port_names(fabric) if chosen else []
    return [BusyLink(port, named[port], bps[port] / 1e9, int(sent[port]), shares[port].tolist()) for port in chosen]


def _shares(run: NetworkRun, bps: Ints) -> Floats:
    """By port and bin; bins after the last end are left out.

    A packet was counted in the bin in which it begins: what does not fit into that one is in the next.
    """
    bins = min(run.usage.shape[1], max(1, -(-int(max(run.end.max(initial=0), run.finished.max())) // run.bin_ns)))
    wanted = run.usage[:, :bins] * 8e9 / bps[:, None] / run.bin_ns
    left = np.zeros(len(wanted))
    for place in range(bins):
        left += wanted[:, place]
        wanted[:, place] = np.minimum(left, 1.0)
        left -= wanted[:, place]
    return wanted


def table(fabric: Fabric, run: NetworkRun) -> Iterator[str]:
    """CSV: each direction of a link that sent something, its Gbit/s, bytes, and its share of each bin, in percent."""
    links = busiest(fabric, run, len(run.usage))
    bins = len(links[0].shares) if links else 0
    yield ",".join(["link", "Gbps", "bytes", *(f"{place * run.bin_ns / 1000:g} us" for place in range(bins))]) + "\n"
    for link in links:
        cells = (f"{100 * share:.1f}" for share in link.shares)
        yield f"{link.name},{link.gbps:g},{link.sent_bytes},{','.join(cells)}\n"
