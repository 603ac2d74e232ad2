"""Layers by their documented formulas; each call moves `clock` by its layer's `seconds`; `called` has who was."""

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.training.benchmarks.driver.training.model.scaled_products import Products

clock = [0.0]
seconds: dict[str, float] = {}
called: set[str] = set()
_recipes: list[object] = []


@contextlib.contextmanager
def fp8_autocast(
    enabled: bool = True, calibrating: bool = False, fp8_recipe: object = None, fp8_group: object = None
) -> Iterator[None]:
    """Within it linear layers compute in FP8."""
    assert enabled and fp8_recipe is not None, "the default is delayed scaling, which has a state"
    _recipes.append(fp8_recipe)
    try:
        yield
    finally:
        _recipes.pop()


class _Layer(nn.Module):
    weight: nn.Parameter

    def get_extra_state(self) -> Tensor:
        """Scales of FP8."""
        return torch.zeros(4, dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        """The inverse."""

    def begin(self, inputs: Tensor) -> torch.dtype:
        """The type of the computation."""
        name = type(self).__name__
        called.add(name)
        clock[0] += seconds.get(name, 0.0)
        kind = inputs.device.type
        if torch.is_autocast_enabled(kind):
            return torch.get_autocast_dtype(kind)
        assert inputs.dtype == self.weight.dtype, (
            "Data types for parameters must match when outside of autocasted region."
        )
        return inputs.dtype


class Linear(_Layer):
    """A product with a matrix."""

    def __init__(
        self, in_features: int, out_features: int, *, bias: bool = True, device: torch.device | str = "cuda"
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, in_features, device=device))
        # As there: what is no parameter stays on the device that was named.
        self.bias = nn.Parameter(torch.empty(out_features, device=device)) if bias else torch.empty(0, device=device)

    @torch._dynamo.disable  # type: ignore[untyped-decorator]  # as there
    def forward(self, inp: Tensor) -> Tensor:
        """(..., in_features) to (..., out_features)."""
        dtype = self.begin(inp)
        assert inp.device == self.bias.device
        inputs, weight = inp.to(dtype), self.weight.to(dtype)
        if not _recipes:
            return functional.linear(inputs, weight, self.bias.to(dtype) if len(self.bias) else None)
        found: Tensor = Products.apply(inputs.flatten(0, -2), weight, False)  # type: ignore[no-untyped-call]
        return found.view(*inputs.shape[:-1], -1).to(dtype)


class RMSNorm(_Layer):
    """By the root of the mean square."""

    def __init__(self, normalized_shape: int, eps: float = 1e-5, *, device: torch.device | str = "cuda") -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(normalized_shape, device=device))

    @torch._dynamo.disable  # type: ignore[untyped-decorator]
    def forward(self, inp: Tensor) -> Tensor:
        """Shapes are equal."""
        dtype = self.begin(inp)
        return functional.rms_norm(inp.to(dtype), self.weight.shape, self.weight.to(dtype), self.eps)


class LayerNorm(_Layer):
    """By mean and variance."""

    def __init__(self, normalized_shape: int, *, eps: float = 1e-5, device: torch.device | str = "cuda") -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(normalized_shape, device=device))
        self.bias = nn.Parameter(torch.empty(normalized_shape, device=device))

    @torch._dynamo.disable  # type: ignore[untyped-decorator]
    def forward(self, inp: Tensor) -> Tensor:
        """Shapes are equal."""
        dtype = self.begin(inp)
        weight, bias = self.weight.to(dtype), self.bias.to(dtype)
        return functional.layer_norm(inp.to(dtype), self.weight.shape, weight, bias, self.eps)
