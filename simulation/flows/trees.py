"""Lays double binary trees over the servers of a group, with a chain of ranks inside each server."""

from itertools import pairwise
from typing import NamedTuple

from simulation.flows.groups import RankGroup
from simulation.flows.rings import in_group_order, rotated_servers


class RankTree(NamedTuple):
    """Parent and children of each rank; the root's parent is None."""

    root: int
    up: dict[int, int | None]
    down: dict[int, list[int]]


def server_tree(servers: int, shift: int = 0) -> tuple[int, list[list[int]]]:
    """Root and children of a binary tree over servers 0 to servers-1, in which leaves and inner nodes alternate.

    Of four neighbouring roots the second adopts the first and third; the fourth waits for the next level. A server s
    stands where (s - shift) modulo servers stands in the unshifted tree, so that the tree shifted by one has its leaves
    where the other has inner nodes.
    Source: double binary trees, Sanders, Speck, Traeff, "Two-tree algorithms for full bandwidth broadcast", 2009.
    """
    children: list[list[int]] = [[] for _ in range(servers)]
    roots = list(range(servers))
    while len(roots) > 1:
        above = []
        for start in range(0, len(roots), 4):
            first, *others = roots[start : start + 4]
            if not others:
                above.append(first)
                continue
            children[others[0]] = [first, *others[1:2]]
            above += [others[0], *others[2:]]
        roots = above
    shifted: list[list[int]] = [[] for _ in range(servers)]
    for server, below in enumerate(children):
        shifted[(server + shift) % servers] = [(child + shift) % servers for child in below]
    return (roots[0] + shift) % servers, shifted


def rank_tree(group: RankGroup, turn: int, shift: int) -> RankTree:
    """The tree over the group's ranks: heads of servers joined by `server_tree`, chains in the order of ring `turn`."""
    servers = rotated_servers(group, turn)
    root, children = server_tree(len(servers), shift)
    up: dict[int, int | None] = dict.fromkeys(in_group_order(group))
    down: dict[int, list[int]] = {rank: [] for rank in up}
    for ranks, below in zip(servers, children, strict=True):
        heads = [servers[child][0] for child in below]
        for above, under in pairwise(ranks):
            down[above].append(under)
        down[ranks[0]] += heads
        for rank in ranks:
            up |= dict.fromkeys(down[rank], rank)
    return RankTree(servers[root][0], up, down)


def all_trees(group: RankGroup) -> list[RankTree]:
    """Two trees for each ring of the group, the second shifted by a server."""
    return [rank_tree(group, turn, shift) for turn in range(group.local_count) for shift in (0, 1)]
