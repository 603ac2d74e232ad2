"""States what a linear layer computes in FP8 by torchao: both operands of each of its three products are quantised.

The order is that of torchao 0.18 (float8_linear.py, float8_ops.py), without a compiler, which computes what is there
twice once. A scale needs the largest element: of a tensor, or of each row or column.
"""

from workloads.dialects.framework.kernels import Kernels
from workloads.rows.traced_op import BFLOAT16, FLOAT8, SIZES, Call

ROWWISE = "rowwise"
_Side = tuple[int, int]


def linear(kernels: Kernels, recipe: str, module: str, inner: int, outer: int) -> tuple[list[Call], list[Call]]:
    """The kernels of a layer of `outer` outputs from `inner` inputs, forward and backward."""
    tokens = kernels.tokens
    inputs, weight, gradient = (tokens, inner), (outer, inner), (tokens, outer)

    def product(op: str, phase: str, sizes: tuple[int, int, int]) -> list[Call]:
        # The result has 16 bits.
        more = (SIZES[BFLOAT16] - SIZES[FLOAT8]) * sizes[0] * sizes[2]
        return kernels.made(op, sizes, phase, module, more=more, dtype=FLOAT8)

    def quantised(phase: str, *sides: _Side) -> list[Call]:
        return [call for side in sides for op in ("amax", "quantize") for call in kernels.made(op, side, phase, module)]

    def turned(*sides: _Side) -> list[Call]:
        """Copies in the other order, which FP8 products need: the first operand by rows, the second by columns."""
        return [call for side in sides for call in kernels.made("transpose", side, "backward", module, dtype=FLOAT8)]

    def scaled(side: _Side) -> list[Call]:
        """The scales of rows and columns by a kernel of their own, for such products that sum exactly are slow."""
        return kernels.made("rescale", side, "backward", module) if recipe == ROWWISE else []

    forward = [*quantised("forward", inputs, weight), *product("gemm", "forward", (tokens, inner, outer))]
    of_input = [*quantised("backward", gradient, weight), *turned(weight),
                *product("gemm_dgrad", "backward", (tokens, outer, inner)), *scaled(inputs)]  # fmt: skip
    of_weight = [*quantised("backward", gradient, inputs), *turned(gradient, inputs),
                 *product("gemm_wgrad", "backward", (outer, tokens, inner)), *scaled(weight)]  # fmt: skip
    return forward, [*of_input, *of_weight]
