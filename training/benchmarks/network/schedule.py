"""Lays out the cluster patterns as pure data: which ranks measure together, and in which order."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class HostRanks:
    """One host of the job: its node rank, its name, and its global ranks in local order."""

    node_rank: int
    name: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Ranks that form one team, in ascending order, and their hosts."""

    hosts: tuple[HostRanks, ...]
    ranks: tuple[int, ...]
    label: str


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
    once. halves: first each half of the hosts within itself, then each host of the first with its counterpart in the
    second (the bisection). k_batch: `batch_hosts` hosts at a time; a smaller rest forms a batch of its own, a single
    host joins the previous batch. rail: the ranks of the same local rank on all hosts.

    Raises:
        ValueError: there are too few hosts, or rails need equal rank counts on all hosts.
    """
    makers = {"all": _all, "each": _each, "rail": _rails}
    if pattern in makers:
        return makers[pattern](hosts)
    if len(hosts) < 2:
        raise ValueError(f"pattern {pattern!r} needs 2 hosts or more, found {len(hosts)}")
    chosen = [
        HostRanks(node_rank=host.node_rank, name=host.name, ranks=host.ranks[:1]) if ranks_per_host == "one" else host
        for host in hosts
    ]
    if pattern == "pairs":
        return _pairs(chosen)
    if pattern == "halves":
        return _halves(chosen)
    if pattern == "k_batch":
        return _batches(chosen, batch_hosts)
    raise ValueError(f"unknown pattern {pattern!r}; known: all, each, pairs, halves, k_batch, rail")


def _group(hosts: Sequence[HostRanks], label: str = "") -> Group:
    ranks = tuple(sorted(rank for host in hosts for rank in host.ranks))
    return Group(hosts=tuple(hosts), ranks=ranks, label=label or "-".join(host.name for host in hosts))


def _all(hosts: Sequence[HostRanks]) -> tuple[ConcurrentGroups, ...]:
    return (ConcurrentGroups(name="all", groups=(_group(hosts, "all"),)),)


def _each(hosts: Sequence[HostRanks]) -> tuple[ConcurrentGroups, ...]:
    return (ConcurrentGroups(name="each", groups=tuple(_group([host]) for host in hosts)),)


def _pairs(hosts: Sequence[HostRanks]) -> tuple[ConcurrentGroups, ...]:
    """A round-robin tournament by the circle method: one place is fixed, the others rotate; an odd host rests."""
    circle: list[HostRanks | None] = [*hosts] if len(hosts) % 2 == 0 else [*hosts, None]
    found = []
    for number in range(1, len(circle)):
        half = len(circle) // 2
        matches = zip(circle[:half], reversed(circle[half:]), strict=True)
        ordered = [sorted((a, b), key=lambda host: host.node_rank) for a, b in matches if a and b]
        found.append(ConcurrentGroups(name=f"pairs {number}", groups=tuple(_group(pair) for pair in ordered)))
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return tuple(found)


def _halves(hosts: Sequence[HostRanks]) -> tuple[ConcurrentGroups, ...]:
    half = len(hosts) // 2
    first, second = hosts[:half], hosts[half:]
    within = (_group(first, "first half"), _group(second, "second half"))
    across = tuple(_group(pair) for pair in zip(first, second, strict=False))
    return (ConcurrentGroups(name="within", groups=within), ConcurrentGroups(name="across", groups=across))


def _batches(hosts: Sequence[HostRanks], size: int) -> tuple[ConcurrentGroups, ...]:
    batches = [list(hosts[begin : begin + size]) for begin in range(0, len(hosts), size)]
    if len(batches) > 1 and len(batches[-1]) == 1:
        single = batches.pop()
        batches[-1] += single
    numbers = count(1)
    return (
        ConcurrentGroups(name="k_batch", groups=tuple(_group(batch, f"batch {next(numbers)}") for batch in batches)),
    )


def _rails(hosts: Sequence[HostRanks]) -> tuple[ConcurrentGroups, ...]:
    widths = {len(host.ranks) for host in hosts}
    if len(widths) != 1:
        raise ValueError(f"pattern 'rail' needs as many ranks on every host, found {sorted(widths)}")
    rails = []
    for local_rank in range(widths.pop()):
        on_rail = [
            HostRanks(node_rank=host.node_rank, name=host.name, ranks=(host.ranks[local_rank],)) for host in hosts
        ]
        rails.append(_group(on_rail, f"rail {local_rank}"))
    return (ConcurrentGroups(name="rail", groups=tuple(rails)),)
