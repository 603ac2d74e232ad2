"""Writes what one rank sends in an iteration as SimAI text: what happens once, then the layers of each micro-batch.

Each call of the iteration is in one column of one row, so bytes by group are those of the CSV; messages between stages
are the header's. What ends an iteration stands at the beginning and in reverse, for SimAI ends with the first row.
"""

from dataclasses import replace

from workloads.compute.aiob import CompFile
from workloads.dialects.framework.inference import InferenceRank, one_pass
from workloads.dialects.framework.megatron import MegatronRank
from workloads.dialects.framework.pipeline import message_size
from workloads.dialects.framework.rows import rank_of
from workloads.dialects.framework.simai_rows import STILL, TENSOR, layer_rows, phase, single
from workloads.dialects.framework.simai_times import PLAIN_NS, ModuleTimes
from workloads.formats.simai import INFERENCE, SimaiHeader, SimaiWorkload, WorkItem
from workloads.formats.simai_text import Phase
from workloads.job.parameters import TRAINING, WorkloadArgs
from workloads.rows.blocks import Block
from workloads.rows.ops import CommType
from workloads.rows.ranks import split_module
from workloads.rows.traced_op import Call

MESSAGES = (CommType.isend, CommType.irecv)
LAYER_GROUPS = frozenset({*TENSOR, "ep", "tp_ep"})
LAYER_PHASES = ("forward", "backward")
ENOUGH = 5
"""Iterations after which every frame has nothing more to learn."""


def generate(args: WorkloadArgs, rank: int, measured: CompFile | None = None) -> SimaiWorkload:
    """One iteration as all but the first are, of the layers that `rank` holds. measured: None for 1 ns a module."""
    # The rows of the text have times of their own.
    made = rank_of(replace(args, computation_enable=False, aiob_enable=False), rank)
    iteration = made.iterations(ENOUGH).steady
    if isinstance(made, InferenceRank):
        rows = _forward(args, made)
    elif isinstance(made, MegatronRank):
        rows = _megatron(args, made, iteration, ModuleTimes(args, measured))
    else:
        rows = sharded_rows(iteration)
    header = SimaiHeader(
        tp=args.tensor_model_parallel_size,
        ep=args.expert_model_parallel_size,
        pp=args.pipeline_model_parallel,
        vpp=args.virtual_pipeline,
        ga=args.num_microbatches,
        all_gpus=args.world_size,
        pp_comm=message_size(one_pass(args)) if args.pipeline_model_parallel > 1 else 0,
        mode=None if args.phase == TRAINING else INFERENCE,
    )
    return SimaiWorkload(header, rows, args)


def sharded_rows(iteration: Block[Call]) -> Block[WorkItem]:
    """The rows of FSDP2 and ZeRO, a row a call: over tensor ranks in the column of its pass, else in the third. What is
    gathered forward over data-parallel ranks computes.
    """
    return iteration.map(_sharded_row, advance=False)


def _sharded_row(call: Call) -> WorkItem:
    is_forward = call.phase == "forward"
    found = split_module(call.module)
    name = call.module or "root" if found is None else found[0].removesuffix(".") + found[2]
    name = f"{call.phase}_{name}"
    if call.group in TENSOR:
        sent = phase(call)
        return WorkItem(name, sent, STILL, STILL) if is_forward else WorkItem(name, STILL, sent, STILL)
    compute = PLAIN_NS if is_forward else 0
    return WorkItem(name, Phase(compute), Phase(compute), phase(call, compute))


def _megatron(args: WorkloadArgs, rank: MegatronRank, iteration: Block[Call], times: ModuleTimes) -> Block[WorkItem]:
    once = [single(call, f"{call.phase}_{call.group}") for call in iteration.map(_once)]
    optimizer = WorkItem("optimizer", STILL, Phase(times.optimizer()), STILL)
    layers = [
        Block(layer_rows(forward, backward, times), count)
        for chunk in rank.chunks
        for forward, backward, count in chunk.parts()
    ]
    return Block([optimizer, *reversed(once), Block(layers, args.num_microbatches)])


def _forward(args: WorkloadArgs, rank: InferenceRank) -> Block[WorkItem]:
    """The layers of each micro-batch without a backward pass."""
    times = ModuleTimes(args, None)
    layers = [
        Block([WorkItem(row.name, row.forward, STILL, STILL) for row in layer_rows(forward, (), times)], count)
        for chunk in rank.chunks
        for forward, _, count in chunk.parts()
    ]
    return Block(layers, args.num_microbatches)


def _once(call: Call) -> Call | None:
    """A call that is none of a layer's and no message between stages: it does not depend on the micro-batches."""
    layer = call.group in LAYER_GROUPS and call.phase in LAYER_PHASES
    return None if layer or call.comm_type in MESSAGES else call
