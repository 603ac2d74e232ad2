"""States what a linear layer computes in FP8 by torchao: both operands of each of its three products are quantised.

The order is that of torchao 0.18 (float8_linear.py, float8_ops.py), without a compiler, which computes what is there
twice once. A scale needs the largest element: of a tensor, or of each row or column. FP8 products need the first
operand by rows, the second by columns.
"""

from workloads.dialects.framework.kernels import Kernels, Side
from workloads.rows.calls import Call

ROWWISE = "rowwise"


def linear(kernels: Kernels, module: str, inner: int, outer: int) -> tuple[list[Call], list[Call]]:
    """The kernels of a layer of `outer` outputs from `inner` inputs, forward and backward."""
    tokens = kernels.tokens
    inputs, weight, gradient = (tokens, inner), (outer, inner), (tokens, outer)

    def quantised(phase: str, *sides: Side) -> list[Call]:
        return [call for side in sides for op in ("amax", "quantize") for call in kernels.made(op, side, phase, module)]

    def scaled(side: Side) -> list[Call]:
        """The scales of rows and columns by a kernel of their own, for such products that sum exactly are slow."""
        return kernels.made("rescale", side, "backward", module) if kernels.args.fp8_recipe == ROWWISE else []

    forward = [*quantised("forward", inputs, weight), *kernels.product("forward", module, inner, outer)]
    of_input = [*quantised("backward", gradient, weight), *kernels.turned("backward", module, weight),
                *kernels.input_gradient(module, inner, outer), *scaled(inputs)]  # fmt: skip
    of_weight = [*quantised("backward", gradient, inputs), *kernels.turned("backward", module, gradient, inputs),
                 *kernels.weight_gradient(module, inner, outer), *scaled(weight)]  # fmt: skip
    return forward, [*of_input, *of_weight]
