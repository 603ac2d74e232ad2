"""Holds what page, trace and links.csv show of a run, at whichever level."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from simulation.network.critical import PathStep
from simulation.network.tables import RanksRun


class BusyLink(NamedTuple):
    """One direction of a link: its name, speed (Gbit/s), bytes on the wire (headers and ACKs included), and the share
    of each bin of the time that it sent them.
    """

    name: str
    gbps: float
    sent_bytes: int
    shares: list[float]


class LinkUse(NamedTuple):
    """The links that sent something, the busiest first; their bins are `bin_ns` long, from `begin_ns` on.

    `port_names` are the names of all ports of the network.
    """

    links: Sequence[BusyLink] = ()
    begin_ns: float = 0.0
    bin_ns: float = 1.0
    port_names: Sequence[str] = ()

    def table(self) -> Iterator[str]:
        """CSV: each link, its Gbit/s, its bytes on the wire, and the share of each bin that they take, in percent."""
        bins = len(self.links[0].shares) if self.links else 0
        begins = (f"{(self.begin_ns + place * self.bin_ns) / 1000:.3f} us" for place in range(bins))
        yield ",".join(["link", "Gbps", "bytes", *begins]) + "\n"
        for link in self.links:
            cells = ",".join([f"{100 * share:.1f}" for share in link.shares])
            yield f"{link.name},{link.gbps:g},{link.sent_bytes},{cells}\n"


def fitted(wanted: Iterable[float]) -> list[float]:
    """The shares of bins that a link can have sent: what does not fit into one is in the next, in the end before.

    wanted, and what is returned: by bin, as the fraction of its time.
    """
    shares, left = [*wanted], 0.0
    if max(shares, default=0.0) <= 1.0:
        return shares
    for place in (*range(len(shares)), *reversed(range(len(shares)))):
        left += shares[place]
        shares[place] = min(left, 1.0)
        left -= shares[place]
    return shares


class Transfer(NamedTuple):
    """A flow between stages of a pipeline: when its ends came to it, `received` that which waits, and its end (ns)."""

    source: int
    target: int
    begin: int
    received: int
    end: int


class RunView(NamedTuple):
    """A run up to `end` (ns). Of flows that are not kept it has no `links`, no `durations` and no path.

    `durations` are those of the flows (ns), sorted; `path` the last of `path_flows` on the critical path; `transfers`
    those that ended.
    """

    run: RanksRun
    end: int
    transfers: Callable[[], Iterable[Transfer]]
    links: LinkUse = LinkUse()
    durations: Sequence[float] = ()
    path: Sequence[PathStep] = ()
    path_flows: int = 0
