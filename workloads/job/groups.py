"""Computes the ranks of each group in Megatron's order tp-cp-ep-dp-pp (tp changes fastest).

rank = tp + tp_size * (ep + ep_size * (dp' + dp'_size * pp)), with dp' = dp / ep the replicas of an expert (cp is 1).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import lcm

from workloads.rows.calls import POINT_TO_POINT, ROOTED
from workloads.rows.grid import AXES, MegatronGrid
from workloads.rows.ops import CommGroup, LogItem
from workloads.rows.ranks import MOST_RANKS, Ranks

STEPS = {"send_next": 1, "send_prev": -1, "recv_next": 1, "recv_prev": -1}
"""How far along the pipeline a row of AICB's form sends or receives, by its column `additional`."""
_KINDS = {CommGroup.ep_dp_group: "DP_EP"}


@dataclass(frozen=True, kw_only=True)
class RankGroups:
    """The parallel sizes of a job; `groups` lists the ranks of each group.

    Raises:
        ValueError: world_size is not tp * dp * pp or more than MOST_RANKS, or ep does not divide dp.
    """

    world_size: int
    tp: int = 1
    pp: int = 1
    ep: int = 1

    def __post_init__(self) -> None:
        if min(self.world_size, self.tp, self.pp, self.ep) < 1 or self.world_size % (self.tp * self.pp):
            raise ValueError(f"world_size {self.world_size} is not a multiple of tp {self.tp} * pp {self.pp}")
        if self.dp % self.ep:
            raise ValueError(f"ep {self.ep} does not divide the data-parallel size {self.dp}")
        if self.world_size > MOST_RANKS:
            raise ValueError(f"{self.world_size} ranks are more than {MOST_RANKS}")

    @property
    def dp(self) -> int:
        return self.world_size // (self.tp * self.pp)

    @cached_property
    def _grid(self) -> MegatronGrid:
        return MegatronGrid(self.tp, self.ep, self.dp // self.ep, self.pp)

    def groups(self, group: CommGroup) -> list[list[int]]:
        """The rank lists of a group, each ascending, ordered by first rank within the axes' order.

        Raises:
            ValueError: the sizes do not determine the group.
        """
        kind = _kind(group)
        offsets = self._grid.offsets(kind)
        return [[start + offset for offset in offsets] for start in self._grid.starts(kind)]

    def group_of(self, rank: int, group: CommGroup) -> list[int]:
        """The ranks of `group` that `rank` belongs to.

        Raises:
            ValueError: the sizes do not determine the group, or the rank is in none: embeddings are in the first and
                the last pipeline stage.
        """
        found = self._grid.group_of(rank, _kind(group))
        if rank not in found:
            raise ValueError(f"rank {rank} is of a stage between the first and the last, without embeddings")
        return found


def _kind(group: CommGroup) -> str:
    kind = _KINDS.get(group, group.name.removesuffix("_group").upper())
    if kind not in AXES:
        raise ValueError(f"{group.name} has no rank lists")
    return kind


def located(item: LogItem, groups: RankGroups, rank: int) -> LogItem:
    """The row of `rank` with the ranks of its group and its peer, which AICB's form leaves to the job's sizes.

    Raises:
        ValueError: nothing says them, or the row's size of the group is another one.
    """
    ranks = item.ranks if item.ranks is not None else _stated_group(item, groups, rank)
    if item.peer is not None and item.comm_type in ROOTED and item.peer not in ranks:
        raise ValueError(f"its root, rank {item.peer}, is none of its group {ranks}")
    if item.peer is not None or item.comm_type not in POINT_TO_POINT | ROOTED:
        return replace(item, ranks=ranks)
    listed = tuple(ranks)
    if item.comm_type in POINT_TO_POINT:
        if item.additional not in STEPS:
            raise ValueError(f"additional is {item.additional!r}, not {', '.join(STEPS)}")
        peer = listed[(listed.index(rank) + STEPS[item.additional]) % len(listed)]
        if peer == rank:
            raise ValueError("a rank cannot send to itself: the job has one pipeline stage")
        return replace(item, ranks=ranks, peer=peer)
    place = next((each for each in (item.src, item.dst) if each is not None), 0)
    if not 0 <= place < len(listed):
        raise ValueError(f"its root is place {place} of {len(listed)} ranks")
    return replace(item, ranks=ranks, peer=listed[place])


def _stated_group(item: LogItem, groups: RankGroups, rank: int) -> Ranks:
    if item.comm_group is None:
        raise ValueError("it states no group")
    found = known_group(groups, rank, item.comm_group)
    size = item.comm_group_size
    if size is not None and size != len(found) and item.comm_type not in POINT_TO_POINT:
        raise ValueError(f"comm_group_size is {size}, this job's {item.comm_group.name} has {len(found)} ranks")
    return found


@lru_cache(maxsize=1024)
def known_group(groups: RankGroups, rank: int, group: CommGroup) -> Ranks:
    """The ranks of a group that holds `rank`, by the job's parallel sizes.

    Raises:
        ValueError: the sizes do not determine this group.
    """
    try:
        return Ranks.of(groups.group_of(rank, group))
    except ValueError:
        raise ValueError(f"which ranks {group.name} has is not stated: write the column ranks") from None


def size_by_rows(rows: Iterable[LogItem], axis: str) -> int:
    """The size of a parallel axis (tp, dp, ep, pp) by what the rows of its group say, 1 where there are none.

    Raises:
        ValueError: there are rows of the group, and none states its size, as those of experts in AICB's files. That of
            dp follows from the others: 1 there.
    """
    group = CommGroup[f"{axis}_group"]
    said = {item.comm_group_size for item in rows if item.comm_group is group and item.comm_type not in POINT_TO_POINT}
    known = [size for size in said if size]
    if said and not known and axis != "dp":
        raise ValueError(f"rows of {group.name} state no size of it")
    return lcm(*known) if known else 1
