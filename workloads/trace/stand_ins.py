"""Stands in for classes that need a GPU or Transformer Engine; `shims` says why and puts them in their places."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

DEVICE = "meta"
"""Where the tensors of a traced process live: shapes without data."""


class OnMeta(TorchFunctionMode):
    """New tensors have no data, also where a device is written out: megatron-core 0.16.1 makes device="cuda" ones, and
    pins indices, of context parallelism, without which torch needs no GPU.
    """

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        device = named.get("device")
        if func in _device_constructors() and (device is None or torch.device(device).type == "cuda"):
            named["device"] = DEVICE
        named.pop("pin_memory", None)
        return func(*args, **named)


class Inert:
    """Stands for a stream, an event or a timer: everything may be called, nothing happens."""

    def __call__(self, *_: object, **__: object) -> "Inert":
        return self

    def __getattr__(self, name: str) -> "Inert":
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __enter__(self) -> "Inert":
        return self

    def __exit__(self, *_: object) -> None:
        return None


class PlainNorm(torch.nn.Module):
    """LayerNorm or RMSNorm with parameters of the model's type, marked for sequence parallelism.

    megatron-core 0.16.1 without Transformer Engine or Apex has WrappedTorchNorm, which refuses sequence parallelism and
    makes float32 parameters.
    """

    def __init__(self, config: Any, hidden_size: int, eps: float = 1e-5, **_: object) -> None:
        super().__init__()
        names = ("weight",) if config.normalization == "RMSNorm" else ("weight", "bias")
        for name in names:
            parameter = torch.nn.Parameter(torch.empty(hidden_size, dtype=config.params_dtype, device=DEVICE))
            parameter.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]
            self.register_parameter(name, parameter)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden of shape (..., hidden_size) keeps its shape; which values is no matter."""
        weight, *bias = self.parameters()
        return torch.nn.functional.layer_norm(hidden, weight.shape, weight, bias[0] if bias else None)


class WideValueAttention(torch.nn.Module):
    """Scaled dot products whose values have another width than the keys, for multi-latent attention.

    megatron-core 0.16.1 has it in Transformer Engine alone: DotProductAttention does not take k_channels.
    """

    def __init__(self, config: Any, *_: object, v_channels: int, **__: object) -> None:
        super().__init__()
        self.width = config.num_attention_heads // config.tensor_model_parallel_size * v_channels

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: object, **__: object
    ) -> torch.Tensor:
        """Query, key and value of shape (sequence, batch, heads, channels) to (sequence, batch, heads * v_channels).

        Keys and values may be of more tokens, those before the query's.
        """
        tokens, batch = query.shape[:2]
        query, key, value = (each.flatten(1, 2).transpose(0, 1) for each in (query, key, value))
        scores = torch.baddbmm(query.new_empty(len(query), tokens, key.shape[1]), query, key.transpose(1, 2), beta=0.0)
        found = torch.bmm(scores.softmax(-1), value)
        return found.transpose(0, 1).reshape(tokens, batch, -1)[..., : self.width]


class Splits(tuple[int, ...]):
    """Split sizes as numpy's arrays have them."""

    def tolist(self) -> list[int]:
        """The sizes."""
        return list(self)


class Tracker:
    """Random states of a device that is not there."""

    def fork(self, *_: object, **__: object) -> nullcontext[None]:
        return nullcontext()

    def is_initialized(self) -> bool:
        return True

    def get_states(self) -> dict[str, object]:
        return {}

    def set_states(self, _: object) -> None:
        return None
