"""Writes what one rank sends in an iteration as SimAI text: what happens once, then the layers of each micro-batch.

Each call of the iteration is in one column of one row, so bytes by group are those of the CSV; messages between stages
are the header's. What ends an iteration stands at the beginning and in reverse, for SimAI ends with the first row.

SimAI goes forward through all rows, then backward from the last to the first, so backward calls stand in reverse.

AIOB measures a forward pass; the gradients of input and weight take as long each, as AICB's reader has it.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby, zip_longest
from operator import itemgetter

from workloads.compute.aiob import CORE, FLASH, CompFile
from workloads.dialects.framework.inference import InferenceRank, one_pass
from workloads.dialects.framework.megatron import MegatronRank
from workloads.dialects.framework.rows import rank_of
from workloads.dialects.framework.schedule import message_size
from workloads.formats.simai import INFERENCE, SimaiHeader, SimaiWorkload
from workloads.formats.simai_text import ALL, DP, GROUP, REDUCESCATTER, TP, WORDS, Phase, WorkItem
from workloads.job.parameters import TRAINING, WorkloadArgs
from workloads.rows.blocks import Block
from workloads.rows.calls import GROUPS, Call, Event, Use
from workloads.rows.ops import CommType
from workloads.rows.ranks import split_module

PLAIN_NS = 1
ATTENTION_CORE = (*FLASH, *CORE)
EMBEDDING = "embedding_layer"
"""SimAI's name of the one layer that does not count for the pipeline's bubble."""
HEAD, LOSS, EXPERTS = "output_layer", "cross_entropy", "mlp.experts"
MEASURED = {
    EMBEDDING: ("Emb",),
    "self_attention.linear_qkv": ("layernorm", "atten_qkv"),
    "self_attention.linear_proj": (*ATTENTION_CORE, "atten_linear"),
    "self_attention.linear_q_proj": ("layernorm", "attention_q_column"),
    "self_attention.linear_q_down_proj": ("layernorm", "attention_linear_q_lora"),
    "self_attention.linear_q_up_proj": ("attention_q_column",),
    "self_attention.linear_kv_down_proj": ("attention_linear_kv_lora",),
    "self_attention.linear_kv_up_proj": ("attention_kv_column",),
    "mlp.linear_fc1": ("layernorm2", "mlp_linear_1", "mlp_gelu"),
    "mlp.linear_fc2": ("mlp_linear_2",),
    EXPERTS: ("layernorm2", "mlp_linear_1", "mlp_gelu", "mlp_linear_2"),
    HEAD: ("layernorm_post", "logit_time"),
}
"""Sections of an AIOB file by module. Router and shared experts are in those of the MLP, if at all."""
LATENT = {"self_attention.linear_proj": (*ATTENTION_CORE, "attention_o_row")}


class ModuleTimes:
    """Compute times in ns by a module's name in a layer. measured: None for 1 ns each."""

    def __init__(self, args: WorkloadArgs, measured: CompFile | None) -> None:
        self.measured = measured
        self.recompute = args.activation_recompute
        self.sections = MEASURED | (LATENT if args.multi_latent_attention else {})

    def forward(self, module: str) -> int:
        """A forward pass."""
        return PLAIN_NS if self.measured is None else self._sum(self.sections.get(module, ()))

    def input_gradient(self, module: str) -> int:
        """The gradient of the input, after what is computed again in the backward pass."""
        if self.measured is None:
            return PLAIN_NS
        sections = self.sections.get(module, ())
        again = {"full": sections, "selective": [name for name in sections if name in ATTENTION_CORE]}
        layer = module not in (EMBEDDING, HEAD)
        return self._sum(sections) + (self._sum(again.get(self.recompute, ())) if layer else 0)

    def optimizer(self) -> int:
        """The optimizer's step."""
        return PLAIN_NS if self.measured is None else self.measured.average_ns("param_time")

    def _sum(self, names: Iterable[str]) -> int:
        return 0 if self.measured is None else sum(self.measured.average_ns(name) for name in names)


COLLECTIVE = WORDS | {"reduce": REDUCESCATTER}
"""SimAI's collectives. A reduction to an owner is its share of a reduce-scatter."""
TENSOR = ("tp", "tp_cp", "expert_tp")
"""Groups that SimAI has without a suffix in the first two columns."""
STILL = Phase(0)
_Run = dict[tuple[str, int], list[Call]]
"""Calls of a module, by its name and how often it came before in the pass."""


def phase(call: Call, compute: int = 0) -> Phase:
    """A column with this collective. Groups that a column has anyway are not named: TENSOR in the first two, and those
    of data in the third.
    """
    group = GROUP.get(GROUPS[call.group].name, ALL)
    return Phase(compute, COLLECTIVE[call.comm_type.name], call.bytes, "" if group in (TP, DP) else group)


def single(call: Call, name: str) -> WorkItem:
    """A row with one call and no computation: in the column of input gradients for a tensor-parallel group."""
    if call.group in TENSOR:
        return WorkItem(name, STILL, phase(call), STILL)
    return WorkItem(name, STILL, STILL, phase(call))


def layer_rows(forward: Iterable[Event], backward: Iterable[Event], times: ModuleTimes) -> list[WorkItem]:
    """The rows of a layer, of the embedding or of the head; each module with weights computes in its first row."""
    forward = list(forward)
    there, back = _runs(forward), _runs(reversed(list(backward)))
    weighted = {(_module(event), 0) for event in forward if isinstance(event, Use)}
    rows = []
    for key in dict.fromkeys([*there, *back]):
        name = key[0]
        pairs = zip_longest(reversed(there.get(key, ())), reversed(back.get(key, ())))
        found = [
            WorkItem(name, phase(each) if each else STILL, phase(other) if other else STILL, STILL)
            for each, other in pairs
        ]
        found.reverse()
        if key in weighted:
            found[:1] = [_computing(found[0] if found else WorkItem(name, STILL, STILL, STILL), times)]
        rows += found
    return rows


def _computing(row: WorkItem, times: ModuleTimes) -> WorkItem:
    ahead, back = times.forward(row.name), times.input_gradient(row.name)
    forward, gradient = row.forward._replace(compute_ns=ahead), row.input_gradient._replace(compute_ns=back)
    return WorkItem(row.name, forward, gradient, Phase(ahead))


def _runs(events: Iterable[Event]) -> _Run:
    """Neighbouring events of one module together; norms belong to nobody, for they send nothing."""
    named = ((_module(event), event) for event in events)
    known = (each for each in named if not each[0].endswith("norm"))
    seen: Counter[str] = Counter()
    found: _Run = {}
    for name, group in groupby(known, key=itemgetter(0)):
        found[name, seen[name]] = [event for _, event in group if isinstance(event, Call)]
        seen[name] += 1
    return found


def _module(event: Event) -> str:
    """The module's name in its layer; the experts of a rank are one module."""
    path = event.module if isinstance(event, Call) else event.parameters[0].rpartition(".")[0]
    if not path:
        return LOSS
    found = split_module(path)
    name = path if found is None or not found[0] else found[2].removeprefix(".")
    return EMBEDDING if name.startswith("embedding.") else name.partition(".local_experts.")[0]


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
        rows = iteration.map(_sharded_row, advance=False)
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
