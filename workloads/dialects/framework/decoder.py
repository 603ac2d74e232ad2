"""Lays out the decoder that FSDP2 and DeepSpeed shard: LLaMA's layers, their parameters, the order they run in."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from workloads.job.parameters import WorkloadArgs

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Weight:
    """A parameter. shape: in elements, PyTorch's (out, in)."""

    name: str
    shape: Shape

    @property
    def numel(self) -> int:
        """Elements."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class DecoderPart:
    """A module. weights: its own parameters; parts: its modules as they are made; runs: the same in forward order."""

    name: str
    weights: tuple[Weight, ...] = ()
    parts: tuple["DecoderPart", ...] = ()
    runs: tuple["DecoderPart", ...] = ()

    def every_weight(self) -> Iterator[Weight]:
        """The parameters of the module and its parts, in the order of named_parameters; tied ones come twice."""
        yield from self.weights
        for part in self.parts:
            yield from part.every_weight()


def decoder(args: WorkloadArgs) -> DecoderPart:
    """The whole."""
    words, norm, head = ends(args)
    every = (words, *(layer(args, number) for number in range(args.num_layers)), norm, head)
    return DecoderPart("", parts=every, runs=every)


def ends(args: WorkloadArgs) -> tuple[DecoderPart, DecoderPart, DecoderPart]:
    """Modules outside all layers: embedding, last norm, head, which has the embedding's weight unless untied."""
    words, head = (_module(name, (args.vocab_size, args.hidden_size)) for name in ("embed_tokens", "lm_head"))
    if not args.untie_embeddings:
        head = DecoderPart(head.name, words.weights)
    return words, _module("norm", (args.hidden_size,)), head


def layer(args: WorkloadArgs, number: int) -> DecoderPart:
    """Layer `number`, counted from 0: keys and values run before queries, the way up before its gate."""
    name, hidden, bias = f"layers.{number}", args.hidden_size, args.add_bias_linear
    width = hidden // args.framework_heads
    heads, groups = width * args.framework_heads, width * (args.num_query_groups or args.framework_heads)
    outputs = {"q": heads, "k": groups, "v": groups}
    query, key, value = (_module(f"{name}.self_attn.{each}_proj", (outputs[each], hidden), bias) for each in outputs)
    out = _module(f"{name}.self_attn.o_proj", (hidden, heads), bias)
    attention = DecoderPart(
        f"{name}.self_attn", parts=(query, key, value, out), runs=(key, value, query, out)
    )  # fmt: skip
    up, gate = (_module(f"{name}.mlp.{each}_proj", (args.ffn_size, hidden), bias) for each in ("up", "gate"))
    down = _module(f"{name}.mlp.down_proj", (hidden, args.ffn_size), bias)
    gates = (gate,) if args.swiglu else ()
    mlp = DecoderPart(f"{name}.mlp", parts=(*gates, up, down), runs=(up, *gates, down))
    before, after = (_module(f"{name}.{each}_layernorm", (hidden,)) for each in ("input", "post_attention"))
    every = (before, attention, after, mlp)
    return DecoderPart(name, parts=every, runs=every)


def _module(name: str, shape: Shape, bias: bool = False) -> DecoderPart:
    weights = (Weight(f"{name}.weight", shape), *([Weight(f"{name}.bias", shape[:1])] if bias else []))
    return DecoderPart(name, weights)
