"""Lays ranks out along the axes of parallelism, the first of which changes fastest, and finds the groups along them."""

from math import prod


class Grid:
    """rank = a + A * (b + B * c) of axes a, b, c with the sizes A, B, C, which are given in this order."""

    def __init__(self, **sizes: int) -> None:
        self._sizes = sizes

    def axes(self, *names: str) -> list[tuple[int, int]]:
        """(size, stride) of the axes with these names, the fastest first."""
        found, stride = [], 1
        for name, size in self._sizes.items():
            if name in names:
                found.append((size, stride))
            stride *= size
        return found

    def count(self, *names: str) -> int:
        """How many ranks a group along these axes has."""
        return prod(size for size, _ in self.axes(*names))

    def offsets(self, *names: str) -> list[int]:
        """How far the ranks of a group along these axes are from its first one, ascending."""
        sums = [0]
        for size, stride in self.axes(*names):
            sums = [base + place * stride for place in range(size) for base in sums]
        return sums

    def starts(self, *names: str) -> list[int]:
        """The first rank of each group along these axes, ascending."""
        return self.offsets(*(name for name in self._sizes if name not in names))

    def start(self, rank: int, *names: str) -> int:
        """The first rank of the group that holds `rank`."""
        return rank - sum(rank // stride % size * stride for size, stride in self.axes(*names))

    def progression(self, *names: str) -> tuple[int, int] | None:
        """Number and distance of a group's ranks where neighbours are equally far apart, None where they are not."""
        count = step = 1
        for size, stride in self.axes(*names):
            if size > 1:
                if count > 1 and stride != count * step:
                    return None
                step = step if count > 1 else stride
                count *= size
        return count, step


AXES = {
    "TP": ("tp",), "EP": ("ep",), "EP_TP": ("tp", "ep"), "DP": ("ep", "dp"), "DP_EP": ("dp",), "PP": ("pp",),
    "EMBEDDING": ("pp",), "ALL": ("tp", "ep", "dp", "pp"),
}  # fmt: skip
"""Along which axes the groups of a `MegatronGrid` extend."""


class MegatronGrid:
    """Groups of ranks in Megatron's order tp-ep-dp-pp, where dp are the replicas of an expert, by SimAI's names.

    A group EMBEDDING has the first stage's embedding and the last one's head, which share their weights.
    """

    def __init__(self, tp: int, ep: int, dp: int, pp: int) -> None:
        self._grid = Grid(tp=tp, ep=ep, dp=dp, pp=pp)

    def count(self, kind: str) -> int:
        """The ranks of a group."""
        return len(self.offsets(kind)) if kind == "EMBEDDING" else self._grid.count(*AXES[kind])

    def stride(self, kind: str) -> int:
        """The distance of neighbours in a group."""
        return self.offsets(kind)[-1] or 1 if kind == "EMBEDDING" else self._grid.axes(*AXES[kind])[0][1]

    def offsets(self, kind: str) -> list[int]:
        """How far the ranks of a group are from its first one, ascending."""
        found = self._grid.offsets(*AXES[kind])
        return sorted({found[0], found[-1]}) if kind == "EMBEDDING" else found

    def starts(self, kind: str) -> list[int]:
        """The first rank of each group, ascending."""
        return self._grid.starts(*AXES[kind])

    def group_of(self, rank: int, kind: str) -> list[int]:
        """The ranks of the group that holds `rank`; it is none of EMBEDDING's in a stage between the ends."""
        start = self._grid.start(rank, *AXES[kind])
        return [start + offset for offset in self.offsets(kind)]
