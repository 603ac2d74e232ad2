"""Turns a job into what the ranks of the packet level do: steps, and flows that wait for one another."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from simulation.flows.names import ALL_REDUCE, REDUCE_SCATTER
from simulation.flows.train import NVLS, NVLS_TREE, RING, Flow, FlowSchedule
from simulation.network.flow_level.hops import CHUNKS_AT_ONCE, PROCESSING_NS, REDUCING_NS, WINDOWED
from simulation.network.job import QUEUES, SENDS, WAITS, GroupCollective, Job
from simulation.network.packet_state import (
    BLOCK,
    COMPUTE,
    END,
    FLOW,
    MAY_ADD,
    NONE,
    PART,
    QUEUE,
    RANK,
    SEND,
    SENDS_ON,
    STEP,
    TURNS,
    RankWork,
    Records,
)
from simulation.network.routing import Ints
from simulation.network.turns import teams_of

TURN_NS = 1  # that a step takes besides its computation
ODD_RING = 8
_STEPS = {WAITS: BLOCK, QUEUES: QUEUE, SENDS: SEND}


class _Flow(NamedTuple):
    """A flow's record, but for `after`, `heir`, `child_begin` and `child_end`."""

    source: int
    target: int
    size: int
    before: int
    gap: int
    release_gap: int
    turn: int
    pair: int
    collective: int
    waiting: int


class _Turns:
    """Says of each flow of a collective when it carries sums; see `adding` of rank_steps.

    A round has as many flows as the ring has ranks; that of 8 ranks has 9 (as recorded, of which no rule is known).
    """

    def __init__(self, ranks: int, *, added: bool) -> None:
        self._round, self._added = ranks + (ranks == ODD_RING), added
        self._sent: dict[tuple[int, int], int] = {}

    def next(self, flow: Flow) -> int:
        """Of the next flow of its rank on its channel."""
        if not self._added:
            return SENDS_ON
        place = self._sent.get((flow.channel, flow.source), 0)
        self._sent[flow.channel, flow.source] = place + 1
        return MAY_ADD if place % self._round else TURNS


