"""Lets ranks work through their steps at flow level: compute, take part in collectives, wait for them, send.

The rules are those of the packet level (rank_steps): a rank waits for collectives that block; those that do not block
queue up, of which one runs at a time and then the latest, in one order for all ranks of a team (see turns).
"""

from collections.abc import Callable
from heapq import heappop, heappush

from simulation.network.flow_level.fluid import FOREVER, TOGETHER_NS
from simulation.network.flow_level.fluid_state import ACTIVE, ENDED, EVENTS, NOW, FluidCode
from simulation.network.flow_level.hops import PROCESSING_NS
from simulation.network.flow_level.quotient import Built
from simulation.network.job import QUEUES, SENDS, GroupCollective, JobPhase
from simulation.network.turns import QueueOfRank

TURN_NS = 1  # that a step takes besides its computation
SLICE = 1 << 16  # events between two looks at Ctrl-C
NOT_YET = -1.0
GO_ON = -1  # planned for a rank, instead of the end of its part of a collective


class _Worker:
    """Where a kind of ranks is in its phases, and whether the computation of the next one is done."""

    def __init__(self, program: list[JobPhase], slowness: float, order: list[int]) -> None:
        self.program, self.slowness = program, slowness
        self.place = 0
        self.computed = self.turning = False
        self.waits_for = -1
        self.queue = QueueOfRank(order)
        self.walked = self.ended = NOT_YET


class Work:
    """Runs the steps of all kinds of ranks; `known` gives the time that a collective takes them where nothing else can
    disturb it (ns), else None.
    """

    def __init__(
        self,
        built: Built,
        flows: FluidCode,
        collectives: list[GroupCollective],
        latency_ns: int,
        known: Callable[[int, int], float | None],
    ) -> None:
        self.built, self.flows, self.collectives, self.known = built, flows, collectives, known
        self.first_gap = float(latency_ns + PROCESSING_NS)
        self.begins: dict[tuple[int, int], float] = {}
        self.ends: dict[tuple[int, int], float] = {}
        self.workers: dict[int, _Worker] = {}
        self._orders: dict[int, list[int]] = {}
        self._parts = {part: where for where, part in built.parts.items()}
        self._planned: list[tuple[float, int, int, int]] = []
        self._order = 0

    def add(self, kind: int, program: list[JobPhase], slowness: float, team: int) -> None:
        """Let a kind of ranks of a team begin its steps at 0 ns; it computes `slowness` times as long as others."""
        self.workers[kind] = _Worker(program, slowness, self._orders.setdefault(team, []))
        self._plan(0.0, kind)

    def _plan(self, time: float, kind: int, part: int = GO_ON) -> None:
        heappush(self._planned, (time, self._order, kind, part))
        self._order += 1

    def run(self, tell: Callable[[], None]) -> bool:
        """Go on until all is done; returns whether every rank came to its end. `tell` is called now and then."""
        state = self.built.state
        clock, counts = state.clock, state.counts
        while self._planned or counts[ACTIVE] or counts[EVENTS]:
            while self._planned and self._planned[0][0] <= clock[NOW] + TOGETHER_NS:
                time, _order, kind, number = heappop(self._planned)
                if number == GO_ON:
                    self._advance(kind, max(time, clock[NOW] - TOGETHER_NS))
                else:
                    self._part_ended(number, kind, time)
            until = self._planned[0][0] if self._planned else FOREVER
            if counts[ACTIVE] or counts[EVENTS]:
                self.flows.run(state, until, SLICE)
            elif self._planned:
                clock[NOW] = max(clock[NOW], until)
            ended = [int(state.ended[place]) for place in range(counts[ENDED])]
            counts[ENDED] = 0
            for part in ended:
                number, kind = self._parts[part]
                if state.part_until[part] > clock[NOW] + TOGETHER_NS:
                    self._plan(state.part_until[part], kind, number)
                else:
                    self._part_ended(number, kind, float(clock[NOW]))
            tell()
        return all(worker.ended >= 0 for worker in self.workers.values())

    def delay(self, time: float) -> None:
        """Let every part of a collective and every rank end later (ns)."""
        self.ends = {where: end + time for where, end in self.ends.items()}
        for worker in self.workers.values():
            worker.walked, worker.ended = worker.walked + time, worker.ended + time

    def _part_ended(self, number: int, kind: int, now: float) -> None:
        self.ends[number, kind] = now
        worker = self.workers.get(kind)
        if worker is None:
            return
        if worker.queue.running == number:
            worker.queue.running = None
            self._run_queue(kind, worker, now)
        if worker.waits_for == number:
            worker.waits_for = -1
            self._plan(now + self.collectives[number].end_gap_ns, kind)

    def issue(self, number: int, kind: int, now: float) -> bool:
        """A rank begins its part of a collective at `now` (ns); returns whether it has nothing to wait for."""
        where = number, kind
        self.begins[where] = now
        if where in self.built.issued:
            gap = self.first_gap + now - float(self.built.state.clock[NOW])
            self.flows.issue(self.built.state, self.built.issued[where], gap)
        if where not in self.built.parts:
            self.ends[where] = now
        return where in self.ends

    def _run_queue(self, kind: int, worker: _Worker, now: float) -> None:
        queue = worker.queue
        while queue.take() and queue.running is not None and self.issue(queue.running, kind, now):
            queue.running = None

    def _advance(self, kind: int, now: float) -> None:
        """Carry out the steps of a kind of ranks up to the next one that has to wait for flows."""
        worker = self.workers[kind]
        if worker.turning:
            now, worker.turning = now + TURN_NS, False
        known, collectives, slowness, computed = self.known, self.collectives, worker.slowness, worker.computed
        for place in range(worker.place, len(worker.program)):
            phase = worker.program[place]
            if not computed:
                now += phase.compute_ns * slowness
            computed, number = False, phase.collective
            took = None if number is None else known(number, kind)
            if number is None:
                pass
            elif took is not None:
                self.begins[number, kind], self.ends[number, kind] = now, now + took
                now += took + collectives[number].end_gap_ns
            elif now > self.built.state.clock[NOW] + TOGETHER_NS:
                worker.place, worker.computed = place, True
                self._plan(now, kind)  # flows begin then: until then others may
                return
            elif phase.mode == QUEUES:
                worker.queue.waiting.append(number)
                if worker.queue.running is None:
                    self._run_queue(kind, worker, now)
            elif not self.issue(number, kind, now) and phase.mode != SENDS:
                worker.place, worker.computed = place + 1, False
                worker.waits_for = number
                worker.turning = True
                return
            now += TURN_NS
        worker.place, worker.computed = len(worker.program), False
        self._finish(kind, worker, now)

    def _finish(self, kind: int, worker: _Worker, now: float) -> None:
        if worker.walked < 0:
            worker.walked = now
        if worker.queue.running is not None:
            worker.waits_for = worker.queue.running
        else:
            worker.ended = now
