"""Finds the critical path of a run: from the last end back, what each flow waited for, and which link held it up."""

from typing import NamedTuple

import numpy as np

from simulation.network.job import WAITS, Job
from simulation.network.outcome import NetworkRun
from simulation.network.routing import Ints


class PathStep(NamedTuple):
    """A flow on the critical path (ns). Before it its rank waited `idle_ns` for nothing but its own steps.

    `port` is the most loaded port on its way, `busy` the share of the flow's time in which that one had to send,
    `shared` the number of other flows that it carried in that time.
    """

    flow: int
    begin: int
    end: int
    idle_ns: int
    port: int
    busy: float
    shared: int


def critical_path(job: Job, run: NetworkRun, bps: Ints, most: int) -> tuple[int, list[PathStep]]:
    """How many steps there are, and the last ones, `most` at most; `bps` are the ports' bits per second."""
    done = np.flatnonzero(run.end >= 0)
    if not len(done):
        return 0, []
    before, last = _before(job), _last_of_parts(run, job.ranks)
    flow = int(done[np.argmax(run.end[done])])
    chain: list[tuple[int, int]] = []
    while flow >= 0:
        cause = _cause(run, flow, before, last, job)
        begun = int(run.start[flow])
        chain.append((flow, begun - (int(run.end[cause]) if cause >= 0 else 0)))
        flow = cause
    loads = _Loads(run, bps)
    return len(chain), [
        PathStep(flow, int(run.start[flow]), int(run.end[flow]), idle, *loads.worst(flow))
        for flow, idle in reversed(chain[:most])
    ]


def _before(job: Job) -> dict[tuple[int, int], list[int]]:
    """By program and collective: the collectives that a rank waited for before, the latest first."""
    found: dict[tuple[int, int], list[int]] = {}
    for number, program in enumerate(job.programs):
        waited: list[int] = []
        for phase in program:
            if phase.collective is None:
                continue
            found[number, phase.collective] = waited[-1:]
            if phase.mode == WAITS:
                waited.append(phase.collective)
    return found


def _last_of_parts(run: NetworkRun, ranks: int) -> dict[int, int]:
    """By collective and rank, as one number: the flow of the rank's part that ended last, the first of several."""
    flows = np.tile(np.arange(len(run.end)), 2)
    nodes, ends = np.concatenate([run.source, run.target]), np.tile(run.end, 2)
    there = (nodes < ranks) & (ends >= 0)
    flows, keys, ends = flows[there], (np.tile(run.collective, 2) * ranks + nodes)[there], ends[there]
    order = np.lexsort((-flows, ends, keys))
    return dict(zip(keys[order].tolist(), flows[order].tolist(), strict=True))


def _cause(run: NetworkRun, flow: int, before: dict[tuple[int, int], list[int]], last: dict[int, int], job: Job) -> int:
    """The flow that ended last of those that a flow waited for, directly or by the steps of its rank; -1 without."""
    begun = int(run.start[flow])
    parents = run.parents[run.parent_begin[flow] : run.parent_begin[flow + 1]]
    found = [int(parents[np.argmax(run.end[parents])])] if len(parents) else []
    source, number = int(run.source[flow]), int(run.collective[flow])
    if source < job.ranks:
        formers = before.get((job.program_of[source], number), [])
        found += [last[key] for former in formers if (key := former * job.ranks + source) in last]
    found = [each for each in found if 0 <= run.end[each] <= begun]
    return max(found, key=lambda each: int(run.end[each]), default=-1)


class _Loads:
    """Which flows use which ports, by port."""

    def __init__(self, run: NetworkRun, bps: Ints) -> None:
        self._run, self._bps = run, bps
        flows, hops = np.nonzero(run.path >= 0)
        ports = run.path[flows, hops]
        order = np.argsort(ports, kind="stable")
        self._flows = flows[order]
        self._begin = np.searchsorted(ports[order], np.arange(len(bps) + 1))

    def worst(self, flow: int) -> tuple[int, float, int]:
        """Port, busy share and number of other flows of the most loaded port on a flow's way."""
        run = self._run
        begin, end = int(run.start[flow]), int(run.end[flow])
        took = max(end - begin, 1)
        worst = (-1, 0.0, 0)
        for port in (int(each) for each in run.path[flow] if each >= 0):
            users = self._flows[self._begin[port] : self._begin[port + 1]]
            ends = np.where(run.end[users] < 0, end, run.end[users])
            shared = np.minimum(ends, end) - np.maximum(run.start[users], begin)
            there = (shared > 0) & (run.start[users] >= 0)
            rates = run.size[users][there] * 8e9 / np.maximum(ends - run.start[users], 1)[there]
            busy = float((rates * shared[there]).sum() / self._bps[port] / took)
            if busy > worst[1]:
                worst = (port, min(busy, 1.0), int(there.sum()) - 1)
        return worst
