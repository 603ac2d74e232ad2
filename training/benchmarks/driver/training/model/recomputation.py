"""Drops activations of a block and computes them again in the backward pass: all, or those that cost little."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from training.benchmarks.driver.training.settings.settings import Recompute

# Products with weights. Products of two activations (bmm) are not among them: the scores of plain attention grow with
# the square of the sequence.
_PRODUCTS = frozenset({"aten::mm", "aten::addmm", "aten::linear", "aten::_scaled_mm", "aten::_grouped_mm"})
_ATTENTION = ("aten::_scaled_dot_product_", "aten::_flash_attention_forward", "aten::_efficient_attention_forward")
Result = TypeVar("Result")
_FLASH_ATTENTION = ("flash_attn::", "flash_attn_3::")


def keeps(operator: str) -> bool:
    """Whether selective recomputation keeps the results of the operator of this name, for example "aten::mm"."""
    return operator in _PRODUCTS or operator.startswith((*_ATTENTION, *_FLASH_ATTENTION))


def recomputed(kind: Recompute, block: Callable[..., Result]) -> Callable[..., Result]:
    """`block` with the same results, gradients and shapes, whose activations are computed again as `kind` says.

    Selective recomputation keeps the products with weights and the fused attention, and computes again what is between
    them: norms, activation functions, dropout, rotations, casts, residual sums.

    Source: Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2022), section 5.
    """
    if kind == "none":
        return block
    contexts = {"context_fn": functools.partial(create_selective_checkpoint_contexts, _policy)}
    return functools.partial(_checkpointed, block, contexts if kind == "selective" else {})


def _checkpointed(block: Callable[..., Result], keywords: dict[str, Any], *inputs: Any) -> Result:
    result: Result = checkpoint(block, *inputs, use_reentrant=False, **keywords)
    return result


def _policy(_context: Any, operator: Any, *_args: Any, **_kwargs: Any) -> CheckpointPolicy:
    is_kept = keeps(operator.name().partition(".")[0])
    return CheckpointPolicy.MUST_SAVE if is_kept else CheckpointPolicy.PREFER_RECOMPUTE
