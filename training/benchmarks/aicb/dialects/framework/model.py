"""Lays out the layers of one model chunk: its parameters in Megatron's order and its events forwards and backwards."""

from dataclasses import dataclass
from functools import cached_property

from training.benchmarks.aicb.blocks import Block
from training.benchmarks.aicb.dialects.framework import layers
from training.benchmarks.aicb.dialects.framework.calls import Call, Event, Ready, Use, calls
from training.benchmarks.aicb.dialects.framework.layers import Parameter
from training.benchmarks.aicb.dialects.framework.placement import RankPlacement
from training.benchmarks.aicb.dialects.framework.tensor import TensorParallel
from training.benchmarks.aicb.parameters import WorkloadArgs

WORDS = "embedding.word_embeddings"
POSITIONS = "embedding.position_embeddings"
FINAL_NORM = "decoder.final_layernorm"
HEAD = "output_layer"


@dataclass(frozen=True, slots=True)
class Span:
    """The layers of a chunk: numbers from `start`, and whether it holds the embedding and the head."""

    start: int
    count: int
    first: bool
    last: bool


class Chunk:
    """The part of the model that one rank runs at a time. `parameters`: in the order of Megatron's named_parameters."""

    def __init__(self, args: WorkloadArgs, place: RankPlacement, span: Span) -> None:
        self.args = args
        self.span = span
        self.tensor = TensorParallel(args, place)
        self.layers = [layers.layer(args, place, self.tensor, span.start + index) for index in range(span.count)]
        self.tied_ends = not args.untie_embeddings and place.pp > 1
        self.words = args.padded_vocab_size // place.tp * args.hidden_size

    @property
    def learned_positions(self) -> bool:
        return self.args.position_embedding == "learned_absolute"

    @cached_property
    def parameters(self) -> list[Parameter]:
        found: list[Parameter] = []
        if self.span.first:
            found.append(Parameter(f"{WORDS}.weight", self.words, alone=self.tied_ends))
            if self.learned_positions:
                size = self.args.max_position_embeddings * self.args.hidden_size
                found.append(Parameter(f"{POSITIONS}.weight", size))
        for each in self.layers:
            found += each.parameters()
        if self.span.last:
            found += layers.norm(FINAL_NORM, self.args.hidden_size, self.args)
            if self.args.untie_embeddings or not self.span.first:
                found.append(Parameter(f"{HEAD}.weight", self.words, alone=self.tied_ends))
        return found

    @cached_property
    def forward(self) -> list[Event]:
        events: list[Event] = []
        if self.span.first:
            events += self._embed()
        for each in self.layers:
            events += each.forward("forward")
        if self.span.last:
            events += [*layers.use(FINAL_NORM, self.args), Use((f"{HEAD}.weight",))]
            events += [*self.tensor.column("forward", HEAD), *self.tensor.loss()]
        return events

    @cached_property
    def backward(self) -> list[Event]:
        """With full recomputation each layer runs forwards once more before it runs backwards."""
        events: list[Event] = []
        if self.span.last:
            events += [*self.tensor.column_back(HEAD), Ready((f"{HEAD}.weight",)), *layers.ready(FINAL_NORM, self.args)]
        again = self.args.activation_recompute == "full"
        for each in reversed(self.layers):
            if again:
                events += [event for event in each.forward("backward") if isinstance(event, Call)]
            events += each.backward()
        if self.span.first:
            if self.tensor.split:
                events.append(self.tensor.gather("backward", WORDS))
            events.append(Ready((f"{WORDS}.weight", f"{POSITIONS}.weight")))
        return events

    @cached_property
    def forward_calls(self) -> Block[Call]:
        return calls(self.forward)

    @cached_property
    def backward_calls(self) -> Block[Call]:
        return calls(self.backward)

    def _embed(self) -> list[Event]:
        """Word vectors are summed over the tensor ranks; learned positions are added to the whole sequence."""
        events: list[Event] = [Use((f"{WORDS}.weight",))]
        if self.tensor.split and not self.learned_positions:
            events.append(self.tensor.scatter("forward", WORDS))
        elif self.tensor.size > 1:
            events.append(self.tensor.reduce("forward", WORDS))
        if self.learned_positions:
            events.append(Use((f"{POSITIONS}.weight",)))
        return events


def chunks(args: WorkloadArgs, place: RankPlacement) -> list[Chunk]:
    """The chunks of the rank's stage: one, or one for each virtual stage."""
    made = []
    for virtual in range(args.virtual_pipeline):
        start, count = _layers_of(args, place.stage, virtual)
        first = place.first and virtual == 0
        last = place.last and virtual == args.virtual_pipeline - 1
        made.append(Chunk(args, place, Span(start, count, first, last)))
    return made


def _layers_of(args: WorkloadArgs, stage: int, virtual: int) -> tuple[int, int]:
    """First layer and number of layers of a chunk. Virtual stage v of stage p is the chunk v * pp + p of the model;
    a first or last stage with its own number of layers divides it over its virtual stages, too.
    """
    pp, count = args.pipeline_model_parallel, args.virtual_pipeline
    sizes = stage_layers(args)
    before = sum(size // count for size in sizes) * virtual
    before += sum(size // count for size in sizes[:stage])
    return before, sizes[stage] // count if pp else 0


def stage_layers(args: WorkloadArgs) -> list[int]:
    """Layers of each pipeline stage, the first and the last as given, the rest evenly."""
    pp = args.pipeline_model_parallel
    given = {0: args.num_layers_first_stage, pp - 1: args.num_layers_last_stage}
    fixed = {stage: layers for stage, layers in given.items() if layers is not None}
    rest = args.num_layers - sum(fixed.values())
    middle = pp - len(fixed)
    return [fixed[stage] if stage in fixed else rest // middle for stage in range(pp)]
