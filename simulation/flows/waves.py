"""Makes trains of flows from the steps that every chunk of a channel takes: trees, NVLS, PAT, Broadcast."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from simulation.flows.train import FlowSchedule, FlowTrain


class WaveStep(NamedTuple):
    """One transfer of a chunk. `parents` are the numbers of earlier steps of the same chunk that it waits for."""

    source: int
    target: int
    parents: tuple[int, ...]
    kind: str


class Wave:
    """Chunks that take the same steps on one channel; `sizes` are the bytes of each chunk.

    Flows are numbered chunk by chunk, from `first_id`; `first_chunk` of `chunk_count` is the number of the first chunk.
    The steps are kept in arrays: trees over thousands of ranks have hundreds of thousands of them.
    """

    def __init__(
        self,
        channel: int,
        steps: Sequence[WaveStep],
        sizes: Sequence[int],
        first_id: int,
        first_chunk: int = 0,
        chunk_count: int | None = None,
    ) -> None:
        self.channel, self.first_id = channel, first_id
        self.chunks = range(first_chunk, first_chunk + len(sizes))
        self.chunk_count = len(sizes) if chunk_count is None else chunk_count
        self.sizes: int | Sequence[int] = sizes[0] if min(sizes) == max(sizes) else sizes
        self.step_count = len(steps)
        self.flow_count = len(steps) * len(sizes)
        self.byte_count = len(steps) * sum(sizes)
        self._sources = array("q", [step.source for step in steps])
        self._targets = array("q", [step.target for step in steps])
        self._kinds = [step.kind for step in steps]
        self._parents = array("q", [parent for step in steps for parent in step.parents])
        self._parents_end = array("q", accumulate(len(step.parents) for step in steps))
        self._by_source = array("q", sorted(range(len(steps)), key=self._sources.__getitem__))

    def sources(self) -> set[int]:
        """The nodes that flows leave."""
        return set(self._sources)

    def trains(self, source: int) -> list[FlowTrain]:
        """The flows that leave a source, step by step."""
        begin = bisect_left(self._by_source, source, key=self._sources.__getitem__)
        end = bisect_right(self._by_source, source, key=self._sources.__getitem__)
        return [self._train(place) for place in self._by_source[begin:end]]

    def _train(self, place: int) -> FlowTrain:
        parents = self._parents[self._parents_end[place - 1] if place else 0 : self._parents_end[place]]
        return FlowTrain(
            self._sources[place],
            self.channel,
            self._ids(place),
            self._targets[place],
            self.sizes,
            self.chunks,
            self.chunk_count,
            self._kinds[place],
            tuple(map(self._ids, parents)),
            tuple(self._sources[parent] for parent in parents) or (self._targets[place],),
        )

    def _ids(self, place: int) -> range:
        return range(self.first_id + place, self.first_id + self.flow_count, self.step_count)


class Numbering:
    """Gives each wave of a collective the ids after those of the wave before."""

    def __init__(self, first_id: int) -> None:
        self.first_id = first_id
        self.waves: list[Wave] = []

    @property
    def next_id(self) -> int:
        """The id of the first flow of the next wave."""
        return self.waves[-1].first_id + self.waves[-1].flow_count if self.waves else self.first_id

    def add(
        self,
        channel: int,
        steps: Sequence[WaveStep],
        sizes: Sequence[int],
        first_chunk: int = 0,
        chunks: int | None = None,
    ) -> None:
        """Append a wave; see `Wave`. `sizes` are bytes."""
        self.waves.append(Wave(channel, steps, sizes, self.next_id, first_chunk, chunks))

    def schedule(self, algorithm: int) -> FlowSchedule:
        """The collective that consists of the waves."""
        waves = self.waves
        return FlowSchedule(
            algorithm,
            self.first_id,
            sum(wave.flow_count for wave in waves),
            sum(wave.byte_count for wave in waves),
            sorted(set[int]().union(*(wave.sources() for wave in waves))),
            lambda source: [train for wave in waves for train in wave.trains(source)],
        )


def fan(sources: Iterable[int], targets: Iterable[int], parents: tuple[int, ...], kind: str) -> list[WaveStep]:
    """A step from every source to every target, all with the same parents."""
    into = tuple(targets)
    return [WaveStep(source, target, parents, kind) for source in sources for target in into]