class _Flows:
    """Collects the flows of collectives, with what waits for what."""

    def __init__(self, latency_ns: int, ranks: int, *, apart: bool) -> None:
        self.latency_ns, self.ranks, self.apart = latency_ns, ranks, apart
        self.rows: list[_Flow] = []
        self.children: list[list[int]] = []
        self.before: dict[tuple[int, int, int, int], int] = {}
        self.after: dict[int, int] = {}
        self.heirs: dict[int, int] = {}
        self.pairs: dict[tuple[int, int, int], int] = {}
        self.issued: dict[tuple[int, int], list[int]] = {}
        self.touching: dict[tuple[int, int], int] = {}

    def add(self, number: int, op: str, schedule: FlowSchedule) -> None:
        """Append the flows that one group sends for collective `number`; `op` is its kind, `schedule` its flows."""
        flows = sorted(schedule.flows(), key=lambda flow: flow.flow_id)
        offset = len(self.rows) - schedule.first_id
        release_gap = REDUCING_NS if op == REDUCE_SCATTER else PROCESSING_NS
        former: dict[tuple[int, int, int], int] = {}
        on_hop: dict[tuple[int, int, int], list[int]] = {}
        turns = _Turns(len(schedule.sources), added=op == ALL_REDUCE and schedule.algorithm == RING)
        for flow in flows:
            parents, gap = [parent + offset for parent in flow.parents], self.latency_ns + release_gap
            if schedule.algorithm == NVLS and flow.source < self.ranks and not parents:
                # A rank sends a chunk to the NVSwitch once the one before has left it.
                ends = flow.channel, flow.source, flow.target
                if ends in former:
                    self.heirs[former[ends]] = len(self.rows)
                former[ends] = len(self.rows)
            elif schedule.algorithm in WINDOWED:
                chunks = on_hop.setdefault((flow.channel, flow.source, flow.target), [])
                parents += chunks[-CHUNKS_AT_ONCE : 1 - CHUNKS_AT_ONCE or None] if len(chunks) >= CHUNKS_AT_ONCE else []
                chunks.append(len(self.rows))
            rules, in_order = (gap, release_gap, turns.next(flow)), schedule.algorithm not in (NVLS, NVLS_TREE)
            self._append(number, flow, parents, rules, in_order=in_order)

    def _append(
        self, number: int, flow: Flow, parents: Sequence[int], rules: tuple[int, int, int], *, in_order: bool
    ) -> None:
        place = len(self.rows)
        self.children.append([])
        for parent in parents:
            self.children[parent].append(place)
        key = (number, flow.channel, flow.source, flow.target)
        before = self.before.get(key, NONE) if parents and in_order else NONE
        self.before[key] = place
        if before != NONE:
            self.after[before] = place
        by_rank = flow.source < self.ranks
        if by_rank:
            self.issued.setdefault((number, flow.source), []).append(place)
        for end in (flow.source, flow.target):
            self.touching[number, end] = self.touching.get((number, end), 0) + 1
        pair = self.pairs.setdefault((number * self.apart, flow.source, flow.target), len(self.pairs))
        waiting = len(parents) + by_rank
        self.rows.append(_Flow(flow.source, flow.target, flow.size_bytes, before, *rules, pair, number, waiting))

    def records(self) -> tuple[Records, Ints]:
        """The flows, and the children of each one after those of the one before."""
        records = np.zeros(len(self.rows), FLOW)
        for name, column in zip(_Flow._fields, zip(*self.rows, strict=True), strict=False):
            records[name] = column
        records["after"] = [self.after.get(place, NONE) for place in range(len(self.rows))]
        records["start"] = records["end"] = records["heir"] = NONE
        records["heir"][[*self.heirs]] = [*self.heirs.values()]
        records["waiting"][[*self.heirs.values()]] += 1
        ends = np.cumsum([len(each) for each in self.children], dtype=np.int64)
        records["child_begin"], records["child_end"] = np.concatenate([[0], ends[:-1]]), ends
        return records, np.array([child for each in self.children for child in each], np.int64)

    def parts(self, collectives: Sequence[GroupCollective]) -> tuple[Records, Ints]:
        """The parts of each rank in each collective, and the flows that it issues."""
        parts = np.zeros((max(len(collectives), 1), self.ranks), PART)
        parts["begin"] = parts["end"] = NONE
        for number, collective in enumerate(collectives):
            parts[number]["end_gap"] = collective.end_gap_ns
        issued: list[int] = []
        for (number, rank), places in sorted(self.issued.items()):
            parts[number, rank]["issue_begin"] = len(issued)
            issued += places
            parts[number, rank]["issue_end"] = len(issued)
        for (number, node), count in self.touching.items():
            if node < self.ranks:
                parts[number, node]["pending"] = count
        return parts, np.array(issued, np.int64)


def work_of(job: Job, latency_ns: int, slowness: Mapping[int, float], *, apart: bool = False) -> RankWork:
    """The steps of all ranks and the flows of the collectives.

    Args:
        latency_ns: the time before each send.
        slowness: how many times as long as others a rank computes (dimensionless).
        apart: the port numbers of a pair of ranks begin anew for each collective.
    """
    flows = _Flows(latency_ns, job.ranks, apart=apart)
    for number, collective in enumerate(job.collectives):
        for schedule in collective.schedules:
            flows.add(number, collective.op, schedule)
    steps: list[tuple[int, int]] = []
    begins = []
    for program in job.programs:
        begins.append(len(steps))
        for phase in program:
            steps.append((COMPUTE, phase.compute_ns))
            if phase.collective is not None:
                steps.append((_STEPS[phase.mode], phase.collective))
            steps.append((COMPUTE, TURN_NS))
        steps.append((END, 0))
    ranks = np.zeros(job.ranks, RANK)
    ranks["waits_for"] = ranks["walked"] = ranks["ended"] = NONE
    ranks["place"] = np.array(begins)[job.program_of]
    ranks["team"] = teams_of(job)
    ranks["slowness"] = [slowness.get(rank, 1.0) for rank in range(job.ranks)]
    return RankWork(*flows.records(), ranks, np.array(steps, STEP), *flows.parts(job.collectives))
