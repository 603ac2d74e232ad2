"""Describes flows compactly: trains of evenly numbered flows, and the schedule of a whole collective."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle, islice
from typing import NamedTuple, Optional, overload


class Flow(NamedTuple):
    """One transfer of `size_bytes` between two ranks, or a rank and an NVSwitch, which begins after its parents."""

    flow_id: int
    channel: int
    source: int
    target: int
    size_bytes: int
    chunk: int
    chunk_count: int
    kind: str
    parents: tuple[int, ...]
    previous: tuple[int, ...]
    children: tuple[int, ...]


class FlowTrain(NamedTuple):
    """Flows of one source on one channel with evenly spaced ids; a sequence has one entry per flow.

    Every sequence in `parents` names one parent of each of the last flows: the first flows have none if it is shorter
    than `ids`. `children` is the same for the first flows. `sizes` are bytes, `previous` are ranks, not flows.
    """

    source: int
    channel: int
    ids: range
    targets: int | Sequence[int]
    sizes: int | Sequence[int]
    chunks: int | range
    chunk_count: int
    kind: str
    parents: tuple[Sequence[int], ...] = ()
    previous: tuple[int, ...] = ()
    children: tuple[Sequence[int], ...] = ()

    def flows(self) -> Iterator[Flow]:
        """Its flows one by one."""
        count = len(self.ids)
        for place, flow_id in enumerate(self.ids):
            yield Flow(
                flow_id=flow_id,
                channel=self.channel,
                source=self.source,
                target=_entry(self.targets, place),
                size_bytes=_entry(self.sizes, place),
                chunk=_entry(self.chunks, place),
                chunk_count=self.chunk_count,
                kind=self.kind,
                parents=tuple(each[place - count] for each in self.parents if len(each) + place >= count),
                previous=self.previous,
                children=tuple(each[place] for each in self.children if place < len(each)),
            )


class TurningSizes(Sequence[int]):
    """The bytes of `steps` blocks of a ring, from number `begin` on backwards, round and round; blocks are shared."""

    def __init__(self, blocks: list[int], begin: int, steps: int) -> None:
        self.blocks, self._begin, self._steps = blocks, begin, steps

    def __len__(self) -> int:
        return self._steps

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[int]: ...
    def __getitem__(self, place: int | slice) -> int | Sequence[int]:
        if isinstance(place, slice):
            steps = range(self._steps)[place]
            if steps.step != 1:
                return list(self)[place]
            return TurningSizes(self.blocks, (self._begin - steps.start) % len(self.blocks), len(steps))
        return self.blocks[(self._begin - range(self._steps)[place]) % len(self.blocks)]

    def __iter__(self) -> Iterator[int]:
        backwards = self.blocks[self._begin :: -1] + self.blocks[: self._begin : -1]
        return islice(cycle(backwards), self._steps)


def _entry(column: int | Sequence[int], place: int) -> int:
    return column if isinstance(column, int) else column[place]


class FlowSchedule(NamedTuple):
    """All flows of one collective: `trains` gives those that leave a source, channel by channel.

    `algorithm` is NCCL's number (0 tree, 1 ring, 4 NVLS, 5 NVLS tree, 6 PAT). Ids run from `first_id` without a gap.
    `like` is the schedule of which this one is a copy on other nodes.
    """

    algorithm: int
    first_id: int
    flow_count: int
    byte_count: int
    sources: Sequence[int]
    trains: Callable[[int], list[FlowTrain]]
    like: Optional["ScheduleCopy"] = None

    def flows(self) -> Iterator[Flow]:
        """Its flows one by one, source by source."""
        for source in self.sources:
            for train in self.trains(source):
                yield from train.flows()


class ScheduleCopy(NamedTuple):
    """The schedule that was copied, and for each of its nodes the one that stands for it in the copy."""

    original: FlowSchedule
    nodes: Mapping[int, int]


TREE, RING, NVLS, NVLS_TREE, PAT = 0, 1, 4, 5, 6
ALGORITHM_NAMES = {TREE: "tree", RING: "ring", NVLS: "nvls", NVLS_TREE: "nvls", PAT: "pat"}


def empty_schedule(algorithm: int, first_id: int) -> FlowSchedule:
    """A collective without flows."""
    return FlowSchedule(algorithm, first_id, 0, 0, (), lambda _source: [])


def by_source(trains: Sequence[FlowTrain]) -> dict[int, list[FlowTrain]]:
    """Trains grouped by their source, those of a channel together."""
    grouped: dict[int, list[FlowTrain]] = {}
    for train in sorted(trains, key=lambda each: (each.source, each.channel, each.ids[0])):
        grouped.setdefault(train.source, []).append(train)
    return grouped
