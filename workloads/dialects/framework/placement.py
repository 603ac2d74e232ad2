"""Computes the process groups of one rank in Megatron-core's order tp-cp-ep-dp-pp, experts' groups apart from dense.

Dense: rank = tp + TP * (cp + CP * (dp + DP * pp)). Experts: rank = etp + ETP * (ep + EP * (edp + EDP * pp)), where
ETP * EP * EDP ranks form a stage as TP * CP * DP do; ETP is TP or expert_tensor_parallel_size: ep may exceed dp.
"""

from functools import cached_property

from workloads.job.parameters import WorkloadArgs
from workloads.rows.grid import Grid
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
        self._dense = Grid(tp=self.tp, cp=self.cp, dp=self.dp // self.cp, pp=self.pp)
        self._experts = Grid(tp=self.etp, ep=self.ep, dp=self.edp, pp=self.pp)

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
        return Ranks(0, 1, self.world_size)

    @cached_property
    def tensor(self) -> Ranks:
        return self._group(self._dense, "tp")

    @property
    def context_rank(self) -> int:
        """This rank's place among those that share its sequences."""
        return self.offset // self.tp % self.cp

    @cached_property
    def context(self) -> Ranks:
        return self._group(self._dense, "cp")

    @cached_property
    def tensor_context(self) -> Ranks:
        """tp x cp: the ranks that have the same samples."""
        return self._group(self._dense, "tp", "cp")

    @cached_property
    def data(self) -> Ranks:
        """dp x cp."""
        return self._group(self._dense, "cp", "dp")

    @cached_property
    def stage_ranks(self) -> Ranks:
        """tp x cp x dp: all ranks of the stage."""
        return self._group(self._dense, "tp", "cp", "dp")

    @cached_property
    def pipeline(self) -> Ranks:
        return self._group(self._dense, "pp")

    @cached_property
    def model(self) -> Ranks:
        """tp x pp: the ranks that hold one copy of the dense parameters."""
        return self._group(self._dense, "tp", "pp")

    @cached_property
    def embedding(self) -> Ranks:
        """The first and the last stage."""
        return Ranks.of(sorted({self.offset, self.offset + (self.pp - 1) * self.stage_size}))

    @cached_property
    def expert(self) -> Ranks:
        """Ranks with different experts and the same slice of them."""
        return self._group(self._experts, "ep")

    @cached_property
    def expert_tensor(self) -> Ranks:
        return self._group(self._experts, "tp")

    @cached_property
    def tensor_expert(self) -> Ranks:
        """etp x ep: the ranks that hold one copy of a stage's experts."""
        return self._group(self._experts, "tp", "ep")

    @cached_property
    def expert_data(self) -> Ranks:
        return self._group(self._experts, "dp")

    @cached_property
    def expert_model(self) -> Ranks:
        """etp x ep x pp."""
        return self._group(self._experts, "tp", "ep", "pp")

    def _group(self, grid: Grid, *axes: str) -> Ranks:
        start, even = grid.start(self.rank, *axes), grid.progression(*axes)
        if even is None:
            return Ranks.of(start + offset for offset in grid.offsets(*axes))
        return Ranks(start, even[1], even[0])
