"""Makes sure before the first operation that all ranks mean the same job, and opens their process groups."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from common.shortening import few
from training.benchmarks.aicb.pytorch.work.blocking import Order, order_of, standstill
from training.benchmarks.aicb.pytorch.work.stream import Stream
from training.benchmarks.driver.workload.process_group import ProcessGroup
from training.benchmarks.driver.workload.team import Team, split
from training.benchmarks.driver.workload.usage import UnusableSettingsError
from workloads.job.groups import RankGroups
from workloads.rows.calls import GROUPS, POINT_TO_POINT, Call
from workloads.rows.ops import EXCHANGES, CommGroup, CommType
from workloads.rows.ranks import Ranks

GroupKey = tuple[str, tuple[int, ...]]
"""Name and ranks of a group."""
_LISTED = (
    CommGroup.tp_group, CommGroup.pp_group, CommGroup.dp_group, CommGroup.ep_group, CommGroup.ep_dp_group,
    CommGroup.ep_tp_group,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RankPlan:
    """A rank's plan as told to the others: its problem or "", the job's digest, its groups, its calls in each.

    sequences: by group, or sender and receiver, the number and digest of calls in order; order: when it waits for them.
    """

    problem: str
    job: str = ""
    groups: tuple[GroupKey, ...] = ()
    sequences: Mapping[str, tuple[int, str]] | None = None
    order: Order | None = None


def plan_of(stream: Stream, groups: RankGroups, rank: int, settings: str) -> RankPlan:
    """The plan that `rank` tells; `settings`: what else has to be equal."""
    listed = [groups.groups(group) for group in _LISTED]
    epochs = len(stream.epochs)
    job = hashlib.sha256(repr((groups, listed, epochs, settings)).encode()).hexdigest()
    used = {key_of(call) for call in stream.calls if call is not None}
    sequences, order = _sequences(stream, rank)
    return RankPlan("", job, tuple(sorted(used)), sequences, order)


def key_of(call: Call) -> GroupKey:
    """The group of a call."""
    return GROUPS[call.group].name, tuple(call.ranks)


def check(plans: Sequence[RankPlan]) -> None:
    """Check the plans of all ranks, by rank; the same answer on every rank.

    Raises:
        UnusableSettingsError: a rank has a problem, the jobs differ, or members of a group do not make the same calls.
    """
    _check_problems(plans)
    odd = [rank for rank, plan in enumerate(plans) if plan.job != plans[0].job]
    if odd:
        raise UnusableSettingsError(
            f"{_ranks(odd)} and rank 0 disagree on groups, settings or the number of iterations: the hosts have"
            " different workload files or settings"
        )
    members = {_text(key): key[1] for plan in plans for key in plan.groups}
    wrong = _unequal_calls(plans, members)
    if wrong:
        raise UnusableSettingsError(f"{_INDEFINITELY}: {few(wrong, 3, '; ')}")
    stuck = standstill([plan.order for plan in plans if plan.order is not None], members)
    if stuck:
        raise UnusableSettingsError(f"{_INDEFINITELY}: {stuck}")


def _check_problems(plans: Sequence[RankPlan]) -> None:
    problems: dict[str, list[int]] = {}
    for rank, plan in enumerate(plans):
        if plan.problem:
            problems.setdefault(plan.problem, []).append(rank)
    if problems:
        raise UnusableSettingsError("; ".join(f"{text} ({_ranks(ranks)})" for text, ranks in problems.items()))


def _unequal_calls(plans: Sequence[RankPlan], members: Mapping[str, Sequence[int]]) -> list[str]:
    """The groups, in words, whose members do not all make the same calls in the same order."""
    found: dict[str, dict[tuple[int, str], list[int]]] = {}
    for rank, plan in enumerate(plans):
        for key, sequence in (plan.sequences or {}).items():
            found.setdefault(key, {}).setdefault(sequence, []).append(rank)
    wrong = []
    for key, by_sequence in found.items():
        present = {rank for ranks in by_sequence.values() for rank in ranks}
        absent = sorted(set(members.get(key, present)) - present)
        if absent:
            wrong.append(f"{key}: {_ranks(absent)} never calls it, {_ranks(sorted(present))} does")
        elif len(by_sequence) > 1 or (key.endswith(_RECEIVER) and len(present) < 2):
            said = " and ".join(f"{count} calls on {_ranks(ranks)}" for (count, _), ranks in by_sequence.items())
            wrong.append(f"{key}: {said} do not fit together")
    return wrong


def open_teams(plans: Sequence[RankPlan], group: ProcessGroup) -> dict[GroupKey, Team]:
    """The process groups of this rank; all ranks call it with the same plans. The group of all ranks is the world."""
    world = Team.world(group)
    names: dict[str, list[tuple[int, ...]]] = {}
    for name, ranks in sorted({key for plan in plans for key in plan.groups}):
        names.setdefault(name, []).append(ranks)
    teams: dict[GroupKey, Team] = {}
    rank = group.placement.rank
    for name, all_ranks in names.items():
        for disjoint in _disjoint(all_ranks):
            if name == CommGroup.all.name and disjoint == [world.ranks]:
                teams[name, world.ranks] = world
                continue
            handle = split([list(ranks) for ranks in disjoint], group)
            for ranks in disjoint:
                if rank in ranks:
                    place = ranks.index(rank)
                    teams[name, ranks] = Team(ranks=ranks, rank=place, device=group.device, handle=handle)
    return teams


def _disjoint(groups: Sequence[tuple[int, ...]]) -> list[list[tuple[int, ...]]]:
    """The groups in as few lists of disjoint ones as their order gives."""
    lists: list[tuple[list[tuple[int, ...]], set[int]]] = []
    for ranks in groups:
        for chosen, taken in lists:
            if taken.isdisjoint(ranks):
                chosen.append(ranks)
                taken.update(ranks)
                break
        else:
            lists.append(([ranks], set(ranks)))
    return [chosen for chosen, _ in lists]


_RECEIVER = " receives"
_INDEFINITELY = "the ranks would wait for one another indefinitely"


def _sequences(stream: Stream, rank: int) -> tuple[dict[str, tuple[int, str]], Order]:
    numbers: dict[str, int] = {}
    of_item = np.full(len(stream.calls), -1, np.int64)
    signatures = np.zeros(len(stream.calls), np.uint64)
    for place, call in enumerate(stream.calls):
        if call is not None:
            key, signature = _signature(call, rank)
            of_item[place] = numbers.setdefault(key, len(numbers))
            hashed = hashlib.sha256(repr(signature).encode()).digest()
            signatures[place] = int.from_bytes(hashed[:8], "little")
    digests = {number: hashlib.sha256() for number in numbers.values()}
    counts = dict.fromkeys(digests, 0)
    for epoch in stream.epochs:
        groups, calls = of_item[epoch.items], signatures[epoch.items]
        for number, digest in digests.items():
            own = calls[groups == number]
            counts[number] += len(own)
            digest.update(own.tobytes() + b"end")
    sends = {
        int(of_item[place])
        for place, call in enumerate(stream.calls)
        if call is not None and call.comm_type is CommType.isend
    }
    order = order_of(stream.epochs, of_item.tolist(), list(numbers), frozenset(sends))
    return {key: (counts[number], digests[number].hexdigest()[:16]) for key, number in numbers.items()}, order


def _signature(call: Call, rank: int) -> tuple[str, tuple[object, ...]]:
    """Under which name, and as what, the members of a group must find this call equal."""
    group = f"{GROUPS[call.group].name} {call.ranks}"
    if call.comm_type in POINT_TO_POINT:
        sends = call.comm_type.name == "isend"
        pair = (rank, call.peer) if sends else (call.peer, rank)
        return f"{group}: rank {pair[0]} sends, rank {pair[1]}{_RECEIVER}", (call.bytes, call.dtype)
    uneven = call.comm_type in EXCHANGES and call.in_splits is not None
    return group, (call.comm_type.name, None if uneven else call.bytes, call.dtype, call.peer)


def _text(key: GroupKey) -> str:
    return f"{key[0]} {Ranks.of(key[1])}"


def _ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:8])) + (" and more" if len(ranks) > 8 else "")
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"
