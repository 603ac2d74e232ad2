"""Turns a stage's rows into the calls of one rank: ranks, peers, whole bytes, and when each is waited for. No torch.

Sizes follow the rule of `workloads.rows.ops`.
"""

from collections.abc import Sequence
from fractions import Fraction

from training.benchmarks.aicb.pytorch.work.stage import StageWorkload
from workloads.job.errors import AicbError
from workloads.job.groups import located
from workloads.rows.calls import POINT_TO_POINT, ROOTED, SIZES, Call
from workloads.rows.ops import SHARED, CommType, LogItem, rounded, sent_bytes
from workloads.rows.placement import moved

_TENSOR_FORM = {
    CommType.all_gather: CommType.all_gather_into_tensor,
    CommType.reduce_scatter: CommType.reduce_scatter_tensor,
}


class Caller:
    """Makes the calls of `rank` from the rows of its stage.

    Raises:
        AicbError: a row states no ranks that could be known, or a size of its group that the job does not have.
    """

    def __init__(self, stage: StageWorkload, rank: int, world_size: int, scale: Fraction) -> None:
        self._stage, self._rank, self._world_size, self._scale = stage, rank, world_size, scale

    def call(self, item: LogItem) -> Call:
        """The call of a communication row, without phase and module, so that equal calls are one object. out_splits is
        None: the other ranks' in_splits determine it.
        """
        try:
            if item.ranks is not None and self._stage.own not in item.ranks:
                raise ValueError(f"its group {item.ranks} lacks rank {self._stage.own}, the first of the stage")
            if item.ranks is not None and max(item.ranks.expand()) >= self._world_size:
                raise ValueError(f"its group {item.ranks} has ranks beyond the {self._world_size} of this run")
            own = located(moved(item, self._stage.own, self._rank), self._stage.groups, self._rank)
            if own.ranks is None:
                raise ValueError("nothing says its ranks")
            size, dtype, splits = self._sizes(own, len(own.ranks))
            kind = own.comm_type if own.dtype is not None else _TENSOR_FORM.get(own.comm_type, own.comm_type)
            peer = own.peer if own.comm_type in POINT_TO_POINT | ROOTED else None
            group = "all" if own.comm_group is None else own.comm_group.name.removesuffix("_group")
            return Call(kind, group, own.ranks, dtype, size, "", in_splits=splits, peer=peer)
        except ValueError as error:
            raise AicbError(f"{self._stage.name}: {_said(item)}: {error}") from None

    def _sizes(self, item: LogItem, ranks: int) -> tuple[int, str, tuple[int, ...] | None]:
        if isinstance(item.msg_size, tuple) or item.msg_size < 0:
            raise ValueError(f"msg_size is {item.msg_size}, not bytes")
        if item.comm_type is CommType.barrier:
            return 0, "uint8", None
        width = SIZES.get(item.dtype) if item.dtype is not None else 1
        if width is None:
            raise ValueError(f"dtype is {item.dtype!r}, not one of {', '.join(SIZES)}")
        if item.in_splits is not None:
            return self._uneven(item.in_splits, item.dtype, ranks, width)
        size = sent_bytes(item, ranks, self._scale, width)
        part = size // (ranks if item.comm_type in SHARED else 1)
        return size, item.dtype or ("uint8" if part % 2 else "bfloat16"), None

    def _uneven(
        self, shares: Sequence[int], dtype: str | None, ranks: int, width: int
    ) -> tuple[int, str, tuple[int, ...]]:
        if len(shares) != ranks:
            raise ValueError(f"in_splits has {len(shares)} shares for {ranks} ranks")
        splits = tuple(rounded(share, self._scale, width) for share in shares)
        even = not any(share % 2 for share in splits)
        return sum(splits), dtype or ("bfloat16" if even else "uint8"), splits


def _said(item: LogItem) -> str:
    group = "" if item.comm_group is None else f" {item.comm_group.name}"
    return f"row {item.comm_type.name}{group} {item.stage}".rstrip()
