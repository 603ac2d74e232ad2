"""The three products of a linear layer in FP8 by torch's own kernel of scaled products."""

from typing import Any

import torch
from torch import Tensor

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
Operand = tuple[Tensor, Tensor]


def _rounded(values: Tensor, kind: torch.dtype, by_row: bool) -> Operand:
    """The values in FP8, and by what they are multiplied back; by_row: a power of two for each row."""
    most = torch.finfo(kind).max
    largest = (values.abs().amax(dim=1, keepdim=True) if by_row else values.abs().max()).double()
    scale = most / largest.clamp(min=1e-12)
    scale = (scale.log2().floor().exp2() if by_row else scale).float()
    return (values * scale).clamp(-most, most).to(kind), scale.reciprocal()


def _product(left: Operand, right: Operand) -> Tensor:
    """left (m, k) times the transposed right (n, k) by torch's own kernel, and the scales after it."""
    one = torch.ones(())
    found = torch._scaled_mm(left[0], right[0].t(), scale_a=one, scale_b=one, out_dtype=torch.float32)
    return found * left[1] * (right[1].t() if right[1].ndim else right[1])


class Products(torch.autograd.Function):
    """The three products of a linear layer; each operand is rounded along the dimension that is summed."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, by_row: bool) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        ctx.by_row = by_row
        return _product(_rounded(inputs, E4M3, by_row), _rounded(weight, E4M3, by_row))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        (gradient,), (inputs, weight) = gradients, ctx.saved_tensors
        kind = E4M3 if ctx.by_row else E5M2

        def product(left: Tensor, right: Tensor) -> Tensor:
            operands = (left.contiguous(), kind), (right.contiguous(), E4M3)
            return _product(*(_rounded(values, each, ctx.by_row) for values, each in operands))

        return product(gradient, weight.t()), product(gradient.t(), inputs.t()), None
