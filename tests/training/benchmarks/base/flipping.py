"""Flips one bit in the result of one product, as a broken unit of a device does."""

import random
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm")
BITS = {torch.float32: (32, torch.int32), torch.bfloat16: (16, torch.int16)}


class Flip(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is entered, counts products, and flips a drawn bit of a drawn element of number `at`, from 0."""

    def __init__(self, at: int | None, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count, self.flipped = 0, ""
        self._at, self._draw = at, random.Random(seed)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.name() in PRODUCTS:
            if self.count == self._at:
                width, whole = BITS[result.dtype]
                place, bit = self._draw.randrange(result.numel()), self._draw.randrange(width)
                bits = result.view(whole).view(-1)
                bits[place] ^= -(1 << bit) if bit == width - 1 else 1 << bit
                self.flipped = f"bit {bit} of element {place} of {func.name()} number {self.count}"
            self.count += 1
        return result
