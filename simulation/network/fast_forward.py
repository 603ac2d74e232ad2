"""Runs a job collective by collective: ranks work through their steps, each group's part takes its profile's time.

Parts of collectives that share links at the same time are simulated together. Port numbers, and so the choice among
equal paths, begin anew for each part.
"""

import heapq
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from common.progress import StepProgress
from simulation.flows.names import SEND_RECEIVE
from simulation.network.even_use import even_use, wire_bytes
from simulation.network.job import QUEUES, WAITS, Job, numbers_in_parts
from simulation.network.looks import Looks
from simulation.network.outcome import NOT_YET, Counted, NetworkRun
from simulation.network.packet_state import HEADER_BYTES
from simulation.network.packets import Network, ensure_compiled
from simulation.network.profiles import Instance, Profile, Profiles, Sketch
from simulation.network.request import Wishes
from simulation.network.routing import Ints, Places, Ports
from simulation.network.turns import QueueOfRank, teams_of

MOST_FLOWS = 1 << 20  # of a run that keeps them
NEGLIGIBLE = 0.005  # of a part's time, for which the next one may overlap it as if alone
MOST_AGAIN, FEW_EVENTS = 3, 1 << 20  # times the events of all packets that are spent at most, and some besides
COMES, RESUMES, ENDS = range(3)  # kinds of events
TURN_NS = 1


class OverlapsError(Exception):
    """Parts overlap so much that it takes less to simulate all packets once."""


class Cluster:
    """Instances that were simulated together, when their flows end, instance after instance, and the last (ns), and
    their counts.
    """

    def __init__(self, instances: list[Instance], sketches: list[Sketch]) -> None:
        self.instances, self.sketches, self.end = instances, sketches, 0
        self.ends: list[Ints] = []
        self.counted = Counted()
        self.more: Ints | int = 0

    def delays(self, mask: int, since: int, ports: Ports) -> bool:
        """Whether flows that had not ended `since` then (ns) take one of these ports for long.

        That is how much both they and who comes to the ports may be delayed where they share them evenly.
        """
        if self.end <= since:
            return False
        running = [each for each, ends in zip(self.instances, self.ends, strict=True) if (ends > since).any()]
        least = NEGLIGIBLE * (self.end - min(when for each in running for when in each.arrivals.values()))
        if self.end - since <= least:
            return False
        taken = np.zeros(len(ports.bps))
        for sketch, ends in zip(self.sketches, self.ends, strict=True):
            if sketch.mask & mask and (live := ends > since).any():
                on_way = np.concatenate([sketch.path[live], sketch.back[live]], axis=1)
                bits = np.broadcast_to(8e9 * (sketch.size[live, None] + HEADER_BYTES), on_way.shape)
                taken += np.bincount(on_way[on_way >= 0], bits[on_way >= 0], len(taken))
        return any(mask >> port & 1 for port in np.flatnonzero(taken > least * ports.bps).tolist())


class _Flows(NamedTuple):
    """Where the flows of each instance stand among all, and their times."""

    begin: dict[tuple[int, int], int]
    start: np.ndarray[tuple[int], np.dtype[np.int64]]
    end: np.ndarray[tuple[int], np.dtype[np.int64]]


