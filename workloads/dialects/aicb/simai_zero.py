"""Generates SimAI text for ZeRO 1, 2 and 3, which AICB documents but does not implement.

The rows are those of the CSV workload's iterations, in order, without the initialization: one row per collective and
one per weight that computes. All communication of ZeRO is data-parallel, so it is in the weight-gradient column, which
SimAI runs over the data-parallel groups (tp is 1, the group is every GPU); a `reduce` to an owner counts as its share
of a reduce-scatter. Bytes by collective therefore equal those of the CSV.
"""

from workloads.compute.aiob import CompFile
from workloads.dialects.aicb.llama import DeepspeedForCausalLM
from workloads.dialects.aicb.zero import GemmRows, Zero12Trainer, is_matrix
from workloads.dialects.aicb.zero3 import Zero3Trainer
from workloads.dialects.model import MockedParam
from workloads.formats.simai import SimaiHeader, SimaiWorkload
from workloads.formats.simai_text import REDUCESCATTER, WORDS, Phase, WorkItem
from workloads.job.parameters import WorkloadArgs
from workloads.rows.ops import CommType, LogItem

DEFAULT_NS = 1
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "down_proj", "up_proj")
STILL = Phase(0)


def generate(args: WorkloadArgs, times: CompFile | None) -> SimaiWorkload:
    """The SimAI workload of `epoch_num` iterations under ZeRO. times: of measured blocks, split by weights' sizes."""
    model = DeepspeedForCausalLM(args)
    gemms = _TimedGemms(args, model, times)
    trainer: Zero12Trainer | Zero3Trainer = (
        Zero3Trainer(args, model, gemms) if args.stage == 3 else Zero12Trainer(args, model, gemms)
    )
    header = SimaiHeader(
        tp=1, ep=1, pp=1, vpp=args.num_layers, ga=args.num_microbatches, all_gpus=args.world_size, pp_comm=0
    )
    return SimaiWorkload(header, trainer.iterations().map(_row), args)


def _row(item: LogItem) -> WorkItem | None:
    if item.comm_type is CommType.epoch_end:
        return None
    if item.comm_type is not CommType.computation:
        comm = REDUCESCATTER if item.comm_type is CommType.reduce else WORDS[item.comm_type.name]
        return WorkItem(item.stage, STILL, STILL, Phase(0, comm, int(item.comm_bytes)))
    compute = Phase(int(item.elapsed_time or 0))
    if item.stage.startswith("forward"):
        return WorkItem(item.additional, compute, STILL, STILL)
    if item.stage.startswith("step"):
        return WorkItem(item.additional, STILL, compute, STILL)
    return WorkItem(item.additional, STILL, compute, compute)


class _TimedGemms(GemmRows):
    """One row a weight and direction, named and timed: the same time forward and for each of the two gradients."""

    follow_prefetch = False

    def __init__(self, args: WorkloadArgs, model: DeepspeedForCausalLM, times: CompFile | None) -> None:
        super().__init__(args)
        self.times = times
        sizes = {parameter.name: parameter.numel() for parameter in model.parameters()}
        self.shares = {
            name: sizes[name] / sum(sizes.get(each, 0) for each in block)
            for block in (ATTENTION, MLP)
            for name in block
            if name in sizes
        }

    def forward(self, parameter: MockedParam) -> list[LogItem]:
        return self._row("forward.computation", parameter)

    def backward(self, parameter: MockedParam) -> list[LogItem]:
        return self._row("backward.computation", parameter)

    def optimizer(self) -> list[LogItem]:
        compute = DEFAULT_NS
        if self.times is not None:
            compute = self.times.minimum_ns("param_time") + self.times.average_ns("param_time")
        return [LogItem(CommType.computation, stage="step.computation", additional="optimizer", elapsed_time=compute)]

    def _row(self, stage: str, parameter: MockedParam) -> list[LogItem]:
        if not is_matrix(parameter):
            return []
        compute = self._weight_ns(parameter.name)
        return [LogItem(CommType.computation, stage=stage, additional=parameter.name, elapsed_time=compute)]

    def _weight_ns(self, name: str) -> int:
        if self.times is None:
            return DEFAULT_NS
        if name in ATTENTION:
            return round(self.times.attention_ns() * self.shares[name])
        if name in MLP:
            return round(self.times.mlp_ns() * self.shares[name])
        return self.times.average_ns("Emb" if name == "embed_tokens" else "logit_time")
