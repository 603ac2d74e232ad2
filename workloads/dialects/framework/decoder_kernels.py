"""States the kernels of the decoder that FSDP2 and DeepSpeed shard, module by module, in the order in which they run.

torch's linear layers compute the gradient of the weight first, ZeRO 3's own that of the input.
"""

from collections.abc import Iterator
from typing import NamedTuple

from workloads.dialects.framework import float8
from workloads.dialects.framework.context import window_of
from workloads.dialects.framework.decoder import DecoderPart
from workloads.dialects.framework.kernels import Kernels
from workloads.dialects.framework.layers import activation
from workloads.job.parameters import WorkloadArgs
from workloads.rows.calls import Call


class ModuleKernels(NamedTuple):
    """Of a module that holds weights: what runs before it and itself, and backward itself and what follows it.

    after: what ran before it, and the sum of its input's gradient with another's.
    """

    before: list[Call]
    forward: list[Call]
    backward: list[Call]
    after: list[Call]


NOTHING = ModuleKernels([], [], [], [])


def leaves(part: DecoderPart) -> Iterator[DecoderPart]:
    """The modules with weights, in forward order."""
    for each in part.runs:
        yield from leaves(each)
    if part.weights:
        yield part


class DecoderKernels:
    """The kernels of one rank; empty lists unless the job asks for computation. input_first: as ZeRO 3 has it.

    Tensor-parallel ranks hold a part of the heads and of the MLP, and between the blocks a part of the sequence.
    """

    def __init__(self, args: WorkloadArgs, *, input_first: bool = False) -> None:
        self.args, self.input_first = args, input_first
        tokens, tp = args.micro_batch * args.seq_length, args.tensor_model_parallel_size
        self.kernels = Kernels(args, tokens, args.dtype)
        self.kept, self.hidden = tokens // tp, args.hidden_size
        self.heads = args.framework_heads // tp
        self.groups = (args.num_query_groups or args.framework_heads) // tp
        self.width = self.hidden // args.framework_heads
        self.ffn, self.vocab = args.ffn_size // tp, args.vocab_size // tp

    def layer(self, part: DecoderPart) -> dict[str, ModuleKernels]:
        """The modules of a layer with weights, by the last word of their names, in forward order."""
        name, queries, keys = part.name, self.heads * self.width, self.groups * self.width
        attention, mlp, moving = f"{name}.self_attn", f"{name}.mlp", self.kernels.moving
        passed = self._residual("forward", name)
        act, sizes = activation(self.args), ((self.heads, self.groups), (self.width, self.width))
        rotated = [call for each in (queries, keys) for call in moving("rope", "forward", attention, each)]
        window = window_of(self.args, int(name.rpartition(".")[2]))
        back = self.kernels.attention_back(attention, *sizes, window=window)
        for each in (keys, queries):
            back += moving("rope_backward", "backward", attention, each)
        core = [*rotated, *self.kernels.attention("forward", attention, *sizes, window=window)]
        act_back = moving(f"{act}_backward", "backward", mlp, self.ffn)
        gate = {"gate_proj": self._linear(f"{mlp}.gate_proj", self.hidden, self.ffn)} if self.args.swiglu else {}
        joins = bool(gate)
        return {
            "input_layernorm": self._norm(f"{name}.input_layernorm", []),
            "k_proj": self._linear(f"{attention}.k_proj", self.hidden, keys, joins=True),
            "v_proj": self._linear(f"{attention}.v_proj", self.hidden, keys, joins=True),
            "q_proj": self._linear(f"{attention}.q_proj", self.hidden, queries),
            "o_proj": self._linear(f"{attention}.o_proj", queries, self.hidden, core, back),
            "post_attention_layernorm": self._norm(f"{name}.post_attention_layernorm", passed),
            "up_proj": self._linear(f"{mlp}.up_proj", self.hidden, self.ffn, joins=joins),
            **gate,
            "down_proj": self._linear(
                f"{mlp}.down_proj", self.ffn, self.hidden, moving(act, "forward", mlp, self.ffn), act_back
            ),
        }

    def ends(self) -> dict[str, ModuleKernels]:
        """The modules outside of all layers: embedding, last norm and head."""
        moving, made = self.kernels.moving, self._norm("norm", [])
        return {
            "embed_tokens": ModuleKernels(
                [],
                moving("embedding", "forward", "embed_tokens", self.hidden),
                moving("embedding_backward", "backward", "embed_tokens", self.hidden),
                [],
            ),
            "norm": made._replace(after=[]),
            "lm_head": self._linear("lm_head", self.hidden, self.vocab),
        }

    def loss(self, phase: str) -> list[Call]:
        """The cross entropy."""
        return self.kernels.moving("loss" if phase == "forward" else "loss_backward", phase, "", self.vocab)

    def end(self, part: DecoderPart) -> list[Call]:
        """The kernels at the end of a layer, forward."""
        return self._residual("forward", part.name)

    def every(self, model: DecoderPart) -> dict[str, ModuleKernels]:
        """All modules with weights, by name."""
        if not self.kernels.wanted:
            return {}
        found = dict(self.ends())
        for part in model.runs:
            if part.runs:
                named = {each.name.rpartition(".")[2]: each.name for each in leaves(part)}
                found |= {named[word]: kernels for word, kernels in self.layer(part).items()}
        return found

    def _norm(self, name: str, before: list[Call]) -> ModuleKernels:
        """A norm before a block that a residual passes by."""
        moving = self.kernels.moving
        backward = moving("norm_backward", "backward", name, self.hidden, self.kept)
        forward = moving("norm", "forward", name, self.hidden, self.kept)
        return ModuleKernels(before, forward, backward, self._residual("backward", name))

    def _linear(
        self, name: str, inner: int, outer: int, before: list[Call] | None = None, after: list[Call] | None = None,
        *, joins: bool = False,
    ) -> ModuleKernels:  # fmt: skip
        """A linear layer. after: what its input's gradient goes through; joins: it is added to another's."""
        kernels = self.kernels
        if kernels.is_low(name):
            ahead, back = float8.linear(kernels, name, inner, outer)
            added = kernels.moving("residual", "backward", name, self.hidden) if joins else []
            return ModuleKernels(before or [], ahead, back, [*(after or []), *added])
        weight, gradient = kernels.weight_gradient(name, inner, outer), kernels.input_gradient(name, inner, outer)
        # torch's product with a bias has the gradients in the order of its operands.
        biased = self.args.add_bias_linear and name != "lm_head"
        both = [*gradient, *weight] if self.input_first or biased else [*weight, *gradient]
        added = kernels.moving("residual", "backward", name, self.hidden) if joins else []
        forward = kernels.product("forward", name, inner, outer)
        return ModuleKernels(before or [], forward, both, [*(after or []), *added])

    def _residual(self, phase: str, name: str) -> list[Call]:
        return self.kernels.moving("residual", phase, name, self.hidden, self.kept)
