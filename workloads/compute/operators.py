"""The operators that can be measured and looked up: the axes of their shapes, their arithmetic and their traffic.

A shape is a text of the operator's axes in their order, for example `m=4096 k=4096 n=12288`. Traffic counts each
operand once: the least that a device without the data in its cache can move.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

DTYPE_BYTES: Mapping[str, int] = {"fp64": 8, "fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}
LARGEST = 2**40
Shape = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator. flops: operations of a shape; elements: operands moved, in elements of the type.

    modes: axes that are switches (0 or 1) and not sizes: only rows with the same value are compared.
    """

    axes: tuple[str, ...]
    flops: Callable[[Shape], float]
    elements: Callable[[Shape], float]
    modes: tuple[str, ...] = ()

    @property
    def sizes(self) -> tuple[str, ...]:
        return tuple(axis for axis in self.axes if axis not in self.modes)


def _gemm_flops(s: Shape) -> float:
    return 2.0 * s["m"] * s["k"] * s["n"]


def _gemm_elements(s: Shape) -> float:
    return float(s["m"] * s["k"] + s["k"] * s["n"] + s["m"] * s["n"])


def _experts(factor: int) -> Operator:
    """A matrix product for each of `experts` experts, each with `m` tokens. Backward has two."""
    return Operator(
        ("experts", "m", "k", "n"),
        lambda s: factor * s["experts"] * _gemm_flops(s),
        lambda s: factor * s["experts"] * _gemm_elements(s),
    )


def _attention(products: float, passes: int) -> Operator:
    """Fused attention: `products` of the two matrix products of the forward pass (FlashAttention-2, arXiv:2307.08691,
    section 3.1: 1 forward, 2.5 backward), half of it with a causal mask.
    """
    return Operator(
        ("batch", "seq", "heads", "groups", "qk", "v", "causal"),
        lambda s: products * 2.0 * s["batch"] * s["heads"] * s["seq"] ** 2 * (s["qk"] + s["v"]) / (1 + s["causal"]),
        lambda s: passes * float(s["batch"] * s["seq"] * (s["heads"] + s["groups"]) * (s["qk"] + s["v"])),
        modes=("causal",),
    )


def _window(products: float, passes: int) -> Operator:
    """Causal attention to the `window` last tokens: seq * window - window**2 / 2 pairs of a query and a key."""
    return Operator(
        ("batch", "seq", "heads", "groups", "qk", "v", "window"),
        lambda s: (
            products * s["batch"] * s["heads"] * (2.0 * s["seq"] - s["window"]) * s["window"] * (s["qk"] + s["v"])
        ),
        lambda s: passes * float(s["batch"] * s["seq"] * (s["heads"] + s["groups"]) * (s["qk"] + s["v"])),
    )


def _part(products: float, passes: int) -> Operator:
    """Attention of some queries to some keys without a mask: a step of ring attention."""
    return Operator(
        ("batch", "queries", "keys", "heads", "groups", "qk", "v"),
        lambda s: products * 2.0 * s["batch"] * s["heads"] * s["queries"] * s["keys"] * (s["qk"] + s["v"]),
        lambda s: (
            passes * float(s["batch"] * (s["queries"] * s["heads"] + s["keys"] * s["groups"]) * (s["qk"] + s["v"]))
        ),
    )


def _decoding() -> Operator:
    """Attention of one token of each sequence with the keys and values of `context` tokens."""
    return Operator(
        ("batch", "context", "heads", "groups", "qk", "v"),
        lambda s: 2.0 * s["batch"] * s["heads"] * s["context"] * (s["qk"] + s["v"]),
        lambda s: float(s["batch"] * (s["context"] * s["groups"] + s["heads"]) * (s["qk"] + s["v"])),
    )


def _moving(axes: tuple[str, ...], operations: float, moved: float) -> Operator:
    """An operator bound by memory: `operations` and `moved` elements for each element of its shape."""

    def size(s: Shape) -> float:
        total = 1.0
        for axis in axes:
            total *= s[axis]
        return total

    return Operator(axes, lambda s: operations * size(s), lambda s: moved * size(s))


