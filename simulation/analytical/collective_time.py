"""The time of one collective in the default dialect, with every input that decided it."""

from typing import NamedTuple

from simulation.analytical import efficiency
from simulation.analytical.algorithms import MEASURED, PAT, RING, TUNED, Algorithm, algorithms, bus_factor
from simulation.analytical.busbw_file import BusBandwidths
from simulation.analytical.latency import latency_us
from simulation.analytical.machine import Question
from simulation.analytical.nccl_tuning import pat_is_used, tuned
from simulation.analytical.nvlink_times import nvlink_us
from simulation.analytical.original.bandwidth import reach, share
from simulation.analytical.original.model import SMALL, SMALL_US
from simulation.analytical.placement import GroupPlacement, place, ranks_and_stride
from simulation.analytical.repairs import (
    ALGORITHM,
    EFFICIENCY,
    GIGABYTE,
    GROUP_SIZE,
    OWN_GROUP,
    PLACEMENT,
)
from simulation.analytical.repairs import SMALL as SMALL_REPAIR
from workloads.formats.simai_text import ALLTOALL, DP_EP, EP

MEASURED_TABLE = "nvlink_times"
GIGA = {True: 1e9, False: float(1 << 30)}


class Candidate(NamedTuple):
    """An algorithm with its time in us for one message, its efficiency, and the times of bandwidth and latency."""

    way: Algorithm
    efficiency: float
    bandwidth_us: float
    latency_us: float
    time_us: float


class CollectiveTime(NamedTuple):
    """The chosen candidate, and all that were considered."""

    placed: GroupPlacement
    chosen: Candidate
    considered: tuple[Candidate, ...]


