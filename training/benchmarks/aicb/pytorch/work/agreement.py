"""Makes sure before the first operation that all ranks mean the same job, and opens their process groups.

A rank issues its calls in order and goes on where it need not wait. A collective is complete when all members have
issued it, a receive when its sender has; a send is complete at once, so that no workload is refused that some network
could carry. Equal epochs of all ranks are run once.
"""

import hashlib
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from training.benchmarks.aicb.pytorch.work.calls import RankCall
from training.benchmarks.aicb.pytorch.work.stream import Epoch, Stream
from training.benchmarks.driver.workload.process_group import ProcessGroup
from training.benchmarks.driver.workload.team import Team, split
from training.benchmarks.driver.workload.usage import UnusableSettingsError
from workloads.job.groups import RankGroups
from workloads.rows.ops import EXCHANGES, CommGroup, CommType
from workloads.rows.ranks import Ranks
from workloads.rows.traced_op import POINT_TO_POINT

Event = tuple[int, int, int]
"""A channel, how many calls are issued on it, and how many of this epoch's have to be complete then (0: none)."""
MOST_NAMED = 4


@dataclass(frozen=True, slots=True)
class Order:
    """When one rank issues and waits. channels: their names, a group or a sender with its receiver; sends: those on
    which this rank is the sender. epochs: events of each epoch; first: by epoch the first one that is equal.
    """

    channels: tuple[str, ...]
    sends: frozenset[int]
    epochs: tuple[tuple[Event, ...], ...]
    first: tuple[int, ...]


def order_of(epochs: Sequence[Epoch], of_item: Sequence[int], names: Sequence[str], sends: frozenset[int]) -> Order:
    """The order of a rank's epochs. of_item: by row's item the channel, -1 for a computation."""
    known: dict[bytes, int] = {}
    first = [known.setdefault(epoch.items.tobytes() + epoch.until.tobytes(), at) for at, epoch in enumerate(epochs)]
    made = [_events(epoch, of_item, sends) if first[number] == number else () for number, epoch in enumerate(epochs)]
    return Order(tuple(names), sends, tuple(made), tuple(first))


def _events(epoch: Epoch, of_item: Sequence[int], sends: frozenset[int]) -> tuple[Event, ...]:
    """Calls of one channel that follow one another and block are one event."""
    found: list[Event] = []
    counts: Counter[int] = Counter()
    due: dict[int, list[tuple[int, int]]] = {}
    for index, (item, until) in enumerate(zip(epoch.items.tolist(), epoch.until.tolist(), strict=True)):
        channel = of_item[item]
        if channel >= 0:
            counts[channel] += 1
            number = counts[channel]
            if channel in sends or until != index:
                found.append((channel, 1, 0))
                if channel not in sends:
                    due.setdefault(until, []).append((channel, number))
            elif found and found[-1][0] == channel and found[-1][2] == number - 1 > 0:
                found[-1] = channel, found[-1][1] + 1, number
            else:
                found.append((channel, 1, number))
        found += [(waited, 0, number) for waited, number in due.pop(index, ())]
    return tuple(found)


def standstill(orders: Sequence[Order], members: Mapping[str, Sequence[int]]) -> str:
    """Which ranks would wait for one another indefinitely, and for what; "" if all come to their end.

    members: the ranks of each group by its name; on other channels a rank sends.
    """
    run = _Run(orders, members)
    ready = deque(range(len(orders)))
    while ready:
        ready += run.advance(ready.popleft())
    stuck = [
        f"rank {rank} waits in {channel} (its call {call})" for rank, (channel, call) in sorted(run.waiting.items())
    ]
    more = f" and {len(stuck) - MOST_NAMED} more ranks" if len(stuck) > MOST_NAMED else ""
    return ", ".join(stuck[:MOST_NAMED]) + more


