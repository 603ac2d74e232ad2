"""States what Transformer Engine moves where Megatron's linear layers compute in FP8: copies of operands, and scales.

As its modules LayerNormLinear, Linear and GroupedLinear have it (2.11). Products of tensors with one scale need both
operands by rows on Hopper: a copy in the other order is made with the first, or of what was gathered; MXFP8 (a scale
for each 32 elements of a row or column) is quantised in both ways from 16 bits. Delayed scaling has its largest
elements from steps before, so that a norm of LayerNormLinear writes FP8 itself; current scaling looks for them first.
A pass that full recomputation runs again needs its inputs for one product. Weights are quantised in the first
micro-batch, for both passes. The head and the router stay in 16 bits.
"""

from collections.abc import Iterable, Iterator

from workloads.compute.operators import read_kernel
from workloads.dialects.framework.kernels import Kernels, Side
from workloads.rows.calls import BFLOAT16, FLOAT8, SIZES, Call

BLOCK = 32
"""Elements that share a scale of a byte in MXFP8 (OCP Microscaling Formats, v1.0)."""
MXFP8, CURRENT, DELAYED = "mxfp8", "tensorwise", "delayed"


def norm(kernels: Kernels, phase: str, module: str, side: Side) -> list[Call]:
    """A norm that is part of a linear layer's module."""
    is_low = kernels.float8 and kernels.args.fp8_recipe == DELAYED
    less = (SIZES[BFLOAT16] - SIZES[FLOAT8]) * side[0] * side[1] if is_low else 0
    return kernels.made("norm", side, phase, module, more=-less)


def operand(
    kernels: Kernels, phase: str, module: str, side: Side, *, sent: bool = False, normed: bool = False
) -> list[Call]:
    """An operand's quantisation. sent: it is gathered next, a tensor with one scale by rows alone; normed: the module's
    own norm found the largest element as it wrote, or wrote FP8.
    """
    if not kernels.is_low(module):
        return []
    recipe = kernels.args.fp8_recipe
    runs_again = phase == "forward" and kernels.args.activation_recompute == "full"
    by_rows = runs_again or (sent and recipe != MXFP8)
    if normed and recipe == DELAYED:
        return [] if by_rows else kernels.turned(phase, module, side)
    return _quantised(kernels, phase, module, side, by_rows=by_rows, known=normed)


def _quantised(
    kernels: Kernels, phase: str, module: str, side: Side, *, by_rows: bool = False, known: bool = False
) -> list[Call]:
    """From 16 bits, with the scales of MXFP8. known: the largest element is."""
    recipe = kernels.args.fp8_recipe
    largest = kernels.made("amax", side, phase, module) if recipe == CURRENT and not known else []
    scales = side[0] * side[1] // BLOCK if recipe == MXFP8 else 0
    op, orders = ("quantize", 1) if by_rows else ("quantize_both", 2)
    return [*largest, *kernels.made(op, side, phase, module, more=orders * scales)]


def turned(kernels: Kernels, module: str, *sides: Side) -> list[Call]:
    """Copies in the other order of what was gathered by rows."""
    if not kernels.is_low(module) or kernels.args.fp8_recipe == MXFP8:
        return []
    return kernels.turned("backward", module, *sides)


def gathered_bytes(kernels: Kernels, elements: int, *, both: bool = False) -> int:
    """Bytes of a gathered operand with its scales; both: a gradient, of which MXFP8 sends either way."""
    if kernels.args.fp8_recipe != MXFP8:
        return SIZES[FLOAT8] * elements
    return (2 if both else 1) * (SIZES[FLOAT8] * elements + elements // BLOCK)


def with_weights(kernels: Kernels, calls: Iterable[Call]) -> Iterator[Call]:
    """The calls of the first micro-batch: each weight is quantised before its product."""
    for call in calls:
        if call.kernel and call.dtype == FLOAT8 and call.kernel.startswith(("gemm ", "experts ")):
            _, sizes, _ = read_kernel(call.kernel)
            side = sizes.get("experts", 1) * sizes["n"], sizes["k"]
            yield from _quantised(kernels, call.phase, call.module, side)
        yield call
