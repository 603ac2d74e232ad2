"""Lays out the cluster patterns as pure data: which ranks measure together, and in which order."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, count
from typing import Literal

from training.benchmarks.network.patterns.designs import Members, batches, tournament


@dataclass(frozen=True, kw_only=True, slots=True)
class HostRanks:
    """One host of the job: its node rank, its name, and its global ranks in local order."""

    node_rank: int
    name: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Ranks that form one team, in ascending order, and their hosts; `rail` is the local rank of a pair on a rail."""

    hosts: tuple[HostRanks, ...]
    ranks: tuple[int, ...]
    label: str
    rail: int | None = None

    def backwards(self) -> "Group":
        """The group of a pair with its hosts in the other order: the second sends to the first."""
        rail = "" if self.rail is None else f" rail {self.rail}"
        return replace(self, hosts=self.hosts[::-1], label="-".join(host.name for host in self.hosts[::-1]) + rail)


@dataclass(frozen=True, kw_only=True, slots=True)
class ConcurrentGroups:
    """Groups without a rank in common that measure at the same time."""

    name: str
    groups: tuple[Group, ...]


def rounds(
    pattern: str, hosts: Sequence[HostRanks], *, ranks_per_host: Literal["one", "all"] = "all", batch_hosts: int = 2
) -> tuple[ConcurrentGroups, ...]:
    """The rounds of a pattern.

    all: all ranks. each: every host alone, all at once. pairs: every pair of hosts exactly once, those of a round at
    once. rail_pairs: the same, with each rail by itself and all rails at once. halves: first each half of the hosts
    within itself, then each host of the first with its counterpart in the second (the bisection). k_batch:
    `batch_hosts` hosts at a time; a smaller rest forms a batch of its own, a single host joins the previous batch.
    rail: the ranks of the same local rank on all hosts. peers: every two ranks of a host, one pair of each host at a
    time. adaptive: the batches with which a search begins.

    Raises:
        ValueError: there are too few hosts, or rails need equal rank counts on all hosts.
    """
    makers = {"all": _all, "each": _each, "rail": _rails, "peers": _peers}
    if pattern in makers:
        return makers[pattern](hosts)
    chosen = taking_part(hosts, ranks_per_host)
    among = {"pairs": _pairs, "rail_pairs": _rail_pairs, "halves": _halves, "adaptive": _searched}
    if pattern not in (*among, "k_batch"):
        raise ValueError(f"unknown pattern {pattern!r}; known: {', '.join((*makers, *among, 'k_batch'))}")
    if len(hosts) < 2:
        raise ValueError(f"pattern {pattern!r} needs 2 hosts or more, found {len(hosts)}")
    return _batches(chosen, batch_hosts) if pattern == "k_batch" else among[pattern](chosen)


def taking_part(hosts: Sequence[HostRanks], ranks_per_host: Literal["one", "all"]) -> list[HostRanks]:
    """The hosts with those of their ranks that take part."""
    if ranks_per_host == "all":
        return [*hosts]
    return [HostRanks(node_rank=host.node_rank, name=host.name, ranks=host.ranks[:1]) for host in hosts]


def group_of(hosts: Sequence[HostRanks], label: str = "") -> Group:
    """The group of all ranks of these hosts; its label is their names unless given."""
    ranks = tuple(sorted(rank for host in hosts for rank in host.ranks))
    return Group(hosts=tuple(hosts), ranks=ranks, label=label or "-".join(host.name for host in hosts))


def _all(hosts: Sequence[HostRanks]) -> tuple[ConcurrentGroups, ...]:
    return (ConcurrentGroups(name="all", groups=(group_of(hosts, "all"),)),)


def _each(hosts: Sequence[HostRanks]) -> tuple[ConcurrentGroups, ...]:
    return (ConcurrentGroups(name="each", groups=tuple(group_of([host]) for host in hosts)),)


