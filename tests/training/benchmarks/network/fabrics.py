"""Steps of a scan of all pairs in tiered fabrics, healthy or with a fault; the pairs of a round share uplinks.

A pair's message takes its latency and its size over its rate: that of its slower host, or less if it leaves a rack (or
a pod) whose uplinks do not suffice for all pairs of the round that leave it at the same time.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.training.benchmarks.network.simulation import summaries
from training.benchmarks.network.patterns.schedule import ConcurrentGroups, Group, HostRanks, rounds

SIZES = (8, 4 << 20)
ITERATIONS = 20
Part = int | tuple[int, ...] | tuple[int, str] | frozenset[int]


@dataclass(frozen=True)
class Fabric:
    """`racks` of `hosts_of_rack` hosts each, `racks_of_pod` racks a pod; rates in GB/s of one rail, latencies in us.

    `rack_over` and `pod_over` are the oversubscriptions of the uplinks. Within a rack the rate may be another.
    """

    racks: int
    hosts_of_rack: int
    racks_of_pod: int = 1_000_000
    rails: int = 1
    rate: float = 50.0
    rate_in_rack: float = 50.0
    rack_over: float = 1.0
    pod_over: float = 1.0
    latency_us: tuple[float, float, float] = (10.0, 12.0, 14.0)
    order: tuple[int, ...] = ()  # the place in the racks of each node rank; empty: the same number

    @property
    def hosts(self) -> int:
        return self.racks * self.hosts_of_rack

    def block(self, host: int, tier: int) -> int:
        """The number of a host's rack (tier 0) or pod (tier 1)."""
        return (self.order[host] if self.order else host) // self.hosts_of_rack // (1, self.racks_of_pod)[tier]

    def level(self, pair: Sequence[int]) -> int:
        """0 within a rack, 1 within a pod, 2 across pods."""
        return next((tier for tier in (0, 1) if self.block(pair[0], tier) == self.block(pair[1], tier)), 2)


FABRICS = {
    "fat tree": Fabric(4, 4),
    "fat tree of pods": Fabric(8, 4, racks_of_pod=2, latency_us=(10.0, 20.0, 40.0)),
    "2:1, two leaves": Fabric(2, 4, rack_over=2.0),
    "2:1, four leaves": Fabric(4, 8, rack_over=2.0),
    "2:1 and 4:1": Fabric(8, 4, racks_of_pod=4, rack_over=2.0, pod_over=4.0),
    "rail-optimised": Fabric(2, 8, rails=4, rack_over=1.0),
    "rail-optimised, 2:1": Fabric(2, 8, rails=4, rack_over=2.0),
    "2:1, two leaves, equal latency": Fabric(2, 4, rack_over=2.0, latency_us=(10.0, 10.0, 10.0)),
    "4:1, hosts in another order": Fabric(3, 4, rack_over=4.0, order=(9, 6, 4, 7, 5, 11, 1, 3, 2, 10, 8, 0)),
    "4:1 without latency tiers, in another order": Fabric(
        3, 4, rack_over=4.0, order=(9, 6, 4, 7, 5, 11, 1, 3, 2, 10, 8, 0), latency_us=(10.0, 10.0, 10.0)
    ),
    "3:1, racks of odd size": Fabric(5, 3, rack_over=3.0),
    "NVLink racks": Fabric(4, 4, rate_in_rack=400.0, latency_us=(3.0, 9.0, 9.0)),
}


@dataclass(frozen=True)
class Ailment:
    """What is wrong, by node rank, (node rank, rail) or two node ranks: a factor of the rate, more latency in us.

    (node rank, "sending") and (node rank, "receiving") are one direction of a host where messages go one way, two node
    ranks in their order that of a path.
    `uplinks` has by the number of a rack the factor of its uplinks' rate, `uplinks_us` the latency that they add.
    """

    rate: Mapping[Part, float] = field(default_factory=dict)
    delay_us: Mapping[Part, float] = field(default_factory=dict)
    uplinks: Mapping[int, float] = field(default_factory=dict)
    uplinks_us: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Hashing:
    """Static ECMP: the share of the pairs that leave a rack and have the link of another flow, which halves their rate.

    `is_fixed`: by the hosts' addresses, in all repeats alike; else each repeat's connections draw again.
    """

    collisions: float = 0.0
    is_fixed: bool = True


NO_COLLISIONS = Hashing()


