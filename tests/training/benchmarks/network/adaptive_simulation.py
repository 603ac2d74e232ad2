"""Many adaptive searches in a modelled cluster with bad hosts or links: how often they are named, in how many rounds.

    python -m tests.training.benchmarks.network.adaptive_simulation [runs] [--write docs/data/adaptive-search.csv]

docs/reference/network-benchmarks.md shows the rows.

All hosts of a group exchange with all others (all_to_all): a small message takes the latency and the longest delay in
the group, a large one the time of the slowest host's NIC, or of the slowest path, which carries one part of n - 1. The
noise is that of simulation.py: of each iteration, of each measurement, bursts, spikes, and a drift between repeats.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tests.training.benchmarks.network.simulation import (
    BUSY,
    LATE,
    QUIET,
    SIZES,
    SLOW_PERCENT,
    FloatArray,
    Noise,
    main,
    noisy,
    sent_again_us,
)
from training.benchmarks.network.patterns.designs import Members
from training.benchmarks.network.patterns.tiers import Tiers
from training.benchmarks.network.patterns.topology import Topology
from training.benchmarks.network.slow_parts.adaptive import Search
from training.benchmarks.network.slow_parts.comparison import PeerComparison, ScanRound, Times
from training.benchmarks.network.slow_parts.ground import ground_of, searched
from training.benchmarks.network.slow_parts.judge import Bounds

REPEATS, ITERATIONS = 3, 20
COUNTS = (8, 16, 64, 256, 512, 1024)
COLUMNS = ("network", "hosts", "fault", "bad", "runs", "named, %", "false alarm, % of runs", "rounds, median", "most")


@dataclass(frozen=True)
class Faults:
    """Factors of the rate and microseconds more, by host (one member) or by link (two members in order); shares of
    packets that a host loses."""

    rate: Mapping[Members, float] = field(default_factory=dict)
    delay_us: Mapping[Members, float] = field(default_factory=dict)
    packets: Mapping[Members, float] = field(default_factory=dict)

    @property
    def truth(self) -> set[Members]:
        """What is bad."""
        return {*self.rate, *self.delay_us, *self.packets}


@dataclass(frozen=True)
class Racks:
    """The rack of each host, the oversubscription of the uplinks, and microseconds that a message across racks adds."""

    of: tuple[int, ...]
    over: float = 4.0
    more_us: float = 0.0

    @classmethod
    def drawn(cls, hosts: int, of_rack: int, seed: int, *, more_us: float = 0.0) -> Racks:
        """Racks of so many hosts each, which stand in random order in the list."""
        order = np.random.default_rng([seed, hosts]).permutation(hosts)
        return cls(of=tuple(int(place) // of_rack for place in order), more_us=more_us)


class Cluster:
    """A modelled cluster that measures the rounds of a search."""

    def __init__(self, noise: Noise, faults: Faults, seed: int, racks: Racks | None = None) -> None:
        self._noise, self._faults, self._racks = noise, faults, racks
        self._draw = np.random.default_rng(seed)
        self._links: dict[int, list[Members]] = {}
        for link in faults.truth:
            for host in link if len(link) == 2 else ():
                self._links.setdefault(host, []).append(link)

    def measure(self, this_round: ScanRound) -> list[Times]:
        """The times of every group, REPEATS times."""
        small, large = SIZES
        latency = np.array([self._noise.latency_us + self._delay(group) for group in this_round.groups])
        transfers = np.array([self._transfer_us(group, large) for group in this_round.groups])
        if self._racks is not None:
            across = [len({self._racks.of[host] for host in group}) > 1 for group in this_round.groups]
            latency = latency + np.where(across, self._racks.more_us, 0.0)
            transfers = np.maximum(transfers, self._uplinks_us(this_round.groups, large, self._racks))
        bandwidth = transfers + latency
        latency = latency + small / self._noise.rate_gbps / 1e3
        found: list[Times] = []
        for _ in range(REPEATS):
            drift = np.exp(self._draw.normal(0, self._noise.drift))
            medians = [
                np.median(self._noisy(times * drift, this_round.groups, size), axis=1)
                for times, size in ((latency, small), (bandwidth, large))
            ]
            found.append(
                {
                    group: {"latency": float(medians[0][place]), "bandwidth": float(medians[1][place])}
                    for place, group in enumerate(this_round.groups)
                }
            )
        return found

    def _noisy(self, times: FloatArray, groups: Sequence[Members], size: int) -> FloatArray:
        """Every iteration's time in each group, with the packets that its worst host loses."""
        found = noisy(times, np.zeros(len(times)), self._noise, self._draw, ITERATIONS)
        if self._faults.packets:
            lost = np.array([max(self._faults.packets.get((host,), 0.0) for host in group) for group in groups])
            found += sent_again_us(lost, size, self._noise, self._draw, ITERATIONS)
        return found

    def _within(self, group: Members) -> list[Members]:
        """The bad links between two hosts of the group."""
        chosen = set(group)
        return [link for host in group for link in self._links.get(host, ()) if set(link) <= chosen]

    def _delay(self, group: Members) -> float:
        slow = self._faults.delay_us
        return max((slow.get(part, 0.0) for part in [*((host,) for host in group), *self._within(group)]), default=0.0)

    def _transfer_us(self, group: Members, size: int) -> float:
        """A host sends (n - 1) / n of the message on its NIC, 1 / n on each path."""
        n, rate = len(group), self._faults.rate
        nic = size * (n - 1) / n / min(rate.get((host,), 1.0) for host in group)
        path = size / n / min((rate.get(link, 1.0) for link in self._within(group)), default=1.0)
        return max(nic, path) / self._noise.rate_gbps / 1e3

    def _uplinks_us(self, groups: Sequence[Members], size: int, racks: Racks) -> FloatArray:
        """The time of each group on the slowest of its racks' uplinks, which all groups of the round share."""
        leaving: dict[int, float] = {}
        of_groups = [Counter(racks.of[host] for host in group) for group in groups]
        for group, own in zip(groups, of_groups, strict=True):
            for rack, inside in own.items():
                more = inside * (len(group) - inside) * size / len(group)
                leaving[rack] = leaving.get(rack, 0.0) + more
        rate = self._noise.rate_gbps * max(Counter(racks.of).values()) / racks.over
        return np.array([max(leaving[rack] / rate / 1e3 if len(own) > 1 else 0.0 for rack in own) for own in of_groups])