_TOKENS = ("tokens", "width")
# Of each of tokens x width numbers: operations, elements of 16 bits that are moved. A dropout's mask is of one byte an
# element, as FP8 is: half an element; quantize_both: by rows and by columns.
_OF_TOKENS = {
    "norm": (6, 2), "norm_backward": (10, 3), "activation": (10, 2), "activation_backward": (15, 3),
    "gated_activation": (12, 3), "gated_activation_backward": (20, 5), "residual": (1, 3), "rope": (6, 2),
    "rope_backward": (6, 2), "softmax": (6, 2), "dropout": (2, 2.5), "dropout_backward": (1, 2.5), "amax": (1, 1),
    "quantize": (3, 1.5), "quantize_both": (3, 2), "transpose": (0, 2), "rescale": (2, 2), "permute": (0, 2),
    "copy": (0, 2), "routing": (6, 2), "routing_backward": (6, 2), "embedding": (1, 2), "embedding_backward": (1, 3),
    "loss": (6, 2), "loss_backward": (4, 3),
}  # fmt: skip
_GEMM = Operator(("m", "k", "n"), _gemm_flops, _gemm_elements)
OPERATORS: Mapping[str, Operator] = {
    "gemm": _GEMM,
    "gemm_dgrad": _GEMM,
    "gemm_wgrad": _GEMM,
    "experts": _experts(1),
    "experts_dgrad": _experts(1),
    "experts_wgrad": _experts(1),
    "experts_backward": _experts(2),
    "attention": _attention(1, 1),
    "attention_backward": _attention(2.5, 2),
    "attention_window": _window(1, 1),
    "attention_window_backward": _window(2.5, 2),
    "attention_part": _part(1, 1),
    "attention_part_backward": _part(2.5, 2),
    "attention_decode": _decoding(),
    **{name: _moving(_TOKENS, *each) for name, each in _OF_TOKENS.items()},
    "grad_norm": _moving(("elements",), 2, 1),
    "grad_scale": _moving(("elements",), 1, 2),
    # Of a 32-bit number read and a 16-bit one written, or the other way round.
    "cast": _moving(("elements",), 0, 1.5),
    # Parameter, gradient and two moments, of which all but the gradient are written as well.
    "adam": _moving(("elements",), 12, 7),
}
"""By name. `gemm` is x(m, k) @ w(n, k)^T, the forward pass of a linear layer; `gemm_dgrad` is dy(m, k) @ w(k, n),
`gemm_wgrad` dy(k, m)^T @ x(k, n)."""


def operator(name: str) -> Operator:
    """The operator of a name.

    Raises:
        ValueError: there is none; the message lists them.
    """
    if name not in OPERATORS:
        raise ValueError(f"op {name!r} is none of {', '.join(OPERATORS)}")
    return OPERATORS[name]


def parse_shape(op: str, text: str) -> dict[str, int]:
    """The axes of a shape's text, in any order.

    Raises:
        ValueError: the operator is unknown, an axis is missing, unknown or twice, or a size is not allowed.
    """
    known = operator(op)
    found: dict[str, int] = {}
    for word in text.replace(",", " ").split():
        axis, _, size = word.partition("=")
        if axis not in known.axes or axis in found or not (size.isascii() and size.isdigit() and len(size) <= 15):
            raise ValueError(f"shape {text[:100]!r} of {op}: expected {' '.join(f'{each}=N' for each in known.axes)}")
        found[axis] = int(size)
    for axis in known.axes:
        if axis not in found:
            raise ValueError(f"shape {text[:100]!r} of {op} lacks {axis}=N")
        low, high = (0, 1) if axis in known.modes else (1, LARGEST)
        if not low <= found[axis] <= high:
            raise ValueError(f"shape {text[:100]!r} of {op}: {axis} must be from {low} to {high}")
    return found


def stated(op: str, *sizes: int, element: int = 2, more: int = 0) -> tuple[str, int]:
    """The text of a kernel in a row of a workload, "op axis=N ... flops=N bytes=N", and the bytes that it moves.

    sizes: of the operator's axes, in their order; element: bytes of an element; more: bytes beside the operands.
    """
    known = OPERATORS[op]
    shape = dict(zip(known.axes, sizes, strict=True))
    moved = round(known.elements(shape) * element) + more
    return f"{op} {shape_text(op, shape)} flops={round(known.flops(shape))} bytes={moved}", moved


@lru_cache(maxsize=1 << 12)
def read_kernel(text: str) -> tuple[str, Mapping[str, int], int]:
    """The operator, the sizes by axis, and the bytes of a kernel's text in a row of a workload."""
    op, *words = text.split()
    sizes = {axis: int(size) for axis, size in (word.split("=") for word in words)}
    del sizes["flops"]
    moved = sizes.pop("bytes")
    return op, MappingProxyType(sizes), moved


def shape_text(op: str, shape: Shape) -> str:
    """The text of a shape, its axes in the operator's order."""
    return " ".join(f"{axis}={shape[axis]}" for axis in operator(op).axes)
