"""AICB's ZeRO-3: parameters are gathered when needed, prefetched along a recorded trace, and released.

The first micro-batch records the order of use. From then on a queue [forward order, backward order] holds the next
uses: at each use the parameter itself, if missing, and as many next ones as the prefetch bucket and the live limit
allow are gathered together. Each missing parameter takes the first entry of the queue as its own; if nothing may be
prefetched (a bucket or limit of 0), entries of parameters that are still whole stay behind and the two get out of step.
"""

from dataclasses import dataclass

from workloads.dialects.aicb.zero import GemmRows, Step, ZeroTrainer
from workloads.dialects.model import MockedModel
from workloads.job.parameters import ELEMENT_BYTES, WorkloadArgs
from workloads.rows.blocks import Block
from workloads.rows.ops import CommType, LogItem


@dataclass(frozen=True, slots=True)
class Zero3State:
    """State between micro-batches: whether the order of use is known, whole parameters, elements in the bucket."""

    traced: bool = False
    live: frozenset[int] = frozenset()
    bucket: int = 0


class Zero3Trainer(ZeroTrainer[Zero3State]):
    """ZeRO-3: each rank holds a share of every parameter and gathers what it needs."""

    def __init__(self, args: WorkloadArgs, model: MockedModel | None = None, gemms: GemmRows | None = None) -> None:
        super().__init__(args, model, gemms)
        self.persistent = self._persistent()

    def _persistent(self) -> list[int]:
        """Parameters small enough to stay whole on each rank, in order, up to the model's threshold."""
        chosen, total = [], 0
        for index, numel in enumerate(self.numels):
            fits = total + numel <= self.args.model_persistence_threshold
            if numel <= self.args.param_persistence_threshold and fits:
                chosen.append(index)
                total += numel
        return chosen

    def init(self) -> Block[LogItem]:
        sizes = [parameter.msg_size() for parameter in self.parameters]
        copies = [] if self.args.amp_enabled else sizes
        return Block(
            [
                *(self.dp_op(CommType.broadcast, size, "init._broadcast_model", src=0) for size in copies),
                self.barrier(0, "init._create_fp16_partitions_with_defragmentation"),
                self.barrier(0, "init._setup_for_real_optimizer"),
                self.barrier(0, "init._setup_for_real_optimizer"),
                *(self.dp_op(CommType.all_gather, size, "init._allgather_params") for size in sizes),
            ]
        )

    def start(self) -> Zero3State:
        return Zero3State()

    def micro_batch(self, state: Zero3State) -> Step[Zero3State]:
        return _Pass(self, state).run()

    def step(self, state: Zero3State) -> Step[Zero3State]:
        rows = [
            self.dp_op(CommType.reduce_scatter, ELEMENT_BYTES * state.bucket, "step.reduce_scatter_fn"),
            self.overflow(),
            self.dp_op(CommType.all_reduce, 8, "step.get_grad_norm_direct"),
            *(self.gather(self.numels[index], "step") for index in self.persistent),
        ]
        return Block(rows), Zero3State(state.traced, frozenset(self.persistent))

    def gather(self, numel: int, phase: str) -> LogItem:
        return self.dp_op(CommType.all_gather, ELEMENT_BYTES * numel, f"{phase}.allgather_fn")


class _Pass:
    """One forward and backward pass. `time` counts uses; the queue holds the uses from `queued` on."""

    def __init__(self, trainer: Zero3Trainer, state: Zero3State) -> None:
        self.trainer = trainer
        self.numels = trainer.numels
        self.persistent = frozenset(trainer.persistent)
        self.traced = state.traced
        self.live = set(state.live)
        self.live_numel = sum(self.numels[index] for index in self.live)
        self.bucket = state.bucket
        count = len(self.numels)
        self.uses = [*range(count), *reversed(range(count))]
        self.queued = 0 if state.traced else len(self.uses)
        self.needed_until = [-1] * count
        self.rows: list[LogItem | Block[LogItem]] = []

    def run(self) -> Step[Zero3State]:
        count = len(self.numels)
        for time, index in enumerate(self.uses):
            phase = "forward" if time < count else "backward"
            self.use(index, phase)
            if phase == "backward":
                self.reduce(self.numels[index])
            self.release(time, index)
        return Block(self.rows), Zero3State(True, frozenset(self.live), self.bucket)

    def use(self, index: int, phase: str) -> None:
        """Gather what this use lacks, then compute. Deviation `prefetch_gemms`: compute what was gathered instead."""
        queue_is_empty = self.queued == len(self.uses)
        fetched = [] if index in self.live else [self.enliven(index)]
        if not queue_is_empty:
            self.queued += len(fetched)
            fetched += self.prefetch(sum(self.numels[each] for each in fetched))
        if fetched:
            self.rows.append(self.trainer.gather(sum(self.numels[each] for each in fetched), phase))
        gemms = self.trainer.gemms
        for each in [index] if queue_is_empty or not gemms.follow_prefetch else fetched:
            parameter = self.trainer.parameters[each]
            self.rows += gemms.forward(parameter) if phase == "forward" else gemms.backward(parameter)

    def prefetch(self, gathered: int) -> list[int]:
        """Take uses from the queue, beside `gathered` elements; returns the parameters to gather for them."""
        args, fetched = self.trainer.args, []
        while (
            self.queued < len(self.uses)
            and gathered < args.prefetch_bucket_size
            and self.live_numel < args.max_live_parameters
        ):
            index = self.uses[self.queued]
            self.needed_until[index] = max(self.needed_until[index], self.queued)
            self.queued += 1
            if index not in self.live:
                fetched.append(self.enliven(index))
                gathered += self.numels[index]
        return fetched

    def enliven(self, index: int) -> int:
        """Make a parameter whole on this rank; returns its index."""
        self.live.add(index)
        self.live_numel += self.numels[index]
        return index

    def reduce(self, numel: int) -> None:
        """Adds a gradient to the bucket, which is reduced and scattered first if it would overflow."""
        if self.bucket + numel > self.trainer.args.reduce_bucket_size:
            size = ELEMENT_BYTES * self.bucket
            self.rows.append(self.trainer.dp_op(CommType.reduce_scatter, size, "backward.reduce_scatter_fn"))
            self.bucket = 0
        self.bucket += numel

    def release(self, time: int, index: int) -> None:
        """Drop a parameter after use. Deviation `empty_queue_release`: always, once the queue is empty."""
        keep = index in self.persistent or self.needed_until[index] > time
        if (self.queued == len(self.uses) or not keep) and index in self.live:
            self.live.discard(index)
            self.live_numel -= self.numels[index]
