"""AICB's Megatron trainer: set-up, forward and backward of a micro-batch, pipeline schedule and optimizer step."""

from workloads.dialects.aicb.trainer import TrainingLoop
from workloads.dialects.aicb.transformer import TransformerModel
from workloads.dialects.model import MockedModel
from workloads.job.parameters import ELEMENT_BYTES, GRADIENT_BYTES, WorkloadArgs
from workloads.rows.blocks import Block
from workloads.rows.ops import EPOCH_END, CommGroup, CommType, LogItem

LAYERNORM_GRADIENTS = 0
"""Elements that AICB finds to reduce as layer-norm gradients: none (deviation `layernorm_grads`)."""


class MegatronTrainer(TrainingLoop):
    """One rank of pipeline stage `pp_stage` (AICB's workload files are stage 0)."""

    def __init__(self, args: WorkloadArgs, model: MockedModel | None = None, pp_stage: int = 0) -> None:
        super().__init__(args)
        self.tp = args.tensor_model_parallel_size
        self.pp = args.pipeline_model_parallel
        self.pp_stage = pp_stage
        self.model = TransformerModel(args) if model is None else model

    def tp_op(self, comm_type: CommType, size: int, stage: str, src: int | None = None) -> LogItem:
        return LogItem(comm_type, CommGroup.tp_group, self.tp, size, stage, src=src)

    def init(self) -> Block[LogItem]:
        stage = "init.model_setup"
        reduce = self.dp_op(CommType.all_reduce, 8, stage)
        across = [LogItem(CommType.all_reduce, CommGroup.pp_group, self.pp, 8, stage)] if self.pp > 1 else []
        tied = []  # deviation `pp_rank_setup`
        is_last = self.pp > 1 and self.pp - 1 in (self.args.pp_rank, self.pp_stage)
        if is_last and isinstance(self.model, TransformerModel):
            tied = [
                self.tp_op(CommType.all_reduce, parameter.msg_size(), stage)
                for parameter in self.model.embedding.parameters()
            ]
        return Block(
            [
                reduce,
                Block([reduce, *across], 3),
                self.dp_op(CommType.all_gather, 32, stage),
                self.tp_op(CommType.broadcast, 24, stage, src=0),
                *tied,
                self.dp_op(CommType.all_gather, 64, stage),
            ]
        )

    def iterations(self) -> Block[LogItem]:
        """All iterations. Deviation `idle_batch_split`: each has its step, even if the batch gives no micro-batches."""
        if self.pp == 1:
            parts = [self.micro_batch().times(max(0, self.args.num_microbatches)), self.step()]
        else:
            parts = [self.pipeline(), self.step().times(2)]  # deviation `pipeline_double_step`
        return Block([*parts, EPOCH_END], max(0, self.args.epoch_num))

    def micro_batch(self) -> Block[LogItem]:
        """Forward with its loss (deviation `no_tp_loss`: also with tp 1), then backward; no pipeline parallelism."""
        tokens = self.args.micro_batch * self.args.seq_length
        loss = self.tp_op(CommType.all_reduce, 4 * tokens, "forward_step._VocabParallelCrossEntropy")
        average = self.dp_op(CommType.all_reduce, 4, "forward_step.average_losses_across_data_parallel_group")
        inputs = self.inputs() if self.tp > 1 else Block[LogItem]()
        return Block([inputs, self.model.forward(), loss, loss, loss, average, self.model.backward()])

    def inputs(self) -> Block[LogItem]:
        """The batch's description and tokens, sent from the first tensor-parallel rank."""
        tokens = self.args.micro_batch * self.args.seq_length
        size = 8 * (self.args.world_size + tokens)
        return Block([self.tp_op(CommType.broadcast, each, "forward_step", src=0) for each in (40, size)])

    def pipeline(self) -> Block[LogItem]:
        """1F1B of this stage: warm-up, steady state, cool-down. Deviation `pipeline_without_loss`: no loss rows."""
        micro_batches = max(0, self.args.num_microbatches)
        warm_up = min(self.pp - self.pp_stage - 1, micro_batches)
        steady = micro_batches - warm_up
        first, last = self.pp_stage == 0, self.pp_stage == self.pp - 1
        forward: Block[LogItem] = Block([self.inputs(), self.model.forward()])
        backward = self.model.backward()
        from_previous = [] if first else [self.p2p("recv_prev", "forward_step")]
        to_previous = [] if first else [self.p2p("send_prev", "backward_step")]
        to_next = [] if last else [self.p2p("send_next", "forward_step")]
        turn = [] if last else [self.p2p("recv_next", "forward_step"), self.p2p("send_next", "forward_step")]
        from_next = [] if last else [self.p2p("recv_next", "backward_step")]
        round_trip: Block[LogItem] = Block([forward, *turn, backward, *to_previous])
        parts: list[LogItem | Block[LogItem]] = [Block([*from_previous, forward, *to_next], warm_up)]
        if steady:
            parts += [*from_previous, Block([round_trip, *from_previous], steady - 1), round_trip]
        parts.append(Block([*from_next, backward, *to_previous], warm_up))
        return Block(parts)

    def p2p(self, additional: str, stage: str) -> LogItem:
        """Deviation `pipeline_p2p_size`: the whole activation T even where sequence parallelism has split it."""
        comm_type = CommType.isend if additional.startswith("send") else CommType.irecv
        size = self.args.activation_bytes
        return LogItem(comm_type, CommGroup.pp_group, 1, size, stage, additional=additional)

    def step(self) -> Block[LogItem]:
        """Gradients over dp, then two small reductions. Deviations `pipeline_gradients`, `moe_gradients`."""
        parameters = self.model.numel()
        if self.args.use_distributed_optimizer:
            gradients = [
                self.dp_op(CommType.reduce_scatter, GRADIENT_BYTES * parameters // self.pp, "step"),
                self.dp_op(CommType.all_gather, ELEMENT_BYTES * parameters // self.pp, "step"),
            ]
        else:
            size = GRADIENT_BYTES * parameters // self.pp
            gradients = [self.dp_op(CommType.all_reduce, size, "step.finish_grad_sync")]
        norms = self.tp_op(
            CommType.all_reduce, ELEMENT_BYTES * LAYERNORM_GRADIENTS // self.pp, "step._allreduce_layernorm_grads"
        )
        return Block([*gradients, norms, self.tp_op(CommType.all_reduce, 4, "step.check_for_nan")])
