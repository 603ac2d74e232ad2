"""Computes the process groups of one rank in Megatron-core's order tp-cp-ep-dp-pp, experts' groups apart from dense.

Dense: rank = tp + TP * (cp + CP * (dp + DP * pp)). Experts: rank = etp + ETP * (ep + EP * (edp + EDP * pp)), where
ETP * EP * EDP ranks form a pipeline stage as TP * CP * DP do. ETP is TP unless expert_tensor_parallel_size says
otherwise, so ep may exceed dp.
"""

from collections.abc import Sequence
from functools import cached_property

from workloads.job.parameters import WorkloadArgs
from workloads.rows.ranks import Ranks


class RankPlacement:
    """The groups of `rank`; each property is the ranks of one group, in Megatron's order."""

    def __init__(self, args: WorkloadArgs, rank: int) -> None:
        self.rank = rank
        self.world_size = args.world_size
        self.tp = args.tensor_model_parallel_size
        self.pp = args.pipeline_model_parallel
        self.ep = args.expert_model_parallel_size
        self.etp = args.expert_tensor_parallel_size or self.tp
        self.cp = args.context_parallel_size
        self.stage_size = args.world_size // self.pp
        self.dp = self.stage_size // self.tp
        """Replicas of a dense parameter: the data- and context-parallel ranks."""
        self.edp = self.stage_size // (self.etp * self.ep)
        self.stage, self.offset = divmod(rank, self.stage_size)

    @property
    def first(self) -> bool:
        """Whether this rank's stage holds the embedding."""
        return self.stage == 0

    @property
    def last(self) -> bool:
        """Whether this rank's stage holds the output head."""
        return self.stage == self.pp - 1

    def neighbour(self, step: int) -> int:
        """The rank `step` stages further on; the last stage is followed by the first."""
        return (self.stage + step) % self.pp * self.stage_size + self.offset

    @cached_property
    def world(self) -> Ranks:
        return _steps(0, self.world_size)

    @cached_property
    def tensor(self) -> Ranks:
        start = self.rank - self.rank % self.tp
        return _steps(start, self.tp)

    @property
    def context_rank(self) -> int:
        """This rank's place among those that share its sequences."""
        return self.offset // self.tp % self.cp

    @cached_property
    def context(self) -> Ranks:
        return _steps(self.rank - self.context_rank * self.tp, self.cp, self.tp)

    @cached_property
    def tensor_context(self) -> Ranks:
        """tp x cp: the ranks that have the same samples."""
        size = self.tp * self.cp
        return _steps(self.rank - self.offset % size, size)

    @cached_property
    def data(self) -> Ranks:
        """dp x cp."""
        start = self.stage * self.stage_size + self.rank % self.tp
        return _steps(start, self.dp, self.tp)

    @cached_property
    def stage_ranks(self) -> Ranks:
        """tp x cp x dp: all ranks of the stage."""
        start = self.stage * self.stage_size
        return _steps(start, self.stage_size)

    @cached_property
    def pipeline(self) -> Ranks:
        return _steps(self.offset, self.pp, self.stage_size)

    @cached_property
    def model(self) -> Ranks:
        """tp x pp: the ranks that hold one copy of the dense parameters."""
        return self._through_stages(self.tensor)

    @cached_property
    def embedding(self) -> Ranks:
        """The first and the last stage."""
        return Ranks.of(sorted({self.offset, self.offset + (self.pp - 1) * self.stage_size}))

    @cached_property
    def expert(self) -> Ranks:
        """Ranks with different experts and the same slice of them."""
        block = self._expert_block()
        start = block + self.offset % self.etp
        return _steps(start, self.ep, self.etp)

    @cached_property
    def expert_tensor(self) -> Ranks:
        start = self.rank - self.offset % self.etp
        return _steps(start, self.etp)

    @cached_property
    def tensor_expert(self) -> Ranks:
        """etp x ep: the ranks that hold one copy of a stage's experts."""
        block = self._expert_block()
        return _steps(block, self.etp * self.ep)

    @cached_property
    def expert_data(self) -> Ranks:
        size = self.etp * self.ep
        start = self.stage * self.stage_size + self.offset % size
        return _steps(start, self.edp, size)

    @cached_property
    def expert_model(self) -> Ranks:
        """etp x ep x pp."""
        return self._through_stages(self.tensor_expert)

    def _expert_block(self) -> int:
        return self.rank - self.offset % (self.etp * self.ep)

    def _through_stages(self, ranks: Ranks) -> Ranks:
        offsets: Sequence[int] = [rank % self.stage_size for rank in ranks]
        return Ranks.of([stage * self.stage_size + offset for stage in range(self.pp) for offset in offsets])


def _steps(start: int, count: int, stride: int = 1) -> Ranks:
    """`count` ranks from `start` on, without listing them."""
    return Ranks(start, stride if count > 1 else 1, count)