class Channel:
    """The calls that each of its ranks has issued; complete: how many all of them have, 0 where there are none."""

    def __init__(self, ranks: Sequence[int]) -> None:
        self._issued = dict.fromkeys(ranks, 0)
        self._ranks_at = Counter(self._issued.values())  # by number of calls: thousands of ranks have few numbers
        self.complete = 0
        self.waiters: list[int] = []

    def issue(self, rank: int, count: int) -> list[int]:
        """Take so many more calls of a rank; returns the waiting ranks if more calls are complete by that."""
        before = self._issued.get(rank)
        if before is None or not count:
            return []
        self._issued[rank] += count
        self._ranks_at[before + count] += 1
        self._ranks_at[before] -= 1
        if self._ranks_at[before]:
            return []
        del self._ranks_at[before]
        if before > self.complete:
            return []
        self.complete = min(self._ranks_at)
        freed, self.waiters = self.waiters, []
        return freed


class _Run:
    """The state of all ranks. waiting: by rank the channel and the number of the call that it waits for."""

    def __init__(self, orders: Sequence[Order], members: Mapping[str, Sequence[int]]) -> None:
        count = len(orders[0].first)
        self._wanted = [each for each in range(count) if any(order.first[each] == each for order in orders)]
        self._channels = {name: Channel(()) for order in orders for name in order.channels}
        self._channels |= {name: Channel(ranks) for name, ranks in members.items()}
        for rank, order in enumerate(orders):
            for channel in order.sends:
                self._channels[order.channels[channel]] = Channel((rank,))
        self._programs = [self._program(order) for order in orders]
        self.waiting: dict[int, tuple[str, int]] = {}

    def _program(self, order: Order) -> Iterator[tuple[str, int, int]]:
        """Channel, calls that are issued, and which of all calls on it has to be complete then (0: none)."""
        totals: Counter[int] = Counter()
        for number in self._wanted:
            before = totals.copy()
            for channel, issued, waited in order.epochs[order.first[number]]:
                totals[channel] += issued
                yield order.channels[channel], issued, before[channel] + waited if waited else 0

    def advance(self, rank: int) -> list[int]:
        """Let a rank go on as far as it can; returns the ranks that may go on, too, because of that."""
        freed: list[int] = []
        if rank in self.waiting and self._waits(rank, *self.waiting[rank]):
            return freed
        for name, issued, target in self._programs[rank]:
            freed += self._channels[name].issue(rank, issued)
            if self._waits(rank, name, target):
                break
        return freed

    def _waits(self, rank: int, name: str, target: int) -> bool:
        """Note whether a rank has to wait until so many calls of a channel are complete."""
        channel = self._channels[name]
        if channel.complete >= target:
            self.waiting.pop(rank, None)
            return False
        self.waiting[rank] = name, target
        channel.waiters.append(rank)
        return True


GroupKey = tuple[str, tuple[int, ...]]
"""Name and ranks of a group."""
_LISTED = (
    CommGroup.tp_group, CommGroup.pp_group, CommGroup.dp_group, CommGroup.ep_group, CommGroup.ep_dp_group,
    CommGroup.ep_tp_group,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RankPlan:
    """The plan that one rank tells the others: its problem or "", a digest of the job, its groups, and its calls in
    each.

    sequences: by group, or by sender and receiver, the number of calls and a digest of them in order; order: when it
    waits for them.
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


def key_of(call: RankCall) -> GroupKey:
    """The group of a call."""
    return call.group, call.ranks


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
        more = f"; and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise UnusableSettingsError(f"{_INDEFINITELY}: {'; '.join(wrong[:3])}{more}")
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
        if call is not None and call.kind is CommType.isend
    }
    order = order_of(stream.epochs, of_item.tolist(), list(numbers), frozenset(sends))
    return {key: (counts[number], digests[number].hexdigest()[:16]) for key, number in numbers.items()}, order


def _signature(call: RankCall, rank: int) -> tuple[str, tuple[object, ...]]:
    """Under which name, and as what, the members of a group must find this call equal."""
    if call.kind in POINT_TO_POINT:
        sends = call.kind.name == "isend"
        pair = (rank, call.peer) if sends else (call.peer, rank)
        return f"{_text(key_of(call))}: rank {pair[0]} sends, rank {pair[1]}{_RECEIVER}", (call.bytes, call.dtype)
    uneven = call.kind in EXCHANGES and call.in_splits is not None
    return _text(key_of(call)), (call.kind.name, None if uneven else call.bytes, call.dtype, call.peer)


def _text(key: GroupKey) -> str:
    return f"{key[0]} {Ranks.of(key[1])}"


def _ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:8])) + (" and more" if len(ranks) > 8 else "")
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"
