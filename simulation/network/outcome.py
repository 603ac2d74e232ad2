"""Holds what a simulation of a job's network found, at whichever level."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from simulation.network.routing import Ints, Places
from simulation.network.tables import RankTimes

NOT_YET = -1


class Counted(NamedTuple):
    """The counts of packets of one or several runs, and the bytes of their deepest queue."""

    marks: int = 0
    rate_decreases: int = 0
    pauses: int = 0
    lost: int = 0
    resent: int = 0
    deepest_bytes: int = 0

    @staticmethod
    def sum(counts: Sequence["Counted"]) -> "Counted":
        """Those of several runs."""
        *sums, deepest = zip(*counts, strict=True)
        return Counted._make([*map(sum, sums), max(deepest)])


class NetworkRun(NamedTuple):
    """The result of a simulation. Times are ns, NOT_YET for what did not happen.

    Columns of the flows: `source`, `target`, `sport`, `size` (bytes), `collective` (its number), `start`, `end`, and
    the ports of its `path`, of which the rest is -1. `parents[parent_begin[f] : parent_begin[f + 1]]` are the flows
    that f waited for. `part_begin` and `part_end`, by collective and rank, are when a rank came to its part and when
    that ended; `walked` is when a rank was through its steps, `finished` when what it queued was done, too. `usage` are
    the bytes of each port in bins of `bin_ns`; `not_kept` counts flows without columns, of which `moved` has how long
    the transfers between stages took, by receiver and collective.
    """

    source: Ints
    target: Ints
    sport: Ints
    size: Ints
    collective: Ints
    start: Ints
    end: Ints
    path: Places
    parent_begin: Ints
    parents: Ints
    part_begin: Ints
    part_end: Ints
    walked: Ints
    finished: Ints
    usage: Ints
    bin_ns: int
    marks: int = 0
    rate_decreases: int = 0
    pauses: int = 0
    lost: int = 0
    resent: int = 0
    events: int = 0
    deepest_bytes: int = 0
    seconds: float = 0.0
    not_kept: int = 0
    moved: Mapping[int, Mapping[int, int]] = MappingProxyType({})

    @property
    def complete(self) -> bool:
        """Whether every flow and every rank came to its end."""
        return bool((self.end >= 0).all() and (self.finished >= 0).all())

    @property
    def rank_ends(self) -> Ints:
        """The end of the last flow of each rank that has flows (ns)."""
        ends = np.full(len(self.finished), NOT_YET, np.int64)
        for nodes in (self.source, self.target):
            ranks = nodes < len(ends)
            np.maximum.at(ends, nodes[ranks], self.end[ranks])
        return ends[ends >= 0]

    def of_rank(self, rank: int) -> RankTimes:
        """The times of one rank."""
        received = np.flatnonzero(self.target == rank)
        took = (self.end - self.start)[received].tolist()
        return RankTimes(
            *self.parts_of(rank),
            {**dict(zip(self.collective[received].tolist(), took, strict=True)), **self.moved.get(rank, {})},
            int(self.walked[rank]),
            int(self.finished[rank]),
        )

    def parts_of(self, rank: int) -> tuple[list[int], list[int]]:
        """By collective: when a rank came to its part and when that ended (ns)."""
        return self.part_begin[:, rank].tolist(), self.part_end[:, rank].tolist()

    def kind_of(self, rank: int) -> int:
        """The rank: no two are alike."""
        return rank

    @property
    def first_start(self) -> int:
        """The start of the first flow (ns); 0 without flows."""
        begun = self.start[self.start >= 0]
        return int(begun.min()) if len(begun) else 0

    @property
    def makespan_us(self) -> float:
        """From the start of the first flow to the end of the last one; of a run that keeps no flows, the iteration."""
        return float(self.end.max() - self.first_start) / 1000 if len(self.end) else self.iteration_us

    @property
    def iteration_us(self) -> float:
        """From the beginning to the end of the last rank."""
        return float(self.finished.max(initial=0)) / 1000
