"""Holds the times of every group at one message size, by column and repeat, as rank 0 streams them."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

from common.garbage import without_collection
from common.statistics import Cell, median_of
from training.benchmarks.network.slow_parts import packing

# Times of which the analysis makes use: the fast quarter, the middle, the slow quarter, the slowest.
QUANTILES = ("low", "middle", "high", "top")
_NAMES = {"low": ("p25", "min"), "middle": ("p50",), "high": ("p75", "p50"), "top": ("max", "p95", "p50")}
# Stalled operations, in percent, above which a network is called lossy although there is no outlier.
STALLS_EVERYWHERE_PERCENT = 1.0
_MIN_REPEATS_WITH_STALLS = 2
_NAN = math.nan
# A device of a host is numbered: node rank x DEVICES_PER_HOST + its place among the devices.
DEVICES_PER_HOST = 1 << 12
# The two ends of messages that go one way, first that of the first host of a pair.
SIDES = ("sending", "receiving")
_RAILS = DEVICES_PER_HOST // (len(SIDES) + 1)
# Cells (groups x repeats) beyond which a host's nonsense would fill the memory.
_MAX_CELLS = 50_000_000
_LOGS = tuple(array("f", [_NAN, *(packing.LOG_LEAST_US + code * packing.STEP for code in range(1, 0x10000))]))


def picked(values: Sequence[float], places: Sequence[int]) -> tuple[float, ...]:
    """The values at these places, in their unit."""
    return itemgetter(*places)(values) if len(places) > 1 else tuple(values[place] for place in places)


class End(NamedTuple):
    """An end of a pair: the node rank of its host, the rail of its device (-1: all), and one of SIDES, or neither."""

    rank: int
    rail: int
    side: str


def end_of(number: int) -> End:
    """The end that has a number in `Readings.ends`."""
    rank, device = divmod(number, DEVICES_PER_HOST)
    side, rail = divmod(device, _RAILS)
    return End(rank, rail - 1, ("", *SIDES)[side])


# The number of groups and of a group's hosts, and the columns of node ranks and rails.
_Told = tuple[int, int, str, str]


@dataclass(slots=True)
class Readings:
    """Groups and their times at `size_bytes`, as asked for: a group's place is its index in every column.

    `columns` has, by quantile and repeat, the logarithm of a time in microseconds of each group; NaN is no time.
    """

    size_bytes: int
    members: list[tuple[int, ...]] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    rails: list[int] = field(default_factory=list)
    world_sizes: array[int] = field(default_factory=lambda: array("i"))
    rounds: array[int] = field(default_factory=lambda: array("i"))
    # busbw in GB/s x p50 in microseconds, the same in each repeat
    work: array[float] = field(default_factory=lambda: array("d"))
    columns: dict[str, list[array[float]]] = field(default_factory=lambda: {name: [] for name in QUANTILES})
    stalled: list[dict[int, int]] = field(default_factory=list)
    iterations: int = 0
    _places: dict[tuple[object, ...], int] = field(default_factory=dict)
    # The places of a step's groups: the same in each repeat.
    _told: dict[_Told, Sequence[int]] = field(default_factory=dict)
    # The keys of the groups by the same, which the readings of all sizes share.
    _keys: dict[_Told, list[tuple[tuple[int, ...], int]]] = field(default_factory=dict)

    @property
    def repeats(self) -> int:
        """The number of repeats."""
        return len(self.stalled)

    def __len__(self) -> int:
        return len(self.members)

    def add(self, repeat: int, this_round: int, group: Mapping[str, Any]) -> None:
        """Take one group's result; `repeat` and `this_round` are indices from 0.

        Raises:
            KeyError, TypeError, ValueError: the group is none.
        """
        times = group["time_us"]
        logs = [math.log(float(next(times[key] for key in _NAMES[name] if key in times))) for name in QUANTILES]
        if not all(map(math.isfinite, logs)):
            raise ValueError(f"times {times} are none")
        members = tuple(int(rank) for rank in group["node_ranks"])
        hosts = [str(host) for host in group["hosts"]]
        if not members or not len(members) == len(set(members)) == len(hosts):
            raise ValueError(f"node ranks {members} of {len(hosts)} hosts")
        stalled, iterations = int(group.get("stalled_iterations", 0)), int(group.get("iterations", 0))
        work = float(group["busbw_GBps"]) * float(times["p50"])
        rail = int(group.get("rail", -1))
        self._grow(repeat)
        label = "" if rail >= 0 or str(group["group"]) == "-".join(hosts) else str(group["group"])
        place = self._place(members, label, rail, this_round, int(group["world_size"]), work)
        for name, value in zip(QUANTILES, logs, strict=True):
            self._column(name, repeat)[place] = value
        if stalled:
            self.stalled[repeat][place] = stalled
        self.iterations = max(self.iterations, iterations)

    def add_packed(self, repeat: int, this_round: int, columns: Mapping[str, Any]) -> None:
        """Take all groups of a packed step at once.

        Raises:
            KeyError, TypeError, ValueError: the step was not made by `packing.packed`.
        """
        count = int(columns["groups"])
        codes = {name: packing.decode(columns[_NAMES[name][0]]) for name in QUANTILES}
        stalls, iterations = columns["stalled_iterations"], int(columns.get("iterations", 0))
        stalled = {int(place): int(value) for place, value in stalls.items() if 0 <= int(place) < count}
        if any(len(each) != count for each in codes.values()):
            raise ValueError(packing.LENGTHS)
        places = self._packed_places(this_round, columns)
        self._grow(repeat)
        for name, column in codes.items():
            values = array("f", picked(_LOGS, column))
            if isinstance(places, range) and places.start == len(self.columns[name][repeat]):
                self.columns[name][repeat] += values
            target = self._column(name, repeat)
            if isinstance(places, range):
                target[places.start : places.stop] = values
            else:
                for place, value in zip(places, values, strict=True):
                    target[place] = value
        self.stalled[repeat] |= {places[place]: value for place, value in stalled.items() if value > 0}
        self.iterations = max(self.iterations, iterations)

    def _packed_places(self, this_round: int, columns: Mapping[str, Any]) -> Sequence[int]:
        """The places of the groups of a packed step, as a range where they follow one another; new groups are added."""
        count, wide = int(columns["groups"]), int(columns["hosts"])
        told = (count, wide, str(columns["node_ranks"]), str(columns.get("rails", "")))
        if told in self._told:
            return self._told[told]
        keys = self._keys.get(told)
        if keys is None:
            keys = self._keys[told] = packing.group_keys(columns)
        work = int(columns["size_bytes"]) / 1e3 * float(columns["busbw_over_algbw"])
        world_size = int(columns["world_size"])
        begin = len(self)
        if len(set(keys)) == count and self._places.keys().isdisjoint(keys):
            self.world_sizes += array("i", [world_size]) * count  # first: OverflowError beyond 31 bits
            self._places.update(zip(keys, range(begin, begin + count), strict=True))
            self.members += [members for members, _ in keys]
            self.labels += [""] * count
            self.rails += [rail for _, rail in keys]
            self.rounds += array("i", [this_round]) * count
            self.work += array("d", [work]) * count
            places: Sequence[int] = range(begin, begin + count)
        else:
            places = [self._place(members, "", rail, this_round, world_size, work) for members, rail in keys]
        self._told[told] = places
        return places

    def _place(
        self, members: tuple[int, ...], label: str, rail: int, this_round: int, world_size: int, work: float
    ) -> int:
        key = (members, rail) if not label else (members, label)
        place = self._places.get(key, len(self))
        if place == len(self):
            self.world_sizes.append(world_size)  # first: OverflowError beyond 31 bits
            self._places[key] = place
            self.members.append(members)
            self.labels.append(label)
            self.rails.append(rail)
            self.rounds.append(this_round)
            self.work.append(work)
        return place

    def _grow(self, repeat: int) -> None:
        if (repeat + 1) * (len(self) + 1) > _MAX_CELLS:
            raise ValueError(f"{repeat + 1} repeats of {len(self) + 1} groups are too many")
        while self.repeats <= repeat:
            self.stalled.append({})
            for column in self.columns.values():
                column.append(array("f"))

    def _column(self, name: str, repeat: int) -> array[float]:
        """The column of a repeat, as long as there are groups."""
        column = self.columns[name][repeat]
        if len(column) < len(self):
            column.extend([_NAN] * (len(self) - len(column)))
        return column

    def complete(self) -> set[int]:
        """Give a group that a repeat lacks the median of its other repeats: a host's record may lack a step.

        Returns the places of the groups that have no time in any repeat.
        """
        empty: set[int] = set()
        for name in QUANTILES:
            columns = [self._column(name, repeat) for repeat in range(self.repeats)]
            # A sum is NaN where a value is.
            for column in (each for each in columns if math.isnan(sum(each))):
                for place in [place for place, value in enumerate(column) if value != value]:
                    known = sorted(each[place] for each in columns if each[place] == each[place])
                    if known:
                        column[place] = known[(len(known) - 1) // 2]
                    else:
                        empty.add(place)
        return empty

    @property
    def is_one_way(self) -> bool:
        """Whether messages go from the first host of a pair to the second alone, and both orders were measured."""
        return any(members[0] > members[-1] for members in self.members)

    def ends(self) -> list[tuple[int, ...]]:
        """The ends of each pair, by their numbers: what a host is in it; see `end_of`."""
        first, second = (_RAILS, 2 * _RAILS) if self.is_one_way else (0, 0)
        wide = DEVICES_PER_HOST
        return [
            (one * wide + first + rail + 1, other * wide + second + rail + 1)
            for (one, other), rail in zip(self.members, self.rails, strict=True)
        ]

    def choose(self, places: Sequence[int]) -> Readings:
        """Some of the groups, in this order."""
        if len(places) == len(self):
            return self
        new = {old: place for place, old in enumerate(places)}
        return Readings(
            size_bytes=self.size_bytes,
            members=[self.members[place] for place in places],
            labels=[self.labels[place] for place in places],
            rails=[self.rails[place] for place in places],
            world_sizes=array("i", [self.world_sizes[place] for place in places]),
            rounds=array("i", [self.rounds[place] for place in places]),
            work=array("d", [self.work[place] for place in places]),
            columns={
                name: [array("f", [column[place] for place in places]) for column in columns]
                for name, columns in self.columns.items()
            },
            stalled=[{new[place]: value for place, value in each.items() if place in new} for each in self.stalled],
            iterations=self.iterations,
        )

    def label(self, place: int, names: Mapping[int, str]) -> str:
        """The name of a group: its own, or that of its hosts."""
        rail = self.rails[place]
        hosts = "-".join(names[rank] for rank in self.members[place])
        return self.labels[place] or (hosts if rail < 0 else f"{hosts} rail {rail}")

    def cell(self, place: int, names: Mapping[int, str]) -> Cell:
        """A group over the repeats."""
        times = [math.exp(column[place]) for column in self.columns["middle"]]
        return Cell(
            group=self.label(place, names),
            hosts=tuple(names[rank] for rank in self.members[place]),
            node_ranks=self.members[place],
            world_size=self.world_sizes[place],
            rate=median_of([1e6 / time for time in times]),
            busbw_gbps=median_of([self.work[place] / time for time in times]),
        )


class Scan:
    """The measurements of rank 0 so far: the readings of each size, and the hosts' names by node rank."""

    def __init__(self, names: Mapping[int, str] | None = None) -> None:
        self._given = dict(names or {})
        self._own: dict[int, str] = {}
        self.patterns: set[str] = set()
        self.collective = ""
        self.sizes: dict[int, Readings] = {}
        self._keys: dict[_Told, list[tuple[tuple[int, ...], int]]] = {}
        self.round_names: list[str] = []
        self._round_of: dict[str, int] = {}
        self._repeats: dict[int, int] = {}

    @property
    def names(self) -> dict[int, str]:
        """Every host's name by node rank: the user's, else its own."""
        ranks = set(chain.from_iterable(chain.from_iterable(each.members for each in self.sizes.values())))
        return {rank: self._given.get(rank, self._own.get(rank, f"node {rank}")) for rank in sorted(ranks)}

    @property
    def stalled_percent(self) -> float:
        """The operations that stall, in percent of all; 0 where they do so in one repeat alone."""
        stalled = done = 0
        with_stalls: set[int] = set()
        for each in self.sizes.values():
            stalled += sum(sum(own.values()) for own in each.stalled)
            done += len(each) * each.repeats * each.iterations
            with_stalls |= {repeat for repeat, own in enumerate(each.stalled) if own}
        return 100 * stalled / done if done and len(with_stalls) >= _MIN_REPEATS_WITH_STALLS else 0.0

    def add(self, step: Mapping[str, Any]) -> None:
        """Take the value of a STEP_END; what has another form (another workload's) is skipped, as is a damaged one."""
        groups: Any = [step] if "node_ranks" in step else step.get("groups", ())
        self._own |= packing.host_names(step)
        try:
            where = str(step["pattern"]), str(step["round"]), int(step["repeat"])
            self.collective = str(step.get("collective", self.collective))
            columns = step.get("packed")
            if isinstance(columns, Mapping):
                size = int(step.get("size_bytes", columns["size_bytes"]))
                readings, repeat, this_round = self._where(*where, size)
                readings.add_packed(repeat, this_round, columns)
                return
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):  # a host may send anything
            return
        for group in groups if isinstance(groups, list) else ():
            try:
                size = int(step.get("size_bytes", group["size_bytes"]))
                readings, repeat, this_round = self._where(*where, size)
                readings.add(repeat, this_round, group)
                named = zip(group["node_ranks"], group["hosts"], strict=True)
                self._own |= {int(rank): str(name) for rank, name in named}
            except (KeyError, TypeError, ValueError, AttributeError, OverflowError, StopIteration):
                continue

    def _where(self, pattern: str, name: str, repeat: int, size: int) -> tuple[Readings, int, int]:
        self.patterns.add(pattern)
        if name not in self._round_of:
            self._round_of[name] = len(self.round_names)
            self.round_names.append(name)
        index = self._repeats.setdefault(repeat, len(self._repeats))
        if size not in self.sizes:
            self.sizes[size] = Readings(size, _keys=self._keys)
        return self.sizes[size], index, self._round_of[name]

    def of_size(self, size_bytes: int, begin: str = "") -> Readings:
        """The readings at a size in bytes, of the rounds whose name begins with `begin`, without gaps."""
        readings = self.sizes[size_bytes]
        empty = readings.complete()
        wanted = [name.startswith(begin) for name in self.round_names]
        rounds = enumerate(readings.rounds)
        return readings.choose([place for place, number in rounds if wanted[number] and place not in empty])

    def largest_and_smallest(self) -> tuple[int, int]:
        """The largest and the smallest size in bytes that have readings."""
        measured = [size for size, readings in self.sizes.items() if len(readings)]
        return max(measured), min(measured)


def scan_of(
    steps: Iterator[Mapping[str, Any]] | Sequence[Mapping[str, Any]], names: Mapping[int, str] | None = None
) -> Scan:
    """The scan of the values of rank 0's STEP_END."""
    scan = Scan(names)
    with without_collection():
        for step in steps:
            scan.add(step)
    return scan
