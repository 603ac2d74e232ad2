"""Lays out the layers of one model chunk: its parameters in Megatron's order and its events forwards and backwards."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from workloads.dialects.framework import layers, transformer
from workloads.dialects.framework.kernels import HEAD
from workloads.dialects.framework.layers import Parameter
from workloads.dialects.framework.placement import RankPlacement
from workloads.dialects.framework.tensor import TensorParallel
from workloads.dialects.framework.transformer import GptLayer
from workloads.job.parameters import TRAINING, WorkloadArgs
from workloads.rows.blocks import Block
from workloads.rows.calls import Call, Event, Ready, Use, passed

WORDS = "embedding.word_embeddings"
POSITIONS = "embedding.position_embeddings"
FINAL_NORM = "decoder.final_layernorm"


@dataclass(frozen=True, slots=True)
class Span:
    """The layers of a chunk: numbers from `start`, and whether it holds the embedding and the head."""

    start: int
    count: int
    first: bool
    last: bool


class Chunk:
    """The part of the model that one rank runs at a time. `parameters`: in the order of Megatron's named_parameters."""

    def __init__(self, args: WorkloadArgs, place: RankPlacement, span: Span, context: int = 0) -> None:
        self.args = args
        self.span = span
        self.tensor = TensorParallel(args, place, context)
        self.layers = [transformer.layer(args, place, self.tensor, span.start + index) for index in range(span.count)]
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
        return events + (self._end() if self.span.last else [])

    @cached_property
    def backward(self) -> list[Event]:
        events: list[Event] = self._end_back() if self.span.last else []
        for each in reversed(self.layers):
            events += self._back(each)
        if self.span.first:
            events += self._embed_back()
        return events

    @cached_property
    def forward_calls(self) -> Block[Call]:
        """The calls of the forward pass of micro-batch 0; layers of one kind are stored once."""
        parts: list[Call | Block[Call]] = [*passed(self._embed() if self.span.first else ())]
        for run in self._runs():
            parts.append(Block(passed(run[0].forward("forward")), len(run), (1, 0)))
        if self.span.last:
            parts += passed(self._end())
        return Block(parts)

    @cached_property
    def backward_calls(self) -> Block[Call]:
        """The calls of the backward pass of micro-batch 0, from the last layer to the first."""
        parts: list[Call | Block[Call]] = [*passed(self._end_back() if self.span.last else ())]
        for run in reversed(self._runs()):
            parts.append(Block(passed(self._back(run[-1])), len(run), (-1, 0)))
        if self.span.first:
            parts += passed(self._embed_back())
        return Block(parts)

    def parts(self) -> Iterator[tuple[list[Event], list[Event], int]]:
        """Forward and backward events of embedding, a layer of each kind and head, and how many follow each other."""
        if self.span.first:
            yield self._embed(), self._embed_back(), 1
        for run in self._runs():
            yield run[0].forward("forward"), self._back(run[0]), len(run)
        if self.span.last:
            yield self._end(), self._end_back(), 1

    def _runs(self) -> list[list[GptLayer]]:
        """Neighbouring layers of one kind."""
        return [list(run) for _, run in groupby(self.layers, key=lambda each: each.kind)]

    def _back(self, layer: GptLayer) -> list[Event]:
        """A layer's backward pass; with full recomputation it runs forwards once more before."""
        if self.args.activation_recompute != "full":
            return layer.backward()
        return [*(event for event in layer.forward("backward") if isinstance(event, Call)), *layer.backward()]

    def _end(self) -> list[Event]:
        tensor, batch = self.tensor, self.args.micro_batch
        events: list[Event] = [*layers.use(FINAL_NORM, self.args), *tensor.norm("forward", FINAL_NORM)]
        events.append(Use((f"{HEAD}.weight",)))
        if self.args.phase != TRAINING:
            product = tensor.kernels.product("forward", HEAD, self.args.hidden_size, tensor.vocab, batch)
            return [*events, *product, *tensor.logits(HEAD)]
        return [*events, *tensor.column("forward", HEAD, tensor.vocab), *tensor.loss()]

    def _end_back(self) -> list[Event]:
        tensor = self.tensor
        events: list[Event] = [*tensor.loss_back(), *tensor.column_back(HEAD, tensor.vocab)]
        events += [Ready((f"{HEAD}.weight",)), *tensor.norm_back(FINAL_NORM, passed_by=False)]
        return [*events, *layers.ready(FINAL_NORM, self.args)]

    def _embed_back(self) -> list[Event]:
        tensor = self.tensor
        events: list[Event] = [*tensor.kernels.dropped("dropout_backward", "backward", "embedding", tensor.kept)]
        events += [tensor.gather("backward", WORDS)] if tensor.split else []
        for name in (*([POSITIONS] if self.learned_positions else []), WORDS):
            events += tensor.kernels.moving("embedding_backward", "backward", name, self.args.hidden_size)
        return [*events, Ready((f"{POSITIONS}.weight", f"{WORDS}.weight"))]

    def _embed(self) -> list[Event]:
        """Word vectors are summed over the tensor ranks; learned positions are added to the whole sequence."""
        kernels, width = self.tensor.kernels, self.args.hidden_size
        events: list[Event] = [Use((f"{WORDS}.weight",)), *kernels.moving("embedding", "forward", WORDS, width)]
        if self.tensor.split and not self.learned_positions:
            events.append(self.tensor.scatter("forward", WORDS))
        elif self.tensor.size > 1:
            events.append(self.tensor.reduce("forward", WORDS))
        if self.learned_positions:
            events.append(Use((f"{POSITIONS}.weight",)))
            events += kernels.moving("embedding", "forward", POSITIONS, width)
            events += kernels.moving("residual", "forward", "embedding", width)
        return [*events, *kernels.dropped("dropout", "forward", "embedding", self.tensor.kept)]


def chunks(args: WorkloadArgs, place: RankPlacement, context: int = 0) -> list[Chunk]:
    """The chunks of the rank's stage: one, or one for each virtual stage. context: see MegatronRank."""
    made = []
    for virtual in range(args.virtual_pipeline):
        start, count = _layers_of(args, place.stage, virtual)
        first = place.first and virtual == 0
        last = place.last and virtual == args.virtual_pipeline - 1
        made.append(Chunk(args, place, Span(start, count, first, last), context))
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
