"""Attention between its projections: heads with rotary positions, and the core in one kernel or in three steps.

Grouped queries: `groups` key and value heads serve all heads. Latent attention: keys are the heads' own part and one
rotary part for all heads (DeepSeek-V2, arXiv:2405.04434, section 2.1).
"""

import importlib
import math

import torch
from torch import Tensor, nn

from training.benchmarks.aicb.measuring.parts import Part
from training.benchmarks.driver.training.model.attention import attend

KINDS = ("heads", "core", "core_qk", "core_softmax", "core_context")
ROTARY_BASE = 10000.0


class Rotary(nn.Module):
    """Rotary positions on x (batch, heads, seq, size), RoFormer (arXiv:2104.09864), equation 34."""

    def __init__(self, seq: int, size: int, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__()
        step = ROTARY_BASE ** (-torch.arange(0, size - size % 2, 2, device=device) / size)
        angles = torch.outer(torch.arange(seq, device=device).float(), step).repeat(1, 2)
        self.cosine, self.sine = angles.cos().to(dtype), angles.sin().to(dtype)

    def forward(self, x: Tensor) -> Tensor:
        """x rotated, the same shape (batch, heads, seq, size); an odd last element stays."""
        even = self.cosine.shape[-1]
        turned, rest = x[..., :even], x[..., even:]
        first, second = turned.chunk(2, dim=-1)
        turned = turned * self.cosine + torch.cat((-second, first), dim=-1) * self.sine
        return torch.cat((turned, rest), dim=-1) if rest.shape[-1] else turned


class SplitHeads(nn.Module):
    """The fused projection (tokens, (heads + 2 groups) * qk) to query, key, value (batch, heads, seq, qk)."""

    def __init__(self, part: Part, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__()
        s = self.sizes = part.sizes
        self.rotary = Rotary(s["seq"], s["qk"], device, dtype) if s["rotary"] else None

    def forward(self, fused: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """fused (tokens, width) to three of (batch, heads, seq, qk)."""
        s = self.sizes
        split = fused.view(s["batch"], s["seq"], s["heads"] + 2 * s["groups"], s["qk"]).transpose(1, 2)
        heads, both = s["heads"], s["heads"] + s["groups"]
        query, key, value = split[:, :heads], split[:, heads:both], split[:, both:]
        if self.rotary is not None:
            query, key = self.rotary(query), self.rotary(key)
        return query, key, value


class LatentHeads(nn.Module):
    """Query, key and value of latent attention, each (batch, heads, seq, size), from what the projections give."""

    def __init__(self, part: Part, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__()
        self.sizes = part.sizes
        self.rotary = Rotary(part.sizes["seq"], part.sizes["rope"], device, dtype)

    def forward(self, query: Tensor, key_value: Tensor, position: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(tokens, heads * qk), (tokens, heads * (nope + v)), (tokens, rope) to three of (batch, heads, seq, size)."""
        s = self.sizes
        shape = (s["batch"], s["seq"], s["heads"], -1)
        query, own = query.view(shape).transpose(1, 2), key_value.view(shape).transpose(1, 2)
        plain, turned = query[..., : s["nope"]], query[..., s["nope"] :]
        key, value = own[..., : s["nope"]], own[..., s["nope"] :]
        shared = self.rotary(position.view(s["batch"], 1, s["seq"], s["rope"])).expand(-1, s["heads"], -1, -1)
        return torch.cat((plain, self.rotary(turned)), -1), torch.cat((key, shared), -1), value


class Core(nn.Module):
    """softmax(Q K^T) V in one call of the chosen kernel, causal; the result is (tokens, heads * v)."""

    def __init__(self, attention: str) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Three of (batch, heads, seq, size) to (tokens, heads * v)."""
        found = attend(self.attention, query, key, value, is_causal=True)
        return found.transpose(1, 2).flatten(2).flatten(0, 1)


class EngineCore(nn.Module):
    """The core by Transformer Engine's DotProductAttention."""

    def __init__(self, part: Part) -> None:
        super().__init__()
        s = part.sizes
        sizes = s["qk"] if s["qk"] == s["v"] else (s["qk"], s["v"])
        library = importlib.import_module("transformer_engine.pytorch")
        self.inner = library.DotProductAttention(
            s["heads"], sizes, num_gqa_groups=s["groups"], attention_dropout=0.0, attn_mask_type="causal",
            qkv_format="bshd",
        )  # fmt: skip

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Three of (batch, heads, seq, size) to (tokens, heads * v)."""
        by_token = (each.transpose(1, 2).contiguous() for each in (query, key, value))
        found: Tensor = self.inner(*by_token)
        return found.flatten(0, 1)


class Scores(nn.Module):
    """Q K^T / sqrt(qk): (batch, heads, seq, seq)."""

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """Scores of shape (batch, heads, seq, seq); key has the same number of heads or fewer."""
        key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
        return query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])


class MaskedSoftmax(nn.Module):
    """The causal softmax of scores (batch, heads, seq, seq), in 32 bits."""

    def __init__(self, part: Part, device: torch.device) -> None:
        super().__init__()
        seq = part.sizes["seq"]
        self.hidden = torch.ones(seq, seq, dtype=torch.bool, device=device).triu(1)

    def forward(self, scores: Tensor) -> Tensor:
        """scores (batch, heads, seq, seq) to weights of the same shape."""
        return scores.masked_fill(self.hidden, -torch.inf).float().softmax(-1).to(scores.dtype)


class Context(nn.Module):
    """The weighted values: (tokens, heads * v)."""

    def forward(self, weights: Tensor, value: Tensor) -> Tensor:
        """weights (batch, heads, seq, seq) and value (batch, groups, seq, v) to (tokens, heads * v)."""
        value = value.repeat_interleave(weights.shape[1] // value.shape[1], dim=1)
        return (weights @ value).transpose(1, 2).flatten(2).flatten(0, 1)


def build(part: Part, attention: str, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """The module of a part of attention. attention: the kernel of the fused core."""
    if part.kind == "heads":
        return LatentHeads(part, device, dtype) if part.sizes["latent"] else SplitHeads(part, device, dtype)
    if part.kind == "core":
        return EngineCore(part) if attention == "transformer_engine" else Core(attention)
    if part.kind == "core_softmax":
        return MaskedSoftmax(part, device)
    return Scores() if part.kind == "core_qk" else Context()


def input_shapes(part: Part) -> list[tuple[int, ...]]:
    """Shapes of the inputs of a part of attention."""
    s = part.sizes
    tokens = s["batch"] * s["seq"]
    if part.kind == "heads":
        if s["latent"]:
            return [(tokens, s["heads"] * s["qk"]), (tokens, s["heads"] * (s["nope"] + s["v"])), (tokens, s["rope"])]
        return [(tokens, (s["heads"] + 2 * s["groups"]) * s["qk"])]
    query = (s["batch"], s["heads"], s["seq"], s["qk"])
    key = (s["batch"], s["groups"], s["seq"], s["qk"])
    value = (s["batch"], s["groups"], s["seq"], s["v"])
    weights = (s["batch"], s["heads"], s["seq"], s["seq"])
    shapes: dict[str, list[tuple[int, ...]]] = {
        "core": [query, key, value],
        "core_qk": [query, key],
        "core_softmax": [weights],
        "core_context": [weights, value],
    }
    return shapes[part.kind]
