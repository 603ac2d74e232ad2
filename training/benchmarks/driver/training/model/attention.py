"""Attention by torch's kernels, by flash-attn, or by plain matrix products, as the setting `attention` selects."""

import importlib
import math
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from training.benchmarks.driver.training.settings.settings import FLASH_ATTENTION


class Packing(NamedTuple):
    """Positions of the tokens of a padded batch (batch, seq), for layers that skip the padding."""

    places: Tensor  # (tokens,) int64: indices in the flattened batch
    boundaries: Tensor  # (batch + 1,) int32: sample i has the positions boundaries[i] to boundaries[i + 1]
    longest: int  # no sample has more tokens
    mask: Tensor  # (batch, 1, 1, seq) bool


def packing(is_there: Tensor) -> Packing:
    """The packing of a batch from its mask (batch, seq), bool. Waits for the device: a shape depends on it."""
    boundaries = nn.functional.pad(is_there.sum(1).cumsum(0), (1, 0)).to(torch.int32)
    places = is_there.flatten().nonzero().flatten()
    return Packing(places, boundaries, is_there.shape[1], is_there[:, None, None, :])


def attend_packed(
    implementation: str, query: Tensor, key: Tensor, value: Tensor, packed: Packing, *, dropout: float = 0.0
) -> Tensor:
    """`attend` within each sample of a batch without padding: all tensors have the shape (tokens, heads, head_size).

    flash-attn needs no padding; for the other implementations it is restored around the attention alone.
    """
    if implementation == FLASH_ATTENTION:
        bounds, longest = packed.boundaries, packed.longest
        found: Tensor = _library().flash_attn_varlen_func(
            query, key, value, bounds, bounds, longest, longest, dropout_p=dropout
        )
        return found
    batch, seq = packed.mask.shape[0], packed.longest
    padded = (
        heads.new_zeros((batch * seq, *heads.shape[1:]))
        .index_copy(0, packed.places, heads)
        .view(batch, seq, *heads.shape[1:])
        .transpose(1, 2)
        for heads in (query, key, value)
    )
    attended = attend(implementation, *padded, mask=packed.mask, dropout=dropout)
    return attended.transpose(1, 2).flatten(0, 1)[packed.places]


def attend(
    implementation: str,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    is_causal: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    """softmax(Q K^T / sqrt(head_size)) V, with the shape of `query`.

    query (batch, heads, seq, head_size); key and value may have fewer heads, each shared by a group of query heads.
    `mask` is boolean, broadcast to (batch, heads, seq, seq) and True where a query may look; flash-attn takes none
    (see `attend_packed`). `is_causal` applies a causal mask instead of `mask`. `dropout` is the
    probability with which an attention weight is dropped.

    Source: Vaswani et al., "Attention Is All You Need" (2017), equation 1.
    """
    if implementation == FLASH_ATTENTION:
        assert mask is None, "flash-attn takes no dense mask"
        return _flash(query, key, value, is_causal, dropout)
    if implementation == "eager":
        return _eager(query, key, value, mask, is_causal, dropout)
    return nn.functional.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        dropout_p=dropout,
        is_causal=is_causal,
        enable_gqa=key.shape[1] != query.shape[1],
    )


def chosen_by_torch(shape: tuple[int, int, int], seq: int, dtype: torch.dtype, device: torch.device) -> str:
    """The kernel that torch picks for causal attention without a mask, such as cudnn_attention; "" if it does not tell.

    `shape`: heads, those of keys and values, and the size of a head; `seq` tokens.
    """
    ask = getattr(torch, "_fused_sdp_choice", None)
    if ask is None:
        return ""
    heads, groups, size = shape
    query, key = (torch.empty(1, each, seq, size, dtype=dtype, device=device) for each in (heads, groups))
    with torch.enable_grad():  # some kernels have no backward pass
        found = ask(query.requires_grad_(), key, key, is_causal=True, enable_gqa=groups != heads)
    return str(torch.nn.attention.SDPBackend(found).name).lower()


def _eager(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool, dropout: float) -> Tensor:
    repeats = query.shape[1] // key.shape[1]
    if repeats > 1:
        key, value = key.repeat_interleave(repeats, dim=1), value.repeat_interleave(repeats, dim=1)
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    if is_causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    weights = scores.float().softmax(-1).to(value.dtype)
    return nn.functional.dropout(weights, dropout) @ value


def _flash(query: Tensor, key: Tensor, value: Tensor, is_causal: bool, dropout: float) -> Tensor:
    by_token = [heads.transpose(1, 2) for heads in (query, key, value)]  # flash-attn: (batch, seq, heads, head_size)
    whole: Tensor = _library().flash_attn_func(*by_token, dropout_p=dropout, causal=is_causal)
    return whole.transpose(1, 2)


@lru_cache(1)
def _library() -> Any:
    """flash-attn, whose import `fused.detect` has tried."""
    return importlib.import_module("flash_attn")
