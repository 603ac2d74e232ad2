"""Lays rings over a group: one for each rank of a server, rotated by one local rank each."""

from collections.abc import Sequence
from typing import NamedTuple

from simulation.flows.groups import RankGroup


class RingHop(NamedTuple):
    """A rank's place in a ring. `entry` and `exit` are the ranks over which the ring enters and leaves its server."""

    rank: int
    previous: int
    following: int
    entry: int
    exit: int


def rotated_servers(group: RankGroup, turn: int) -> list[tuple[int, ...]]:
    """Ranks of each server in the order of ring number `turn`: beginning at local rank `turn`, wrapping round."""
    return [ranks[turn % len(ranks) :] + ranks[: turn % len(ranks)] for ranks in group.servers]


def ring_order(group: RankGroup, turn: int) -> list[int]:
    """All ranks in the order in which ring number `turn` visits them: server after server."""
    return [rank for ranks in rotated_servers(group, turn) for rank in ranks]


def ring_hops(group: RankGroup, turn: int) -> list[RingHop]:
    """The hops of ring number `turn`, in the order of the group's ranks."""
    servers = rotated_servers(group, turn)
    order = [rank for ranks in servers for rank in ranks]
    ends = {rank: (ranks[0], ranks[-1]) for ranks in servers for rank in ranks}
    hops = {
        rank: RingHop(rank, order[place - 1], order[(place + 1) % len(order)], *ends[rank])
        for place, rank in enumerate(order)
    }
    return [hops[rank] for rank in in_group_order(group)]


def in_group_order(group: RankGroup) -> Sequence[int]:
    """The ranks that rings cover, in the order of the group."""
    return [rank for ranks in group.servers for rank in ranks]


def all_rings(group: RankGroup) -> list[list[RingHop]]:
    """The hops of each ring of the group."""
    return [ring_hops(group, turn) for turn in range(group.local_count)]
