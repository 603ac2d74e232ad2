"""The two functions of flash-attn 2 that the trainer calls, by their documented formulas, on any device."""

import math
from itertools import pairwise

import torch
from torch import Tensor

__version__ = "2.8.3"


def flash_attn_func(q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0, causal: bool = False) -> Tensor:
    """(batch, seq, heads, head_size); k and v may have fewer heads."""
    groups = q.shape[2] // k.shape[2]
    k, v = (heads.repeat_interleave(groups, dim=2) for heads in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
    if causal:
        scores = scores + torch.full(scores.shape[-2:], -torch.inf).triu(1)
    weights = torch.nn.functional.dropout(scores.softmax(-1), dropout_p)
    return torch.einsum("bhqk,bkhd->bqhd", weights, v)


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    causal: bool = False,
) -> Tensor:
    """(tokens, heads, head_size), the samples one after the other."""
    assert cu_seqlens_q.dtype == cu_seqlens_k.dtype == torch.int32 and int(cu_seqlens_q[-1]) == len(q)
    bounds = cu_seqlens_q.tolist()
    parts = []
    for begin, end in pairwise(bounds):
        assert end - begin <= max_seqlen_q == max_seqlen_k
        query, key, value = (heads[begin:end].unsqueeze(0) for heads in (q, k, v))
        parts.append(flash_attn_func(query, key, value, dropout_p=dropout_p, causal=causal).squeeze(0))
    return torch.cat(parts)