@dataclass(frozen=True)
class Found:
    """What a search named, its rounds, and what it says that it did not see."""

    named: frozenset[Members]
    rounds: int
    unseen: str


def search(
    count: int, noise: Noise, faults: Faults, seed: int, find: Search, racks: Racks | None = None, *, told: bool = False
) -> Found:
    """One search. In a cluster with racks they are learnt first, unless they are told."""
    cluster = Cluster(noise, faults, seed, racks)
    tiers = Tiers(blocks=(dict(enumerate(racks.of)),)) if racks and told else None
    around = Topology(tiers=tiers if racks else Tiers())
    comparison = PeerComparison(Bounds(slow_percent=SLOW_PERCENT, late_percent=LATE))
    steps = searched(ground_of(range(count), around), comparison, find)
    this_round = next(steps)
    while True:
        try:
            this_round = steps.send(cluster.measure(this_round))
        except StopIteration as end:
            result, ground = end.value
            return Found(
                frozenset(each.members for each in result.bad), result.rounds, ground.unseen([*map(str, range(count))])
            )


# Kind of fault: whether links are bad, and how: a factor of the rate, or units of delay (50 us quiet, 5 ms busy).
KINDS: dict[str, tuple[bool, float, float]] = {
    "host, rate -30 %": (False, 0.7, 0.0),
    "host, delay": (False, 1.0, 1.0),
    "link, delay": (True, 1.0, 1.0),
    "link, rate -98 %": (True, 0.02, 0.0),
    "link, rate -50 %": (True, 0.5, 0.0),
}


def drawn(kind: str, bad: int, count: int, noise: Noise, seed: int) -> Faults:
    """`bad` hosts or links at random."""
    is_link, rate, delay = KINDS[kind]
    draw = np.random.default_rng([seed, count, bad])
    members: set[Members] = set()
    while len(members) < bad:
        members.add(tuple(sorted(int(host) for host in draw.choice(count, 2 if is_link else 1, replace=False))))
    unit = 5000.0 if noise is BUSY else 50.0
    if delay:
        return Faults(delay_us=dict.fromkeys(members, delay * unit))
    return Faults(rate=dict.fromkeys(members, rate))


def row(network: str, count: int, kind: str, bad: int, runs: int) -> tuple[str | int, ...]:
    """A row of the table: share of the bad that was named, runs in which somebody else was, rounds: median and most."""
    noise = BUSY if network == "busy" else QUIET
    find: Search = "links" if kind.startswith("link") else "hosts"
    hits, false, rounds = 0, 0, []
    for seed in range(runs):
        faults = drawn(kind, bad, count, noise, seed) if bad else Faults()
        found = search(count, noise, faults, seed, find)
        hits += len(found.named & faults.truth)
        false += bool(found.named - faults.truth)
        rounds.append(found.rounds)
    share = f"{100 * hits / (runs * bad):.0f}" if bad else "-"
    fault = kind if bad else f"none, {kind.split(',')[0]}s searched"
    return network, count, fault, bad, runs, share, f"{100 * false / runs:.1f}", int(np.median(rounds)), max(rounds)


def table(runs: int, counts: tuple[int, ...] = COUNTS) -> str:
    """The rows of the documentation, as CSV with a header."""
    lines: list[tuple[str | int, ...]] = [COLUMNS]
    for network in ("quiet", "busy"):
        for count in counts:
            few = max(min(runs, 10), min(runs, runs * 64 // count))
            for kind in ("host, rate -30 %", "link, delay"):
                lines.append(row(network, count, kind, 0, 4 * few))
            for kind in KINDS:
                lines += [row(network, count, kind, bad, few) for bad in (1, 2, 5)]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


if __name__ == "__main__":
    main(table, 100)