class CollectiveTimes:
    """Times of collectives in the groups of one question."""

    def __init__(self, question: Question, repairs: frozenset[str], busbw: BusBandwidths | None) -> None:
        self._question, self._repairs, self._busbw = question, repairs, busbw or {}
        self._giga = GIGA[GIGABYTE in repairs]
        self._placed: dict[tuple[str, bool], GroupPlacement] = {}
        self._ways: dict[tuple[str, str, bool], list[Algorithm]] = {}

    def placed(self, group: str, weight: bool) -> GroupPlacement:
        """Where the group stands; weight: for the weight-gradient phase (the original takes other sizes there)."""
        known = self._placed.get((group, weight))
        if known is None:
            known = self._placed[group, weight] = self._place(group, weight)
        return known

    def time(self, collective: str, group: str, size: int, weight: bool) -> CollectiveTime:
        """The time of a message of `size` bytes (above 0) in a group of at least 2.

        Raises:
            ValueError: the cluster has no path for the group.
        """
        placed = self.placed(group, weight)
        key = collective, group, weight
        possible = self._ways.get(key)
        if possible is None:
            possible = self._ways[key] = self._possible(placed, collective, group)
        return self._of(possible, placed, collective, group, size)

    def time_at(self, placed: GroupPlacement, collective: str, group: str, size: int) -> CollectiveTime:
        """As `time`, of a message of `size` bytes in a group whose place is known.

        Raises:
            ValueError: the cluster has no path for the group.
        """
        return self._of(self._possible(placed, collective, group), placed, collective, group, size)

    def _of(
        self, possible: list[Algorithm], placed: GroupPlacement, collective: str, group: str, size: int
    ) -> CollectiveTime:
        """PAT is taken for the sizes at which it was measured to be faster, every other algorithm by its time."""
        considered = [
            self._candidate(way, placed, collective, group, size)
            for way in possible
            if way.algorithm != PAT or pat_is_used(size)
        ]
        considered.sort(key=lambda one: (one.way.algorithm != PAT, one.time_us))
        measured = self._measured_us(considered[0].way, placed, collective, size)
        if measured is not None:  # of the algorithm that NCCL takes: no other is faster
            first = considered[0]
            full = self._carried_us(first.way, placed, collective, size, 1.0)
            considered = [
                Candidate(first.way._replace(table=MEASURED_TABLE), full / measured, measured, 0.0, measured),
                *(one._replace(time_us=max(one.time_us, measured)) for one in considered[1:]),
            ]
        return CollectiveTime(placed, considered[0], tuple(considered))

    def _measured_us(self, way: Algorithm, placed: GroupPlacement, collective: str, size: int) -> float | None:
        cluster = self._question.cluster
        if placed.servers > 1 or way.algorithm == MEASURED or not self._repairs >= {ALGORITHM, EFFICIENCY}:
            return None
        return nvlink_us(cluster.gpu_type, collective, placed.ranks, size, cluster.nvlink)

    def _place(self, group: str, weight: bool) -> GroupPlacement:
        question = self._question
        if OWN_GROUP in self._repairs:
            ranks, stride = ranks_and_stride(group, question.division)
        else:
            division, stride = question.division, 0
            wide = division.dp // division.ep if group == DP_EP else division.dp
            ranks = wide if weight else division.ep if group == EP else division.tp
        if PLACEMENT in self._repairs:
            return place(group, question.division, question.cluster)._replace(ranks=ranks)
        taken = reach(question, group, ranks)
        return GroupPlacement(ranks, stride, taken.servers, taken.per_server, float(taken.nics))

    def _possible(self, placed: GroupPlacement, collective: str, group: str) -> list[Algorithm]:
        measured = self._busbw.get((group, collective))
        if measured is not None:
            return [Algorithm(MEASURED, measured, "-busbw", "")]
        if PLACEMENT not in self._repairs:
            return self._original_ways(placed, collective)
        cluster = self._question.cluster_of(group, to_all=collective == ALLTOALL)
        found = algorithms(cluster, placed, collective)
        return found if ALGORITHM in self._repairs else found[:1]

    def _original_ways(self, placed: GroupPlacement, collective: str) -> list[Algorithm]:
        """With the original's placement, whose number of ranks need not be servers times GPUs in each."""
        if placed.per_server < 1 or placed.servers < 1:
            raise ValueError("the original's placement has no GPU of the group in a server")
        around = placed._replace(ranks=placed.servers * placed.per_server)
        found = algorithms(self._question.cluster, around, collective)
        return found if ALGORITHM in self._repairs else found[:1]

    def _candidate(self, way: Algorithm, placed: GroupPlacement, collective: str, group: str, size: int) -> Candidate:
        if way.algorithm in TUNED:
            latency, carried = tuned(way.algorithm, self._question.cluster_of(group), placed, size)
            return Candidate(way, 1.0, carried, latency, latency + carried)
        if GROUP_SIZE in self._repairs:
            least = latency_us(placed.ranks, placed.servers == 1)
        else:
            least = float(SMALL_US.get(placed.ranks, 0))
        part = self._efficiency(way, placed, collective, group, size)
        carried = self._carried_us(way, placed, collective, size, part)
        if SMALL_REPAIR not in self._repairs:
            small = way.algorithm != MEASURED and 1 < size < SMALL
            return Candidate(way, part, carried, least, least if small else carried)
        if size >= efficiency.FIRST_SIZE:
            return Candidate(way, part, carried, least, max(least, carried))
        first = self._efficiency(way, placed, collective, group, efficiency.FIRST_SIZE)
        at_first = max(least, self._carried_us(way, placed, collective, efficiency.FIRST_SIZE, first))
        time = least + (at_first - least) * size / efficiency.FIRST_SIZE
        return Candidate(way, part, carried, least, time)

    def _efficiency(self, way: Algorithm, placed: GroupPlacement, collective: str, group: str, size: int) -> float:
        if way.algorithm == MEASURED:
            return 1.0
        if EFFICIENCY in self._repairs:
            alone = placed.servers > 1 and placed.per_server == 1
            return efficiency.efficiency(way.table, size, placed.servers, alone)
        by_nvlink = placed.servers > 1 and way.limit == "NVLink" and way.algorithm == RING
        limited = min(size, efficiency.LAST_SIZE)
        return share(self._question, group, collective, placed.ranks, limited, by_nvlink)

    def _carried_us(self, way: Algorithm, placed: GroupPlacement, collective: str, size: int, part: float) -> float:
        return size * bus_factor(collective, placed.ranks) / (way.bandwidth * self._giga * part) * 1e6
