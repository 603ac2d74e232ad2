"""Computes the ranks of each group in Megatron's order tp-cp-ep-dp-pp (tp changes fastest).

rank = tp + tp_size * (ep + ep_size * (dp' + dp'_size * pp)), with dp' = dp / ep the replicas of an expert (cp is 1).
"""

from dataclasses import dataclass

from workloads.rows.ops import CommGroup


@dataclass(frozen=True, kw_only=True)
class RankGroups:
    """The parallel sizes of a job; `groups` lists the ranks of each group.

    Raises:
        ValueError: world_size is not tp * dp * pp, or ep does not divide dp.
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

    @property
    def dp(self) -> int:
        return self.world_size // (self.tp * self.pp)

    def groups(self, group: CommGroup) -> list[list[int]]:
        """The rank lists of a group, each ascending, ordered by first rank within the axes' order.

        Raises:
            ValueError: the group is the embedding group, which is no product of axes.
        """
        varying = {
            CommGroup.tp_group: ("tp",),
            CommGroup.pp_group: ("pp",),
            CommGroup.dp_group: ("ep", "dp"),
            CommGroup.ep_group: ("ep",),
            CommGroup.ep_dp_group: ("dp",),
            CommGroup.ep_tp_group: ("tp", "ep"),
            CommGroup.all: ("tp", "ep", "dp", "pp"),
        }.get(group)
        if varying is None:
            raise ValueError(f"{group.name} has no rank lists")
        axes = {"tp": self.tp, "ep": self.ep, "dp": self.dp // self.ep, "pp": self.pp}
        strides: dict[str, int] = {}
        stride = 1
        for axis, size in axes.items():
            strides[axis] = stride
            stride *= size
        fixed = [axis for axis in axes if axis not in varying]
        starts = _combinations([(axes[axis], strides[axis]) for axis in fixed])
        offsets = _combinations([(axes[axis], strides[axis]) for axis in varying])
        return [[start + offset for offset in offsets] for start in starts]

    def group_of(self, rank: int, group: CommGroup) -> list[int]:
        """The ranks of `group` that `rank` belongs to."""
        return next(ranks for ranks in self.groups(group) if rank in ranks)


def _combinations(axes: list[tuple[int, int]]) -> list[int]:
    """Sums of index * stride over all indices, the first axis changing fastest."""
    sums = [0]
    for size, stride in axes:
        sums = [base + index * stride for index in range(size) for base in sums]
    return sums
