"""Runs parts: each alone, forward and backward apart, and all of a layer together as a rank of the job runs them.

Where a collective changes the number of tokens (sequence parallelism, experts of several ranks) the layer goes on with
a buffer of the right shape; what the collective itself costs is no part of AIOB.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from training.benchmarks.aicb.measuring import modules
from training.benchmarks.aicb.measuring.modules import Setting
from training.benchmarks.aicb.measuring.parts import LayerShapes, Part


class OnePart:
    """One part with its inputs; `forward` runs it, `backward` computes the gradients of all inputs and weights."""

    def __init__(self, part: Part, to: Setting) -> None:
        self.module = modules.build(part, to)
        self.inputs = modules.inputs(part, to)
        self.wanted = [each for each in (*self.inputs, *self.module.parameters()) if each.requires_grad]
        self.outputs: tuple[Tensor, ...] = ()
        self.gradients: tuple[Tensor, ...] = ()
        # A sum passes its gradient on; where its input forks, the backward pass adds two gradients.
        self.forks = part.kind == "residual"

    def forward(self) -> None:
        """One forward pass, as in training."""
        found = self.module(*self.inputs)
        self.outputs = found if isinstance(found, tuple) else (found,)

    def prepare_backward(self) -> None:
        """Run forward; the first time, make the gradients that arrive. Each backward pass needs its own forward pass:
        some fused kernels give up what they saved.
        """
        self.forward()
        if not self.gradients:
            self.gradients = tuple(torch.randn_like(each) for each in self.outputs)

    def backward(self) -> None:
        """One backward pass."""
        if self.forks:
            torch.add(self.gradients[0], self.gradients[0])
            return
        torch.autograd.grad(self.outputs, self.wanted, self.gradients, allow_unused=True)


class WholeLayer:
    """All parts of a layer in one forward and one backward pass."""

    def __init__(self, parts: Sequence[Part], to: Setting) -> None:
        self.to = to
        self.parts = {part.name: part for part in parts if part.layer}
        self.modules = nn.ModuleDict({name: modules.build(part, to) for name, part in self.parts.items()})
        self.tokens = LayerShapes(to.args).local_tokens
        self.input = to.random(self.tokens, to.args.hidden_size)
        self.buffers: dict[int, Tensor] = {}
        self.roots: list[Tensor] = []
        self.gradients: list[Tensor] = []

    def forward(self) -> None:
        """One forward pass, as in training."""
        self.roots = []
        self.roots.append(self._mlp(self._attention(self.input)))

    def prepare_backward(self) -> None:
        """Run forward; at first, make the gradients that arrive. Each backward pass needs its own."""
        self.forward()
        if not self.gradients:
            self.gradients = [torch.randn_like(each) for each in self.roots]

    def backward(self) -> None:
        """One backward pass: the gradients of the input and of all weights."""
        wanted = [self.input, *self.modules.parameters(), *self.buffers.values()]
        torch.autograd.grad(self.roots, wanted, self.gradients, allow_unused=True)

    def _run(self, name: str, *inputs: Tensor) -> Tensor:
        found: Tensor = self.modules[name](*inputs)
        return found

    def _attention(self, x: Tensor) -> Tensor:
        whole = self.to.args.micro_batch * self.to.args.seq_length
        y = self._of_size(self._run("input_norm", x), whole)
        if "kv_up" in self.parts:
            query, key, value = self._latent(y)
        else:
            query, key, value = self.modules["attention_heads"](self._run("attention_qkv", y))
        if "attention_core" in self.parts:
            context = self._run("attention_core", query, key, value)
        else:
            weights = self._run("attention_softmax", self._run("attention_scores", query, key))
            context = self._run("attention_context", weights, value)
        y = self._of_size(self._run("attention_output", context), self.tokens)
        return self._run("attention_residual", y, x)

    def _latent(self, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        narrow = self._run("q_norm", self._run("q_down", y)) if "q_down" in self.parts else y
        down = self._run("kv_down", y)
        rank = self.to.args.kv_lora_rank
        key_value = self._run("kv_up", self._run("kv_norm", down[:, :rank]))
        found: tuple[Tensor, Tensor, Tensor] = self.modules["attention_heads"](
            self._run("q_up", narrow), key_value, down[:, rank:]
        )
        return found

    def _mlp(self, x: Tensor) -> Tensor:
        y = self._run("mlp_norm", x)
        mixture = "experts_in" in self.parts
        out = self._experts(y) if mixture else self._of_size(self._dense("mlp", y), self.tokens)
        return self._run("mlp_residual", out, x)

    def _dense(self, name: str, y: Tensor) -> Tensor:
        y = self._of_size(y, self.parts[f"{name}_in"].sizes["m"])
        return self._run(f"{name}_out", self._run(f"{name}_activation", self._run(f"{name}_in", y)))

    def _experts(self, y: Tensor) -> Tensor:
        weights, sent = self._run("router", y), self._run("permute", y)
        sizes = self.parts["experts_in"].sizes
        arrived = self._of_size(sent, sizes["experts"] * sizes["m"])
        done = self._run("experts_out", self._run("experts_activation", self._run("experts_in", arrived)))
        out = self._run("unpermute", self._of_size(done, len(sent)), weights)
        if "shared_in" not in self.parts:
            return out
        return self._run("shared_residual", self._of_size(self._dense("shared", y), self.tokens), out)

    def _of_size(self, y: Tensor, tokens: int) -> Tensor:
        """`y` (any, width) if it has so many tokens; else what a collective would bring, shape (tokens, width)."""
        if len(y) == tokens:
            return y
        self.roots.append(y)
        at = len(self.roots)
        if at not in self.buffers:
            self.buffers[at] = self.to.random(tokens, y.shape[-1])
        return self.buffers[at]