def _peers(hosts: Sequence[HostRanks]) -> tuple[ConcurrentGroups, ...]:
    """One pair of local ranks a round, on all hosts: nothing else runs on a host's links meanwhile."""
    width = _width(hosts, "peers")
    if width < 2:
        raise ValueError("pattern 'peers' needs 2 ranks or more on every host, found 1")
    return tuple(
        ConcurrentGroups(name=f"peers {one}-{other}", groups=tuple(_peer_group(host, (one, other)) for host in hosts))
        for one, other in combinations(range(width), 2)
    )


def _peer_group(host: HostRanks, places: tuple[int, int]) -> Group:
    ranks = tuple(host.ranks[place] for place in places)
    chosen = HostRanks(node_rank=host.node_rank, name=host.name, ranks=ranks)
    return group_of([chosen], f"{host.name} {places[0]}-{places[1]}")


def _of_places(name: str, groups: Sequence[Members], hosts: Sequence[HostRanks]) -> ConcurrentGroups:
    return ConcurrentGroups(name=name, groups=tuple(group_of([hosts[place] for place in group]) for group in groups))


def _searched(hosts: Sequence[HostRanks]) -> tuple[ConcurrentGroups, ...]:
    return tuple(_of_places("batches", each, hosts) for each in batches([(*range(len(hosts)),)]))


def _pairs(hosts: Sequence[HostRanks]) -> tuple[ConcurrentGroups, ...]:
    """A round-robin tournament of the hosts in the order of their node ranks."""
    ordered = sorted(hosts, key=lambda host: host.node_rank)
    found = enumerate(tournament(len(ordered)), start=1)
    return tuple(_of_places(f"pairs {number}", pairs, ordered) for number, pairs in found)


def _rail_pairs(hosts: Sequence[HostRanks]) -> tuple[ConcurrentGroups, ...]:
    """The rounds of `pairs`, in which the ranks of the same local rank form a group each: every NIC by itself."""
    width = _width(hosts, "rail_pairs")
    found = []
    for each in _pairs(hosts):
        groups = tuple(
            replace(_on_rail(group.hosts, rail, f"{group.label} rail {rail}"), rail=rail)
            for group in each.groups
            for rail in range(width)
        )
        found.append(ConcurrentGroups(name=each.name, groups=groups))
    return tuple(found)


def _halves(hosts: Sequence[HostRanks]) -> tuple[ConcurrentGroups, ...]:
    half = len(hosts) // 2
    first, second = hosts[:half], hosts[half:]
    within = (group_of(first, "first half"), group_of(second, "second half"))
    across = tuple(group_of(pair) for pair in zip(first, second, strict=False))
    return (ConcurrentGroups(name="within", groups=within), ConcurrentGroups(name="across", groups=across))


def _batches(hosts: Sequence[HostRanks], size: int) -> tuple[ConcurrentGroups, ...]:
    batches = [list(hosts[begin : begin + size]) for begin in range(0, len(hosts), size)]
    if len(batches) > 1 and len(batches[-1]) == 1:
        single = batches.pop()
        batches[-1] += single
    numbers = count(1)
    return (
        ConcurrentGroups(name="k_batch", groups=tuple(group_of(batch, f"batch {next(numbers)}") for batch in batches)),
    )


def _rails(hosts: Sequence[HostRanks]) -> tuple[ConcurrentGroups, ...]:
    rails = tuple(_on_rail(hosts, rail, f"rail {rail}") for rail in range(_width(hosts, "rail")))
    return (ConcurrentGroups(name="rail", groups=rails),)


def _width(hosts: Sequence[HostRanks], pattern: str) -> int:
    """The number of ranks of every host."""
    widths = {len(host.ranks) for host in hosts}
    if len(widths) != 1:
        raise ValueError(f"pattern {pattern!r} needs as many ranks on every host, found {sorted(widths)}")
    return widths.pop()


def _on_rail(hosts: Sequence[HostRanks], rail: int, label: str) -> Group:
    """The ranks of one local rank."""
    chosen = [HostRanks(node_rank=host.node_rank, name=host.name, ranks=(host.ranks[rail],)) for host in hosts]
    return group_of(chosen, label)
