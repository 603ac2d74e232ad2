"""LLaMA in plain torch: RMSNorm, rotary positions, SwiGLU, grouped-query attention. Names are Hugging Face's."""

from collections.abc import Callable, Collection, Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
)

from training.benchmarks.driver.training.model.attention import attend
from training.benchmarks.driver.training.model.context import ContextParallel
from training.benchmarks.driver.training.model.model import LOSS, Batch, metric
from training.benchmarks.driver.training.model.staged import StagedModel
from training.benchmarks.driver.workload.usage import UnusableSettingsError
from training.benchmarks.llama.pytorch.config import Config


class LlamaAttention(nn.Module):
    """Causal attention with rotary positions; query heads share key-value heads in equal groups."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        size = config.hidden_size
        self.head_size = size // config.num_attention_heads
        self.attention = config.attention
        self.attend: Callable[..., Tensor] = attend
        self.q_proj = nn.Linear(size, size, bias=False)
        self.k_proj = nn.Linear(size, config.num_key_value_heads * self.head_size, bias=False)
        self.v_proj = nn.Linear(size, config.num_key_value_heads * self.head_size, bias=False)
        self.o_proj = nn.Linear(size, size, bias=False)

    def forward(self, hidden: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """`hidden` (batch, seq, hidden_size), as the result; `cos` and `sin` (seq, head_size). In tensor parallelism
        only this rank's heads are computed, in context parallelism only its part of `seq`.
        """
        query, key, value = (
            projection(hidden).unflatten(-1, (-1, self.head_size)).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        attended = self.attend(self.attention, rotate(query, cos, sin), rotate(key, cos, sin), value, is_causal=True)
        result: Tensor = self.o_proj(attended.transpose(1, 2).flatten(2))
        return result


class SwiGLU(nn.Module):
    """Feed-forward layer with a gate: down(silu(gate(x)) * up(x)).

    Source: Shazeer, "GLU Variants Improve Transformer" (2020), equation 6.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.ffn_hidden_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.ffn_hidden_size, bias=False)
        self.down_proj = nn.Linear(config.ffn_hidden_size, config.hidden_size, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """Takes and returns shape (..., hidden_size)."""
        result: Tensor = self.down_proj(nn.functional.silu(self.gate_proj(hidden)) * self.up_proj(hidden))
        return result


class LlamaBlock(nn.Module):
    """One transformer layer."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.self_attn = LlamaAttention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.mlp = SwiGLU(config)

    def forward(self, hidden: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Shapes as in LlamaAttention: (batch, seq, hidden_size)."""
        hidden = hidden + self.self_attn(self.input_layernorm(hidden), cos, sin)
        result: Tensor = hidden + self.mlp(self.post_attention_layernorm(hidden))
        return result


class LlamaDecoder(nn.Module):
    """Embedding, layers and the last norm."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleDict({str(number): LlamaBlock(config) for number in range(config.num_layers)})
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)


class Llama(StagedModel):
    """The language model; its metric is eval_loss, the mean cross entropy of the next token in nats."""

    cos: Tensor  # (seq_length, head_size), of this rank's part of the sequence
    sin: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.init_std = config.init_std
        self.context: ContextParallel | None = None
        self.model = LlamaDecoder(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def blocks(self) -> Sequence[nn.Module]:
        return [*self.model.layers.children()]

    def make_constants(self, device: torch.device) -> None:
        """Compute rotary angles in float32: position p rotates the i-th pair of a head by p * theta ** (-2i /
        head_size).

        Source: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding" (2021), section 3.2.
        """
        head_size = self.config.hidden_size // self.config.num_attention_heads
        exponents = torch.arange(0, head_size, 2, device=device, dtype=torch.float32) / head_size
        positions = torch.arange(self.config.seq_length, device=device, dtype=torch.float32)
        if self.context is not None:
            positions = self.context.part(positions, dimension=0)
        angles = torch.outer(positions, self.config.rope_theta**-exponents)
        self.cos, self.sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)

    def before_blocks(self, batch: Batch) -> Tensor:
        """The embeddings of tokens (batch, seq) int64, or of this rank's part of each sequence."""
        tokens = batch["tokens"] if self.context is None else self.context.part(batch["tokens"])
        hidden: Tensor = self.model.embed_tokens(tokens)
        if self.is_compiled and self.config.tensor_parallel_size > 1:
            # The result of a collective that has not finished: torch.compile computes wrong gradients after it.
            hidden = hidden.clone()
        return hidden

    def through(self, blocks: Iterable[nn.Module], hidden: Tensor) -> Tensor:
        for block in blocks:
            hidden = self.run_block(block, hidden, self.cos, self.sin)
        return hidden

    def after_blocks(self, hidden: Tensor, batch: Batch) -> dict[str, Tensor]:
        """The loss of `hidden`, shape (samples, seq, hidden_size): each token of a sample but the first is a label."""
        tokens = batch["tokens"]
        logits = self.lm_head(self.model.norm(hidden))
        if self.context is not None:
            loss = self.context.loss(logits, tokens, is_training=self.training)
        else:
            loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())
        if self.training:
            return {LOSS: loss}
        count = tokens[:, 1:].numel()
        return {LOSS: loss, "eval_loss": metric(loss * count, count)}

    def ends(self) -> tuple[Sequence[nn.Module], Sequence[nn.Module]]:
        return [self.model.embed_tokens], [self.model.norm, self.lm_head]

    def keep_part(self, blocks: Collection[int], *, is_first: bool, is_last: bool) -> None:
        self.model.layers = nn.ModuleDict(
            {name: layer for name, layer in self.model.layers.named_children() if int(name) in blocks}
        )
        if not is_first:
            self.model.register_module("embed_tokens", None)
        if not is_last:
            self.model.register_module("norm", None)
            self.register_module("lm_head", None)

    def hidden_shape(self, samples: int, sequence_ranks: int) -> tuple[int, ...]:
        return samples, self.config.seq_length // sequence_ranks, self.config.hidden_size

    def divide_sequence(self, context: ContextParallel) -> None:
        """Compute this rank's part of each sequence alone from now on.

        Raises:
            UnusableSettingsError: a layer has another attention than ours, which would see its own part alone.
        """
        self.context = context
        attentions = [module for module in self.modules() if isinstance(module, LlamaAttention)]
        if len(attentions) != len(self.blocks()):
            raise UnusableSettingsError("context_parallel_size: the vendor's own attention does not exchange sequences")
        for module in attentions:
            module.attend = context.attend

    def tensor_parallel_plan(self, sequence_parallel: bool) -> dict[str, ParallelStyle]:
        """Megatron's division: the first matrices of attention and feed-forward by columns, the last ones by rows.

        With `sequence_parallel` activations between the layers are divided along the sequence, and so are the norms.
        """
        between = Shard(1) if sequence_parallel else Replicate()
        plan: dict[str, ParallelStyle] = {
            "model.embed_tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=between),
            "lm_head": ColwiseParallel(input_layouts=between, output_layouts=Replicate()),
        }
        for number in range(self.config.num_layers):
            layer = f"model.layers.{number}"
            for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"):
                plan[f"{layer}.{name}"] = ColwiseParallel()
            for name in ("self_attn.o_proj", "mlp.down_proj"):
                plan[f"{layer}.{name}"] = RowwiseParallel(output_layouts=between)
            if sequence_parallel:
                for name in ("input_layernorm", "post_attention_layernorm"):
                    plan[f"{layer}.{name}"] = SequenceParallel()
                plan[f"{layer}.self_attn"] = PrepareModuleInput(
                    input_layouts=(Shard(1), None, None), desired_input_layouts=(Replicate(), None, None)
                )
                plan[f"{layer}.mlp"] = PrepareModuleInput(
                    input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)
                )
        if sequence_parallel:
            plan["model.norm"] = SequenceParallel()
        return plan


def rotate(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding of `heads` (batch, heads, seq, head_size): the i-th pair is (i, i + head_size / 2).

    Source: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding" (2021), equation 34, with the
    pairs of Hugging Face's LLaMA.
    """
    cos, sin = cos.to(heads.dtype), sin.to(heads.dtype)  # as there, and as FSDP2 hands them to a block in bfloat16
    first, second = heads.chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    return heads * cos + turned * sin