def steps(
    fabric: Fabric,
    ailment: Ailment,
    seed: int,
    *,
    repeats: int = 3,
    pattern: str = "pairs",
    noise: float = 0.02,
    hashing: Hashing = NO_COLLISIONS,
    one_way: bool = False,
) -> list[dict[str, Any]]:
    """STEP_END values; `noise` is the standard deviation of a measurement's logarithm, and of half an iteration's.

    `one_way`: the first host of a pair sends to the second, then the second to the first, as send_recv does.
    """
    draw = np.random.default_rng(seed)
    width = fabric.rails
    hosts = [
        HostRanks(node_rank=k, name=f"node{k + 1}", ranks=tuple(range(k * width, (k + 1) * width)))
        for k in range(fabric.hosts)
    ]
    found = []
    for repeat in range(1, repeats + 1):
        for each in _orders(rounds(pattern, hosts), one_way):
            rates = _rates(fabric, ailment, each.groups)
            if hashing.collisions:
                rates = rates * _collided(fabric, each, hashing, (seed, 0 if hashing.is_fixed else repeat))
            for size in SIZES:
                level = np.array([_latency(fabric, ailment, group) for group in each.groups]) + size / rates / 1e3
                whole = level * np.exp(draw.normal(0, noise, len(level)))
                times = whole[:, None] * np.exp(np.abs(draw.normal(0, 2 * noise, (len(level), ITERATIONS))))
                told = summaries(times, size)
                groups = [_group(group, size) | own for group, own in zip(each.groups, told, strict=True)]
                place = {"pattern": pattern, "repeat": repeat, "round": each.name, "size_bytes": size}
                found.append(place | {"groups": groups})
    return found


def _orders(found: Sequence[ConcurrentGroups], one_way: bool) -> Iterator[ConcurrentGroups]:
    for each in found:
        yield each
        if one_way:
            yield ConcurrentGroups(name=f"{each.name}, back", groups=tuple(own.backwards() for own in each.groups))


def _collided(
    fabric: Fabric, this_round: ConcurrentGroups, hashing: Hashing, seeds: Sequence[int]
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The factor of each group's rate."""
    draw = np.random.default_rng([*seeds, *map(ord, this_round.name)])
    leaves = [fabric.level([host.node_rank for host in group.hosts]) > 0 for group in this_round.groups]
    return np.where((draw.random(len(leaves)) < hashing.collisions) & leaves, 0.5, 1.0)


def _keys(group: Group) -> list[Part]:
    """What a group's rate and latency depend on."""
    ranks = [host.node_rank for host in group.hosts]
    rail = f"rail {group.rail}"
    sides = [*zip(ranks, ("sending", "receiving"), strict=True)] if len(ranks) == 2 else []
    of_rails = [*((rank, rail) for rank in ranks), *((rank, f"{rail} {side}") for rank, side in sides)]
    return [*ranks, *sides, tuple(ranks), *of_rails, frozenset(ranks)]


def _rates(fabric: Fabric, ailment: Ailment, groups: Sequence[Group]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """GB/s of each group of a round. A group of all ranks uses all rails."""
    pairs = [[host.node_rank for host in group.hosts] for group in groups]
    leaving: Counter[tuple[int, int, int | None]] = Counter()
    for pair, group in zip(pairs, groups, strict=True):
        leaving.update(
            (tier, fabric.block(host, tier), group.rail) for tier in range(fabric.level(pair)) for host in pair
        )
    found = []
    for pair, group in zip(pairs, groups, strict=True):
        level, own = fabric.level(pair), min(ailment.rate.get(key, 1.0) for key in _keys(group))
        rate = own * (fabric.rate_in_rack if level == 0 else fabric.rate)
        for tier in range(level):
            hosts = fabric.hosts_of_rack * (1, fabric.racks_of_pod)[tier]
            uplinks = fabric.rate * hosts / (fabric.rack_over, fabric.rack_over * fabric.pod_over)[tier]
            factors = [ailment.uplinks.get(fabric.block(host, 0), 1.0) if tier == 0 else 1.0 for host in pair]
            shares = [
                factor * uplinks / leaving[tier, fabric.block(host, tier), group.rail]
                for host, factor in zip(pair, factors, strict=True)
            ]
            rate = min(rate, *shares)
        found.append(rate * (fabric.rails if group.rail is None else 1))
    return np.array(found)


def _latency(fabric: Fabric, ailment: Ailment, group: Group) -> float:
    pair = [host.node_rank for host in group.hosts]
    level = fabric.level(pair)
    racks = {fabric.block(host, 0) for host in pair} if level else set()
    more = sum(ailment.uplinks_us.get(rack, 0.0) for rack in racks)
    return fabric.latency_us[level] + more + sum(ailment.delay_us.get(key, 0.0) for key in _keys(group))


def _group(group: Group, size: int) -> dict[str, Any]:
    return {
        "group": group.label,
        **({} if group.rail is None else {"rail": group.rail}),
        "hosts": [host.name for host in group.hosts],
        "node_ranks": [host.node_rank for host in group.hosts],
        "world_size": len(group.ranks),
        "size_bytes": size,
        "iterations": ITERATIONS,
    }
