"""The sub-modules that are measured, built with the chosen kernels: projections, norms, experts, embedding and loss.

Weights and inputs are random; no result is used. Attention's own modules are in `core`.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.benchmarks.aicb.measuring import core
from training.benchmarks.aicb.measuring.parts import Part
from workloads.job.parameters import WorkloadArgs

TRANSFORMER_ENGINE, APEX, GROUPED_MM = "transformer_engine", "apex", "grouped_mm"


@dataclass(frozen=True, slots=True)
class Setting:
    """Settings of modules. kernels: the one in use by its kind (attention, norm, experts, optimizer)."""

    args: WorkloadArgs
    device: torch.device
    dtype: torch.dtype
    kernels: dict[str, str]

    def random(self, *shape: int, grad: bool = True) -> Tensor:
        """A random tensor of `shape`."""
        made = torch.randn(shape, device=self.device, dtype=self.dtype) * 0.02
        return made.requires_grad_(grad)

    def weight(self, *shape: int) -> nn.Parameter:
        """A random parameter of `shape`."""
        return nn.Parameter(self.random(*shape, grad=False))


class Projection(nn.Module):
    """x (m, k) to (m, n)."""

    def __init__(self, part: Part, to: Setting) -> None:
        super().__init__()
        self.weight = to.weight(part.sizes["n"], part.sizes["k"])
        self.bias = to.weight(part.sizes["n"]) if part.sizes["bias"] else None

    def forward(self, x: Tensor) -> Tensor:
        """x (m, k) to (m, n)."""
        return functional.linear(x, self.weight, self.bias)


class ExpertProjection(nn.Module):
    """x (experts * m, k), sorted by expert, to (experts * m, n); each expert has m tokens."""

    def __init__(self, part: Part, to: Setting) -> None:
        super().__init__()
        count, m = part.sizes["experts"], part.sizes["m"]
        self.count, self.grouped = count, to.kernels["experts"] == GROUPED_MM
        self.weight = to.weight(count, part.sizes["k"], part.sizes["n"])
        self.ends = torch.arange(1, count + 1, device=to.device, dtype=torch.int32) * m

    def forward(self, x: Tensor) -> Tensor:
        """x (experts * m, k) to (experts * m, n)."""
        if self.grouped:
            return functional.grouped_mm(x, self.weight, offs=self.ends)
        return torch.bmm(x.view(self.count, -1, x.shape[-1]), self.weight).flatten(0, 1)


class Activation(nn.Module):
    """The MLP's activation function: x (tokens, width or 2 width) to (tokens, width)."""

    def __init__(self, part: Part, to: Setting) -> None:
        super().__init__()
        self.gated, self.swish, self.squared = bool(part.sizes["gated"]), to.args.swiglu, to.args.squared_relu

    def forward(self, x: Tensor) -> Tensor:
        """x (tokens, width or 2 width) to (tokens, width)."""
        if not self.gated:
            return functional.relu(x).square() if self.squared else functional.gelu(x, approximate="tanh")
        gate, value = x.chunk(2, dim=-1)
        return (functional.silu(gate) if self.swish else functional.gelu(gate, approximate="tanh")) * value


class Residual(nn.Module):
    """The sum of a block's output and its input, both (tokens, width)."""

    def forward(self, x: Tensor, skipped: Tensor) -> Tensor:
        """The sum of two tensors (tokens, width)."""
        return x + skipped


class Router(nn.Module):
    """x (tokens, width) to the weights (tokens, topk) of the chosen experts, in 32 bits as Megatron computes them."""

    def __init__(self, part: Part, to: Setting) -> None:
        super().__init__()
        self.topk = part.sizes["topk"]
        self.weight = to.weight(part.sizes["experts"], part.sizes["width"])

    def forward(self, x: Tensor) -> Tensor:
        """x (tokens, width) to (tokens, topk)."""
        scores = functional.linear(x, self.weight).float().softmax(-1)
        return scores.topk(self.topk, dim=-1).values.to(x.dtype)


class Permutation(nn.Module):
    """x (tokens, width) to a copy for each of its experts, sorted by expert: (tokens * topk, width)."""

    def __init__(self, part: Part, to: Setting) -> None:
        super().__init__()
        self.source = sources(part, to)

    def forward(self, x: Tensor) -> Tensor:
        """x (tokens, width) to (tokens * topk, width)."""
        return x.index_select(0, self.source)


