"""States what Transformer Engine moves where Megatron's linear layers compute in FP8: copies of operands, and scales.

As its modules LayerNormLinear, Linear and GroupedLinear have it (2.11) where no norm or activation writes FP8 itself.
Products of tensors with one scale need both operands by rows on Hopper: a copy in the other order is made with the
first, or of what was gathered; MXFP8 (a scale for each 32 elements of a row or column) is quantised in both ways from
16 bits. Delayed scaling has its largest elements from steps before; current scaling looks for them first. Weights are
quantised in the first micro-batch. The head and the router stay in 16 bits.
"""

from collections.abc import Iterable, Iterator

from workloads.compute.operators import read_kernel
from workloads.dialects.framework.kernels import Kernels, Side
from workloads.rows.traced_op import FLOAT8, SIZES, Call

BLOCK = 32
"""Elements that share a scale of a byte in MXFP8 (OCP Microscaling Formats, v1.0)."""
MXFP8, CURRENT = "mxfp8", "tensorwise"


def operand(
    kernels: Kernels, phase: str, module: str, side: Side, *, sent: bool = False, normed: bool = False
) -> list[Call]:
    """An operand's quantisation. sent: it is gathered next, a tensor with one scale by rows alone; normed: the module's
    own norm found the largest element as it wrote.
    """
    if not kernels.is_low(module):
        return []
    recipe = kernels.args.fp8_recipe
    largest = kernels.made("amax", side, phase, module) if recipe == CURRENT and not normed else []
    if sent and recipe != MXFP8:
        return [*largest, *kernels.made("quantize", side, phase, module)]
    scales = 2 * side[0] * side[1] // BLOCK if recipe == MXFP8 else 0
    return [*largest, *kernels.made("quantize_both", side, phase, module, more=scales)]


def turned(kernels: Kernels, module: str, *sides: Side) -> list[Call]:
    """Copies in the other order of what was gathered by rows."""
    if not kernels.is_low(module) or kernels.args.fp8_recipe == MXFP8:
        return []
    return [call for side in sides for call in kernels.made("transpose", side, "backward", module, dtype=FLOAT8)]


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
            yield from operand(kernels, call.phase, call.module, (sizes.get("experts", 1) * sizes["n"], sizes["k"]))
        yield call
