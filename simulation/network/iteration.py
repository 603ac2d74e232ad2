"""Turns a job into what the ranks of the packet level do: steps, and flows that wait for one another."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from simulation.flows.names import ALL_REDUCE, REDUCE_SCATTER
from simulation.flows.train import NVLS, NVLS_TREE, RING, FlowSchedule
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


class _Sent(NamedTuple):
    """Columns of flows in the order of their ids, and who waits: a flow by its place, for one of its parents."""

    channel: Ints
    source: Ints
    target: Ints
    size: Ints
    child: Ints
    parent: Ints


_NO_FLOWS = _Sent._make([np.zeros(0, np.int64)] * len(_Sent._fields))


class _Rules(NamedTuple):
    """The rules of all flows of a schedule: its number, that of its collective, its algorithm, the time between
    receipts (ns), and after how many flows of a rank its turns to carry sums begin anew, 0 where none carries sums.
    """

    schedule: int
    collective: int
    algorithm: int
    release_gap: int
    round: int


class _Columns(NamedTuple):
    """A row for each flow: what it is, and the rules of its schedule."""

    sent: _Sent
    schedule: Ints
    collective: Ints
    algorithm: Ints
    release_gap: Ints
    round: Ints


class _Flows:
    """Collects the flows of collectives; equal groups' are made once."""

    def __init__(self) -> None:
        self._known: dict[int, _Sent] = {}
        self._all, self._rules = list[_Sent](), list[_Rules]()
        self._count = 0

    def add(self, number: int, op: str, schedule: FlowSchedule) -> None:
        """Append the flows that one group sends for collective `number`; `op` is its kind, `schedule` its flows."""
        original = schedule.like.original if schedule.like else schedule
        if id(original) not in self._known:
            self._known[id(original)] = _sent(original)
        sent = self._known[id(original)]
        if schedule.like:
            nodes = np.zeros(max(schedule.like.nodes) + 1, np.int64)
            nodes[[*schedule.like.nodes]] = [*schedule.like.nodes.values()]
            sent = sent._replace(source=nodes[sent.source], target=nodes[sent.target])
        ring = len(schedule.sources) if op == ALL_REDUCE and schedule.algorithm == RING else 0
        gap = REDUCING_NS if op == REDUCE_SCATTER else PROCESSING_NS
        # A round has as many flows as the ring has ranks; that of 8 has 9 (as recorded, of which no rule is known).
        self._rules.append(_Rules(len(self._all), number, schedule.algorithm, gap, ring + (ring == ODD_RING)))
        self._all.append(sent._replace(child=sent.child + self._count, parent=sent.parent + self._count))
        self._count += len(sent.source)

    def columns(self) -> _Columns:
        """The columns of all flows."""
        counts = np.array([len(each.source) for each in self._all], np.int64)
        sent = _Sent._make(map(np.concatenate, zip(_NO_FLOWS, *self._all, strict=True)))
        rules = np.array(self._rules, np.int64).reshape(-1, len(_Rules._fields))
        return _Columns(sent, *np.repeat(rules, counts, axis=0).T)


def _sent(schedule: FlowSchedule) -> _Sent:
    """The flows of a schedule."""
    ids, children, parents = list[int](), list[int](), list[int]()
    columns: tuple[list[int], ...] = ([], [], [], [])
    for source in schedule.sources:
        for train in schedule.trains(source):
            count = len(train.ids)
            ids += train.ids
            for column, its in zip(columns, (train.channel, train.source, train.targets, train.sizes), strict=True):
                column += [its] * count if isinstance(its, int) else its
            for each in train.parents:
                waited_for = each[max(len(each) - count, 0) :]
                children += train.ids[count - len(waited_for) :]
                parents += waited_for
    order = np.argsort(np.array(ids, np.int64))
    edges = (np.array(its, np.int64) - schedule.first_id for its in (children, parents))
    return _Sent(*(np.array(column, np.int64)[order] for column in columns), *edges)


def _key(*columns: Ints) -> Ints:
    """A number for each row of columns, the same for equal rows alone."""
    found = np.zeros_like(columns[0])
    for column in columns:
        found = found * (int(column.max(initial=0)) + 1) + column
    return found


def _followed(key: Ints, chosen: Ints, steps: int = 1) -> tuple[Ints, Ints]:
    """The places of the chosen rows that have so many before them with the same key, and those of the ones so many
    before.
    """
    order = chosen[np.argsort(key[chosen], kind="stable")]
    same = key[order[steps:]] == key[order[:-steps]]
    return order[steps:][same], order[:-steps][same]


