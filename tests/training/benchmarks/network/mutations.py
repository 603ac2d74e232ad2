"""Mistakes that a fabric or a library could make in what a rank has received."""

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import torch
import torch.distributed as dist

from training.benchmarks.driver.workload.pattern import BITS

Mutation = Callable[[torch.Tensor], object]


# What each function of torch.distributed receives, from its arguments; rooted ones deliver to their root alone.
_OUTPUTS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("all_reduce", "broadcast", "recv"), lambda tensor, *_: [tensor]),
    **dict.fromkeys(
        ("reduce_scatter_single", "reduce_scatter_tensor", "all_gather_single", "all_gather_into_tensor"),
        lambda output, *_: [output],
    ),
    "all_to_all_single": lambda output, *_: [output],
    "P2POp": lambda operation, tensor, *_: [tensor] if operation.__name__ in ("recv", "irecv") else [],
    "scatter": lambda tensor, *_: [tensor],
    "gather": lambda _tensor, received=None, *_: received or [],
    "reduce": lambda tensor, dst=0, *_: [tensor] if dst == RANK.get() else [],
}
RANK: ContextVar[int] = ContextVar("rank")


class Receipts:
    """Notes the tensors into which each rank receives, while the functions of torch.distributed go through it."""

    def __init__(self) -> None:
        self.of: dict[int, list[torch.Tensor]] = {}

    def install(self, patch: Callable[[object, str, object], None]) -> None:
        """Put a function that notes and calls in the place of each function that receives."""
        for name, outputs in _OUTPUTS.items():
            if hasattr(dist, name):
                patch(dist, name, self._noting(getattr(dist, name), outputs))

    def _noting(self, function: Callable[..., Any], outputs: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            named = {name: options[name] for name in ("dst", "received", "gather_list") if name in options}
            self.of.setdefault(RANK.get(), []).extend(outputs(*arguments, *named.values()))
            return function(*arguments, **options)

        return call


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(BITS[tensor.itemsize])


def _flip(bit: int, place: float) -> Mutation:
    """Flip one bit (negative: from the highest) of the element at this fraction of the buffer."""

    def mutate(tensor: torch.Tensor) -> None:
        bits, index = _bits(tensor), int(place * (tensor.numel() - 1))
        value = 1 << (bit % (8 * tensor.itemsize))
        signed = value - (1 << 64) if value >= 1 << 63 else value
        bits[index] ^= torch.tensor(signed, dtype=torch.int64).to(bits.dtype)

    return mutate


def mutations(ranks: int, *, exact: bool) -> Iterator[tuple[str, Mutation]]:
    """Name and function of each mistake; `exact`: every bit of the result is known."""
    for place in (0.0, 0.5, 1.0):
        yield f"element {place}", _flip(0 if exact else -1, place)
    yield "reversed", lambda tensor: _bits(tensor).copy_(_bits(tensor).flip(0))
    yield "one element everywhere", lambda tensor: _bits(tensor).fill_(_bits(tensor)[0])
    yield "displaced by a chunk", lambda tensor: _bits(tensor).copy_(_bits(tensor).roll(tensor.numel() // ranks))
    yield "displaced by an element", lambda tensor: _bits(tensor).copy_(_bits(tensor).roll(1))
    yield "first half twice", _first_half_twice
    yield "doubled", lambda tensor: tensor.copy_((tensor.to(torch.float64) * 2).to(tensor.dtype))


def _first_half_twice(tensor: torch.Tensor) -> None:
    half = tensor.numel() // 2
    _bits(tensor)[half : 2 * half] = _bits(tensor)[:half]
