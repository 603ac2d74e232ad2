"""Finds before the first call whether ranks would wait for one another indefinitely: runs their waits without data.

A rank issues its calls in order and goes on where it need not wait. A collective is complete when all members have
issued it, a receive when its sender has; a send is complete at once, so that no workload is refused that some network
could carry. Equal epochs of all ranks are run once.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from common.shortening import few
from training.benchmarks.aicb.pytorch.work.stream import Epoch

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
    return few(stuck, MOST_NAMED)


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
