"""Makes what page, trace and links.csv show of a run at packet level."""

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property

import numpy as np

from simulation.network.critical import FlowFacts, PortUsers, critical_path
from simulation.network.outcome import NetworkRun
from simulation.network.request import NetworkRequest
from simulation.network.routing import Floats, Ints, ports_of
from simulation.network.view import BusyLink, LinkUse, RunView, Transfer, fitted
from simulation.topology.fabric import Fabric, port_names


def view_of(request: NetworkRequest, run: NetworkRun) -> RunView:
    """The view of a run."""
    bps, done = ports_of(request.fabric).bps, run.end >= 0
    count, path = critical_path(request.job, PacketFlows(run, bps))
    end = int(max(run.finished.max(), run.end.max(initial=0), 1))
    took = np.sort((run.end - run.start)[done]).tolist()
    return RunView(run, end, lambda: _transfers(request, run), link_use(request.fabric, run, bps), took, path, count)


def link_use(fabric: Fabric, run: NetworkRun, bps: Ints) -> LinkUse:
    """The links that sent for the longest time, those first; links without traffic are left out."""
    sent = run.usage.sum(axis=1)
    order = np.argsort(-(sent / bps), kind="stable")
    chosen = [port for port in order.tolist() if sent[port]]
    wanted = _wanted(run, bps)
    named = port_names(fabric)
    links = [BusyLink(named[port], bps[port] / 1e9, int(sent[port]), fitted(wanted[port].tolist())) for port in chosen]
    return LinkUse(links, 0.0, run.bin_ns, named)


def _wanted(run: NetworkRun, bps: Ints) -> Floats:
    """The shares by port and bin, of packets in the bin in which they begin; bins after the last end are left out."""
    bins = min(run.usage.shape[1], max(1, -(-int(max(run.end.max(initial=0), run.finished.max())) // run.bin_ns)))
    shares: Floats = run.usage[:, :bins] * 8e9 / bps[:, None] / run.bin_ns
    return shares


def _transfers(request: NetworkRequest, run: NetworkRun) -> Iterator[Transfer]:
    between = [number for number, each in enumerate(request.job.collectives) if each.kind == "PP"]
    chosen = np.isin(run.collective, between) & (run.end >= 0)
    number, source, target, end = (each[chosen] for each in (run.collective, run.source, run.target, run.end))
    columns = source, target, run.part_begin[number, source], run.part_begin[number, target], end
    return map(Transfer._make, zip(*(each.tolist() for each in columns), strict=True))


class PacketFlows:
    """The flows of a run, by their numbers; see FlowGraph. `bps` are the ports' bits per second."""

    def __init__(self, run: NetworkRun, bps: Ints) -> None:
        self._run, self._bps = run, bps

    def last(self) -> int | None:
        """The flow that ended last."""
        end = self._run.end
        return int(end.argmax()) if end.max(initial=-1) >= 0 else None

    @cached_property
    def _last_of_parts(self) -> dict[int, int]:
        """By collective and rank, as one number: the flow of the rank's part that ended last, the first of several."""
        run, ranks = self._run, len(self._run.finished)
        flows = np.tile(np.arange(len(run.end)), 2)
        nodes, ends = np.concatenate([run.source, run.target]), np.tile(run.end, 2)
        there = (nodes < ranks) & (ends >= 0)
        flows, keys, ends = flows[there], (np.tile(run.collective, 2) * ranks + nodes)[there], ends[there]
        order = np.lexsort((-flows, ends, keys))
        return dict(zip(keys[order].tolist(), flows[order].tolist(), strict=True))

    def last_of(self, collective: int, rank: int) -> int | None:
        """The flow of a rank's part of a collective that ended last."""
        return self._last_of_parts.get(collective * len(self._run.finished) + rank)

    def parents(self, flow: int) -> list[int]:
        """The flows of the same collective that it waited for."""
        run = self._run
        found: list[int] = run.parents[run.parent_begin[flow] : run.parent_begin[flow + 1]].tolist()
        return found

    def facts(self, flow: int) -> FlowFacts:
        """The ends of a flow and its time (ns)."""
        run = self._run
        return FlowFacts(*(int(each[flow]) for each in (run.source, run.target, run.collective, run.start, run.end)))

    def ports(self, flow: int) -> Sequence[int]:
        """The ports on its way that may hold it up."""
        return [port for port in self._run.path[flow].tolist() if port >= 0]

    def users(self, ports: Collection[int]) -> dict[int, PortUsers]:
        """The flows of each of these ports."""
        run, wanted = self._run, sorted(ports)
        latest = run.end.max(initial=0)
        flows, hops = np.nonzero(np.isin(run.path, wanted) & (run.start >= 0)[:, None])
        crossed = run.path[flows, hops]
        order = np.argsort(crossed, kind="stable")
        edges = np.searchsorted(crossed[order], wanted)
        found = {}
        for port, its in zip(wanted, np.split(flows[order], edges[1:]), strict=False):
            ends = np.where(run.end[its] < 0, latest, run.end[its])
            busy = run.size[its] * 8e9 / self._bps[port]
            found[port] = PortUsers(run.start[its].tolist(), ends.tolist(), busy.tolist(), [1] * len(its))
        return found