def _flow_records(flows: _Columns, latency_ns: int, ranks: int, *, apart: bool) -> tuple[Records, Ints]:
    """The flows, and the children of each one after those of the one before."""
    sent, algorithm = flows.sent, flows.algorithm
    by_rank, on_hop = sent.source < ranks, (sent.channel, sent.source, sent.target)
    later, earlier = _followed(
        _key(flows.schedule, *on_hop), np.flatnonzero(np.isin(algorithm, WINDOWED)), CHUNKS_AT_ONCE
    )
    child, parent = np.concatenate([sent.child, later]), np.concatenate([sent.parent, earlier])
    waiting = np.bincount(child, minlength=len(by_rank))
    records = np.zeros(len(by_rank), FLOW)
    for name in ("start", "end", "heir", "before", "after"):
        records[name] = NONE
    records["source"], records["target"], records["size"] = sent.source, sent.target, sent.size
    records["collective"], records["release_gap"] = flows.collective, flows.release_gap
    records["gap"], records["turn"] = latency_ns + flows.release_gap, _turns(flows)
    records["pair"] = _numbered(_key(flows.collective * apart, sent.source, sent.target))
    records["waiting"] = waiting + by_rank
    later, earlier = _followed(_key(flows.collective, *on_hop), np.arange(len(by_rank)))
    in_order = (waiting[later] > 0) & ~np.isin(algorithm[later], (NVLS, NVLS_TREE))
    records["before"][later[in_order]], records["after"][earlier[in_order]] = earlier[in_order], later[in_order]
    # A rank sends a chunk to the NVSwitch once the one before has left it.
    first = np.flatnonzero((algorithm == NVLS) & by_rank & (waiting == 0))
    later, earlier = _followed(_key(flows.schedule, *on_hop), first)
    records["heir"][earlier] = later
    records["waiting"][later] += 1
    ends = np.cumsum(np.bincount(parent, minlength=len(by_rank)))
    records["child_end"], records["child_begin"][1:] = ends, ends[:-1]
    return records, child[np.lexsort((child, parent))]


def _turns(flows: _Columns) -> Ints:
    """Of each flow when it carries sums; see `adding` of rank_steps."""
    key = _key(flows.schedule, flows.sent.channel, flows.sent.source)
    order = np.argsort(key, kind="stable")
    place = np.zeros_like(key)  # among those of its rank on its channel
    place[order] = np.arange(len(key)) - np.searchsorted(key[order], key[order])
    found: Ints = np.where(place % np.maximum(flows.round, 1), MAY_ADD, TURNS)
    found[flows.round == 0] = SENDS_ON
    return found


def _numbered(key: Ints) -> Ints:
    """Each key's number among all in the order in which they appear first."""
    _keys, first, which = np.unique(key, return_index=True, return_inverse=True)
    number = np.zeros_like(first)
    number[np.argsort(first)] = np.arange(len(first))
    return number[which]


def _parts(flows: _Columns, collectives: Sequence[GroupCollective], ranks: int) -> tuple[Records, Ints]:
    """The parts of each rank in each collective, and the flows that it issues."""
    parts = np.zeros((max(len(collectives), 1), ranks), PART)
    parts["begin"] = parts["end"] = NONE
    for number, collective in enumerate(collectives):
        parts[number]["end_gap"] = collective.end_gap_ns
    for nodes in (flows.sent.source, flows.sent.target):
        place = (flows.collective * ranks + nodes)[nodes < ranks]
        parts["pending"] += np.bincount(place, minlength=parts.size).reshape(parts.shape)
    issued = np.flatnonzero(flows.sent.source < ranks)
    place = (flows.collective * ranks + flows.sent.source)[issued]
    counts = np.bincount(place, minlength=parts.size)
    ends = np.where(counts, np.cumsum(counts), 0).reshape(parts.shape)
    parts["issue_begin"], parts["issue_end"] = ends - counts.reshape(parts.shape), ends
    return parts, issued[np.argsort(place, kind="stable")]


def work_of(job: Job, latency_ns: int, slowness: Mapping[int, float], *, apart: bool = False) -> RankWork:
    """The steps of all ranks and the flows of the collectives.

    Args:
        latency_ns: the time before each send.
        slowness: how many times as long as others a rank computes (dimensionless).
        apart: the port numbers of a pair of ranks begin anew for each collective.
    """
    collected = _Flows()
    for number, collective in enumerate(job.collectives):
        for schedule in collective.schedules:
            collected.add(number, collective.op, schedule)
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
    flows = collected.columns()
    records = _flow_records(flows, latency_ns, job.ranks, apart=apart)
    return RankWork(*records, ranks, np.array(steps, STEP), *_parts(flows, job.collectives, job.ranks))