class FastForward:
    """One run of a job."""

    def __init__(self, network: Network, job: Job, wishes: Wishes) -> None:
        ensure_compiled()
        self.network, self.job, self.wishes = network, job, wishes
        self.profiles = Profiles(network, job.collectives, wishes, numbers_in_parts(job))
        shape = (max(len(job.collectives), 1), job.ranks)
        self.begin, self.end = np.full(shape, NOT_YET, np.int64), np.full(shape, NOT_YET, np.int64)
        self.walked, self.finished = (np.full(job.ranks, NOT_YET, np.int64) for _each in range(2))
        self._place = [0] * job.ranks
        orders = [list[int]() for _rank in range(job.ranks)]
        self._queues = [QueueOfRank(orders[team]) for team in teams_of(job)]
        self._waits: list[int | None] = [None] * job.ranks
        self._events: list[tuple[int, int, int, int, int]] = []
        self._planned = self._now = 0
        self._came: dict[tuple[int, int], dict[int, int]] = {}
        self._groups: dict[int, dict[int, int]] = {}
        self._clusters: list[Cluster] = []
        self._flows = self._all_flows()
        self._moved: dict[int, dict[int, int]] = {}
        self._counted = Counted()  # of clusters that are over, as `_more`, the bytes of ports besides
        self._more: Ints | int = 0
        self._all_events = self._events_of_all()

    def run(self, finished: Callable[[NetworkRun], None] | None = None) -> NetworkRun:
        """Work through all steps of all ranks; `finished` sees now and then, and at Ctrl-C, what has ended for good.

        How busy the ports were is left out; see `with_use`.

        Raises:
            OverlapsError: simulating all packets takes less.
        """
        began = time.perf_counter()
        for rank in range(self.job.ranks):
            self._advance(rank, 0)
        look = (lambda: finished(self._up_to(self._now))) if finished else (lambda: None)
        with StepProgress("ranks that ended", self.job.ranks) as progress, Looks(look) as looks:
            done = 0
            while self._events:
                self._now, _order, kind, rank, number = heapq.heappop(self._events)
                if kind == COMES:
                    self._come(rank, self._now)
                elif kind == RESUMES:
                    self._resume(rank, number, self._now)
                else:
                    self._end_queued(rank, number, self._now)
                looks.now_and_then()
                if not self._planned % 4096:
                    ended = int((self.finished >= 0).sum())
                    progress.advance(ended - done)
                    done = ended
        return self._found(time.perf_counter() - began)

    def _up_to(self, now: int) -> NetworkRun:
        """The run as far as no part that is still to come changes it."""
        run = self._found(0.0)
        ends = (_until(each, now) for each in (run.end, run.part_end, run.walked, run.finished))
        end, part_end, walked, finished = ends
        return run._replace(end=end, part_end=part_end, walked=walked, finished=finished)

    def _plan(self, when: int, kind: int, rank: int, number: int = 0) -> None:
        self._planned += 1
        heapq.heappush(self._events, (when, self._planned, kind, rank, number))

    def _advance(self, rank: int, now: int) -> None:
        """From `now` on a rank computes up to its next collective, or is through."""
        phases, factor = self.job.phases(rank), self.wishes.slowness.get(rank, 1.0)
        while self._place[rank] < len(phases):
            phase = phases[self._place[rank]]
            now += int(phase.compute_ns * factor)
            if phase.collective is not None:
                self._plan(now, COMES, rank)
                return
            now += TURN_NS
            self._place[rank] += 1
        self.walked[rank] = now
        if self._queues[rank].running is None:
            self.finished[rank] = now

    def _come(self, rank: int, now: int) -> None:
        """A rank comes to a collective."""
        phase = self.job.phases(rank)[self._place[rank]]
        number = phase.collective
        if number is None:
            raise AssertionError(f"rank {rank} has no collective to come to")
        self._place[rank] += 1
        if self.begin[number, rank] < 0:
            self.begin[number, rank] = now
        if phase.mode == QUEUES:
            self._queues[rank].waiting.append(number)
            if self._queues[rank].running is None:
                self._run_queue(rank, now)
        else:
            self._issue(rank, number, now)
            end = int(self.end[number, rank])
            if phase.mode == WAITS and not 0 <= end <= now:
                self._waits[rank] = number
                if end > now:
                    self._plan(end, RESUMES, rank, number)
                return
        self._advance(rank, now + TURN_NS)

    def _resume(self, rank: int, number: int, now: int) -> None:
        """Resumes a rank whose wait has ended, unless it ends later than it was planned to."""
        if self._waits[rank] == number and self.end[number, rank] == now:
            self._waits[rank] = None
            self._advance(rank, now + self.job.collectives[number].end_gap_ns + TURN_NS)

    def _end_queued(self, rank: int, number: int, now: int) -> None:
        """The running collective of a rank's queue has ended: the next one takes its place."""
        queue = self._queues[rank]
        if queue.running != number or self.end[number, rank] > now:
            return
        queue.running = None
        self._run_queue(rank, now)
        if queue.running is None and self.walked[rank] >= 0 and self.finished[rank] < 0:
            self.finished[rank] = max(now + self.job.collectives[number].end_gap_ns, int(self.walked[rank]))

    def _run_queue(self, rank: int, now: int) -> None:
        """Issue the next of a queue of which none runs, and those after it while they have nothing to send."""
        queue = self._queues[rank]
        while queue.take() and queue.running is not None and self._issue(rank, queue.running, now):
            queue.running = None
        if queue.running is not None and self.end[queue.running, rank] >= 0:
            self._plan(max(int(self.end[queue.running, rank]), now), ENDS, rank, queue.running)

    def _issue(self, rank: int, number: int, now: int) -> bool:
        """A rank begins its part; returns whether it has none."""
        group = self._group_of(number).get(rank)
        if group is None:
            self.end[number, rank] = now
            return True
        sketch = self.profiles.sketch(number, self.job.collectives[number].schedules[group])
        came = self._came.setdefault((number, group), {})
        if rank in sketch.senders:
            came[rank] = now
        if len(came) == len(sketch.senders) and self.end[number, rank] < 0:
            self._launch(Instance(number, sketch.schedule, came), sketch, now)
        return False

    def _group_of(self, number: int) -> dict[int, int]:
        """The place of each rank's schedule among those of a collective."""
        schedules = self.job.collectives[number].schedules
        key = id(schedules)
        if key not in self._groups:
            self._groups[key] = {
                rank: place
                for place, schedule in enumerate(schedules)
                for rank in self.profiles.sketch(number, schedule).members
            }
        return self._groups[key]

    def _launch(self, instance: Instance, sketch: Sketch, now: int) -> None:
        """All ranks of a part are there: it runs, with those beside it that share links."""
        first = min(instance.arrivals.values())
        over = [each for each in self._clusters if each.end <= now]
        self._counted = Counted.sum([self._counted, *(each.counted for each in over)])
        self._more = sum((each.more for each in over), self._more)
        self._clusters = [each for each in self._clusters if each.end > now]
        cluster, others = Cluster([instance], [sketch]), []
        for each in self._clusters:
            if each.delays(sketch.mask, first, self.network.ports):
                cluster = Cluster(each.instances + cluster.instances, each.sketches + cluster.sketches)
            else:
                others.append(each)
        self._clusters = [*others, cluster]
        found = self.profiles.of(cluster.instances)
        if self.profiles.events > MOST_AGAIN * self._all_events + FEW_EVENTS and self._flows.begin:
            raise OverlapsError
        cluster.counted, cluster.more = found.counted, found.more
        self._take(cluster, found, now)

    def _take(self, cluster: Cluster, found: Profile, now: int) -> None:
        """The ends of a cluster's parts and flows hold, but for those that are over; none ends before now."""
        place, cluster.end = 0, int(found.end.max(initial=0))
        for instance, sketch, ends in zip(cluster.instances, cluster.sketches, found.ends, strict=True):
            number = instance.collective
            for rank, end in zip(sketch.members, ends, strict=True):
                if 0 <= self.end[number, rank] <= now:
                    continue
                if self.end[number, rank] >= 0:
                    end = max(end, now)
                self.end[number, rank] = end
                if self._waits[rank] == number:
                    self._plan(end, RESUMES, rank, number)
                elif self._queues[rank].running == number:
                    self._plan(end, ENDS, rank, number)
            count = len(sketch.size)
            cluster.ends.append(found.end[place : place + count])
            begin = self._flows.begin.get((number, id(instance.schedule)))
            if begin is None and self.job.collectives[number].op == SEND_RECEIVE:
                took = int(found.end[place] - found.start[place])
                self._moved.setdefault(int(sketch.target[0]), {})[number] = took
            elif begin is not None:
                starts, its_ends = (each[begin : begin + count] for each in (self._flows.start, self._flows.end))
                open_ = ~((its_ends >= 0) & (its_ends <= now))
                later = np.where(its_ends >= 0, now, NOT_YET)
                starts[open_] = found.start[place : place + count][open_]
                its_ends[open_] = np.maximum(found.end[place : place + count], later)[open_]
            place += count

    def _events_of_all(self) -> int:
        """The events of all packets: each and its ACK are sent over every port on their way, and arrive."""
        known: dict[int, int] = {}
        for number, collective in enumerate(self.job.collectives):
            if id(collective.schedules) not in known:
                sketches = [self.profiles.sketch(number, schedule) for schedule in collective.schedules]
                known[id(collective.schedules)] = sum(map(self._events_of, sketches))
        return sum(known[id(collective.schedules)] for collective in self.job.collectives)

    def _events_of(self, sketch: Sketch) -> int:
        hops = (sketch.path >= 0).sum(axis=1) + (sketch.back >= 0).sum(axis=1)
        return int((2 * hops * -(-sketch.size // self.network.conf.payload_bytes)).sum())

    @property
    def _flow_count(self) -> int:
        return sum(schedule.flow_count for each in self.job.collectives for schedule in each.schedules)

    def _all_flows(self) -> _Flows:
        """Room for the flows of all collectives, none if they are too many."""
        count = self._flow_count
        begin: dict[tuple[int, int], int] = {}
        if count <= MOST_FLOWS:
            place = 0
            for number, collective in enumerate(self.job.collectives):
                for schedule in collective.schedules:
                    begin[number, id(schedule)] = place
                    place += schedule.flow_count
        else:
            count = 0
        return _Flows(begin, np.full(count, NOT_YET, np.int64), np.full(count, NOT_YET, np.int64))

    @cached_property
    def _columns(self) -> tuple[Ints, Ints, Ints, Ints, Ints, Places, Places, Ints, Ints]:
        """The columns that no event changes: source, target, port, size, collective, ways there and back, parents."""
        sketches = [
            (number, self.profiles.sketch(number, schedule))
            for number, collective in enumerate(self.job.collectives)
            for schedule in collective.schedules
            if self._flows.begin
        ]
        none = np.zeros(0, np.int64)
        source, target, sport, size = (
            np.concatenate([none, *(getattr(sketch, name) for _number, sketch in sketches)])
            for name in ("source", "target", "sport", "size")
        )
        numbers: Sequence[np.ndarray[tuple[int], np.dtype[np.int64]]] = [
            np.full(len(sketch.size), number, np.int64) for number, sketch in sketches
        ]
        columns = self.network.routes.longest + 1
        path, back = (
            np.concatenate([np.zeros((0, columns), np.int32), *(getattr(sketch, name) for _number, sketch in sketches)])
            for name in ("path", "back")
        )
        parents = _joined([sketch for _number, sketch in sketches])
        return source, target, sport, size, np.concatenate([none, *numbers]), path, back, *parents

    def with_use(self, run: NetworkRun) -> NetworkRun:
        """The run with how busy the ports were, if flows were kept; see `even_use`."""
        size, path, back = self._columns[3], *self._columns[5:7]
        ways = wire_bytes(path, back, size, self.network.conf.payload_bytes)
        more = sum((each.more for each in self._clusters), self._more)
        usage, bin_ns = even_use(ways, run.start, run.end, len(self.network.ports.bps), more)
        return run._replace(usage=usage, bin_ns=bin_ns)

    def _found(self, seconds: float) -> NetworkRun:
        counted = Counted.sum([self._counted, *(each.counted for each in self._clusters)])
        return NetworkRun(
            *self._columns[:5], self._flows.start, self._flows.end, self._columns[5], *self._columns[7:],
            self.begin, self.end, self.walked, self.finished,
            np.zeros((len(self.network.ports.bps), 1), np.int64), 1,
            **counted._asdict(), events=self.profiles.events, seconds=seconds,
            not_kept=0 if self._flows.begin else self._flow_count, moved=self._moved,
        )  # fmt: skip


def _joined(sketches: Sequence[Sketch]) -> tuple[Ints, Ints]:
    """The parents of the flows of all sketches, one after another; see `parents_of`."""
    begins, parents, flows, known = [np.zeros(1, np.int64)], [np.zeros(0, np.int64)], 0, 0
    for sketch in sketches:
        edges, its = sketch.parents
        begins.append(edges[1:] + known)
        parents.append(its + flows)
        flows, known = flows + len(sketch.size), known + len(its)
    return np.concatenate(begins), np.concatenate(parents)


def _until(ends: Ints, now: int) -> Ints:
    """The ends, of those that are later NOT_YET."""
    found: Ints = np.where(ends <= now, ends, NOT_YET)
    return found