class Combination(nn.Module):
    """The weighted sum of each token's expert outputs: (tokens * topk, width) and (tokens, topk) to (tokens, width)."""

    def __init__(self, part: Part, to: Setting) -> None:
        super().__init__()
        self.source, self.tokens = sources(part, to), part.sizes["tokens"]

    def forward(self, x: Tensor, weights: Tensor) -> Tensor:
        """x (tokens * topk, width) and weights (tokens, topk) to (tokens, width)."""
        found = x.new_zeros(self.tokens, x.shape[-1])
        return found.index_add(0, self.source, x * weights.reshape(-1, 1))


def sources(part: Part, to: Setting) -> Tensor:
    """Token of each routed copy, evenly over the experts: shape (tokens * topk,)."""
    tokens, topk = part.sizes["tokens"], part.sizes["topk"]
    return torch.arange(tokens * topk, device=to.device) % tokens


class Embedding(nn.Module):
    """Vocabulary ids (tokens,) to vectors (tokens, width); ids of other ranks' shares are masked as in Megatron."""

    def __init__(self, part: Part, to: Setting) -> None:
        super().__init__()
        self.weight = to.weight(part.sizes["vocab"], part.sizes["width"])
        self.split = to.args.tensor_model_parallel_size > 1

    def forward(self, ids: Tensor) -> Tensor:
        """ids (tokens,) to (tokens, width)."""
        if not self.split:
            return functional.embedding(ids, self.weight)
        outside = (ids < 0) | (ids >= self.weight.shape[0])
        found = functional.embedding(ids.masked_fill(outside, 0), self.weight)
        return found.masked_fill(outside[:, None], 0.0)


class Loss(nn.Module):
    """Cross-entropy of logits (tokens, width) in 32 bits: a rank's part of the vocabulary-parallel loss."""

    def __init__(self, part: Part, to: Setting) -> None:
        super().__init__()
        self.targets = torch.randint(part.sizes["width"], (part.sizes["tokens"], 1), device=to.device)

    def forward(self, logits: Tensor) -> Tensor:
        """logits (tokens, width) to one number, shape ()."""
        wide = logits.float()
        return (wide.logsumexp(-1) - wide.gather(1, self.targets).squeeze(1)).mean()


def norm(part: Part, to: Setting) -> nn.Module:
    """A norm of x (tokens, width) with the chosen kernel."""
    width, root = part.sizes["width"], to.args.normalization == "RMSNorm"
    kernel = to.kernels["norm"]
    made: nn.Module
    if kernel == TRANSFORMER_ENGINE:
        library = importlib.import_module("transformer_engine.pytorch")
        made = (library.RMSNorm if root else library.LayerNorm)(width)
    elif kernel == APEX:
        library = importlib.import_module("apex.normalization")
        made = (library.FusedRMSNorm if root else library.FusedLayerNorm)(width)
    else:
        made = nn.RMSNorm(width) if root else nn.LayerNorm(width)
    return made.to(device=to.device, dtype=to.dtype)


_BUILDERS: dict[str, Callable[[Part, Setting], nn.Module]] = {
    "linear": Projection,
    "experts": ExpertProjection,
    "norm": norm,
    "activation": Activation,
    "residual": lambda part, to: Residual(),
    "router": Router,
    "permute": Permutation,
    "unpermute": Combination,
    "embedding": Embedding,
    "loss": Loss,
}


def build(part: Part, to: Setting) -> nn.Module:
    """The module of a part."""
    if part.kind in core.KINDS:
        return core.build(part, to.kernels["attention"], to.device, to.dtype)
    return _BUILDERS[part.kind](part, to)


def inputs(part: Part, to: Setting) -> list[Tensor]:
    """Random inputs of the shapes that a part's module takes; all but the embedding's ids want a gradient."""
    s = part.sizes
    if part.kind == "embedding":
        whole = s["vocab"] * to.args.tensor_model_parallel_size
        return [torch.randint(whole, (s["tokens"],), device=to.device)]
    if part.kind in core.KINDS:
        return [to.random(*shape) for shape in core.input_shapes(part)]
    if part.kind in ("linear", "experts"):
        return [to.random(s.get("experts", 1) * s["m"], s["k"])]
    if part.kind == "unpermute":
        return [to.random(s["tokens"] * s["topk"], s["width"]), to.random(s["tokens"], s["topk"])]
    width = s["width"] * (2 if s.get("gated") else 1)
    return [to.random(s["tokens"], width) for _ in range(2 if part.kind == "residual" else 1)]
