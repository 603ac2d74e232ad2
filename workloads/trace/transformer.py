"""Builds the decoder that FSDP2 and DeepSpeed shard: LLaMA's layers in plain torch, with the sizes of a job."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from workloads.trace.job import TraceJob


class DecoderNorm(nn.Module):
    """One weight of (hidden,), on anything of (..., hidden)."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """inputs of shape (..., hidden) keep it."""
        return nn.functional.layer_norm(inputs, self.weight.shape, self.weight)


def rotated(heads: torch.Tensor) -> torch.Tensor:
    """Rotary positions of heads of shape (batch, sequence, heads, width), all of one angle."""
    first, second = heads.chunk(2, -1)
    return heads * 0.8 + torch.cat((-second, first), -1) * 0.6


class DecoderAttention(nn.Module):
    """Query, key, value and output projections; keys and values have the job's query groups."""

    def __init__(self, job: TraceJob) -> None:
        super().__init__()
        self.heads, self.groups = job.num_attention_heads, job.num_query_groups or job.num_attention_heads
        self.width = job.hidden_size // self.heads
        bias = job.add_bias_linear
        self.q_proj = nn.Linear(job.hidden_size, self.heads * self.width, bias=bias)
        self.k_proj = nn.Linear(job.hidden_size, self.groups * self.width, bias=bias)
        self.v_proj = nn.Linear(job.hidden_size, self.groups * self.width, bias=bias)
        self.o_proj = nn.Linear(self.heads * self.width, job.hidden_size, bias=bias)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """inputs of shape (batch, sequence, hidden) keep it."""
        keys, values = (
            # Of a part of the heads, where tensor parallelism splits them.
            each.unflatten(-1, (-1, self.width))
            for each in (self.k_proj(inputs), self.v_proj(inputs))
        )
        queries = rotated(self.q_proj(inputs).unflatten(-1, (-1, self.width)))
        copies = self.heads // self.groups
        keys, values = (each.repeat_interleave(copies, dim=-2).transpose(1, 2) for each in (rotated(keys), values))
        mixed = nn.functional.scaled_dot_product_attention(queries.transpose(1, 2), keys, values, is_causal=True)
        out: torch.Tensor = self.o_proj(mixed.transpose(1, 2).flatten(-2))
        return out


class DecoderMlp(nn.Module):
    """Up and down projections, with swiglu a gate."""

    def __init__(self, job: TraceJob) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(job.hidden_size, job.ffn_size, bias=job.add_bias_linear) if job.swiglu else None
        self.up_proj = nn.Linear(job.hidden_size, job.ffn_size, bias=job.add_bias_linear)
        self.down_proj = nn.Linear(job.ffn_size, job.hidden_size, bias=job.add_bias_linear)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """inputs of shape (batch, sequence, hidden) keep it."""
        up = self.up_proj(inputs)
        gated = nn.functional.gelu(up) if self.gate_proj is None else up * nn.functional.silu(self.gate_proj(inputs))
        out: torch.Tensor = self.down_proj(gated)
        return out


class DecoderLayer(nn.Module):
    """One decoder layer. With recompute its forward pass runs again before its backward pass."""

    def __init__(self, job: TraceJob) -> None:
        super().__init__()
        self.input_layernorm = DecoderNorm(job.hidden_size)
        self.self_attn = DecoderAttention(job)
        self.post_attention_layernorm = DecoderNorm(job.hidden_size)
        self.mlp = DecoderMlp(job)
        self.recomputes = job.activation_recompute == "full"

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden of shape (batch, sequence, hidden) keeps it."""
        if self.recomputes:
            out: torch.Tensor = checkpoint(self.run, hidden, use_reentrant=False)
            return out
        return self.run(hidden)

    def run(self, hidden: torch.Tensor) -> torch.Tensor:
        """The layer itself; hidden of shape (batch, sequence, hidden) keeps it."""
        hidden = hidden + self.self_attn(self.input_layernorm(hidden))
        out: torch.Tensor = hidden + self.mlp(self.post_attention_layernorm(hidden))
        return out


class Decoder(nn.Module):
    """Embedding, layers, norm and head; the head is the embedding unless the job unties them."""

    def __init__(self, job: TraceJob) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(job.vocab_size, job.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(job) for _ in range(job.num_layers))
        self.norm = DecoderNorm(job.hidden_size)
        self.lm_head = nn.Linear(job.hidden_size, job.vocab_size, bias=False)
        if not job.untie_embeddings:
            self.lm_head.weight = self.embed_tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Tokens of shape (batch, sequence) to a loss of shape ()."""
        hidden = self.embed_tokens(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        logits = self.lm_head(self.norm(hidden)).float()
        return nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())


def tokens_of(job: TraceJob) -> torch.Tensor:
    """A micro-batch of (micro_batch, seq_length) tokens."""
    return torch.zeros((job.micro_batch, job.seq_length), dtype=torch.int64)
