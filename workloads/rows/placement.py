"""Moves the workload of one rank to another rank of its pipeline stage: groups, peers and roots follow."""

from dataclasses import replace
from functools import lru_cache

from workloads.rows.ops import CommType, LogItem
from workloads.rows.ranks import Ranks


@lru_cache(maxsize=4096)
def axes(ranks: Ranks) -> tuple[tuple[int, int], ...]:
    """(stride, count) of each axis along which a group extends, the fastest first.

    Raises:
        ValueError: the group is no product of axes.
    """
    offsets = [rank - ranks.start for rank in ranks]
    found: list[tuple[int, int]] = []
    have = [0]
    while len(have) < len(offsets):
        stride = offsets[len(have)]
        count = 1
        while (count + 1) * len(have) <= len(offsets) and offsets[count * len(have)] == stride * count:
            count += 1
        if count == 1:
            break
        found.append((stride, count))
        have = [stride * turn + offset for turn in range(count) for offset in have]
    if have != offsets or any(stride < 1 for stride, _ in found):
        raise ValueError(f"ranks {ranks} are no product of axes, so the group of another rank is unknown")
    return tuple(found)


def group_of(rank: int, ranks: Ranks) -> Ranks:
    """The group of `rank` among those that extend like `ranks`.

    Raises:
        ValueError: the group is no product of axes.
    """
    start = first_of(rank, ranks)
    return Ranks.of(start - ranks.start + other for other in ranks)


def first_of(rank: int, ranks: Ranks) -> int:
    """The first rank of that group.

    Raises:
        ValueError: the group is no product of axes.
    """
    return rank - sum(rank // stride % count * stride for stride, count in axes(ranks))


def moved(item: LogItem, own: int, rank: int) -> LogItem:
    """The row of `own` as `rank` has it, which is of the same pipeline stage. Splits stay as they are.

    Raises:
        ValueError: the group is no product of axes.
    """
    if own == rank or item.ranks is None:
        return item
    ranks = group_of(rank, item.ranks)
    if item.comm_type in (CommType.isend, CommType.irecv):
        peer = None if item.peer is None else item.peer + rank - own
    else:
        peer = None if item.peer is None else list(ranks)[list(item.ranks).index(item.peer)]
    return replace(item, ranks=ranks, peer=peer)
