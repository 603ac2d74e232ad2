"""Counts the bytes of weights, gradients and optimizer that a rank holds: one rule for trainer, predict and sweep.

Replicated: Megatron-LM's mixed precision (Micikevicius et al., arXiv:1710.03740, section 3.1), 16-bit weights beside
float32 ones, whose copies and moments the distributed optimizer divides (ZeRO-1: Rajbhandari et al., arXiv:1910.02054,
section 5.1). Fully sharded: FSDP2, which keeps everything in float32, divided, and gathers a layer at a time (Zhao et
al., arXiv:2304.11277, section 3.2); with HSDP a copy is divided over fewer ranks than there are.
"""

from typing import NamedTuple

SINGLE, HALF = 4, 2
"""Bytes of a float32 and of a 16-bit number."""


class ModelStates(NamedTuple):
    """Bytes: what a rank holds all the time, and `passing`: what a step adds to it of weights and their gradients."""

    weights: float
    gradients: float
    optimizer: float
    passing: float = 0.0

    @property
    def total(self) -> float:
        return sum(self)

    def plus(self, other: "ModelStates") -> "ModelStates":
        """Those of two groups of weights."""
        return ModelStates(*(one + two for one, two in zip(self, other, strict=True)))


def mixed_precision(parameters: float, shards: float, grad_bytes: int) -> ModelStates:
    """16-bit weights and whole gradients; the optimizer's float32 copy and two moments over `shards` ranks."""
    return ModelStates(HALF * parameters, grad_bytes * parameters, 3 * SINGLE * parameters / shards)


def single_precision(parameters: float, moments: float = 2, *, half_copy: bool = False) -> ModelStates:
    """Bytes of whole float32 weights, gradients and moments; `half_copy`: the 16-bit weights that autocast keeps."""
    passing = HALF * parameters if half_copy else 0.0
    return ModelStates(SINGLE * parameters, SINGLE * parameters, SINGLE * moments * parameters, passing)


def fully_sharded(
    parameters: float, shards: float, layer: float, outside: float, moments: float = 2, width: int = HALF
) -> ModelStates:
    """Float32 weights, gradients and moments over `shards` ranks; a step gathers them in `width` bytes.

    Together are at most two layers (one in use, one on its way) with the gradients of one before their sum is divided,
    and the weights `outside` of the layers, which stay until their backward pass.
    """
    own = SINGLE * parameters / shards
    passing = width * (outside + 2 * layer) + (width + SINGLE) * layer if shards > 1 else 0.0
    return ModelStates(own, own, moments * own, passing)
