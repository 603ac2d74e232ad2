"""Describes a job to trace: the parameters that change what Megatron, FSDP2 or DeepSpeed sends."""

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from workloads.job.parameters import DECODE, LAYERS, TRAINING


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceJob:
    """One job. Sizes are in elements, counts in pieces; None means the framework's default.

    The names are those of `generate` where it has the parameter, Megatron's otherwise. rank: the traced rank.
    phase: training, or inference without gradients: prefill of seq_length tokens, decode of one token after them.
    iterations: how many are recorded. own_groups: make only the process groups that hold the rank, as worlds beyond
    16,384 ranks do always; the trace is the same.
    """

    frame: str = "Megatron"
    phase: str = TRAINING
    rank: int = 0
    world_size: int = 1
    tensor_model_parallel_size: int = 1
    pipeline_model_parallel: int = 1
    virtual_pipeline: int = 1
    expert_model_parallel_size: int = 1
    expert_tensor_parallel_size: int | None = None
    context_parallel_size: int = 1
    micro_batch: int = 1
    num_microbatches: int = 1
    iterations: int = 1
    dtype: str = "bfloat16"
    own_groups: bool = False

    hidden_size: int = 1024
    ffn_hidden_size: int | None = None
    num_layers: int = 2
    num_layers_first_stage: int | None = None
    num_layers_last_stage: int | None = None
    seq_length: int = 2048
    num_attention_heads: int = 16
    num_query_groups: int | None = None
    kv_channels: int | None = None
    vocab_size: int = 32000
    make_vocab_size_divisible_by: int = 128
    max_position_embeddings: int = 4096
    position_embedding: str = "rope"
    normalization: str = "RMSNorm"
    qk_layernorm: bool = False
    add_bias_linear: bool = False
    swiglu: bool = False
    untie_embeddings: bool = False
    recompute: str = "none"

    enable_sequence_parallel: bool = False
    use_distributed_optimizer: bool = False
    overlap_grad_reduce: bool = False
    overlap_param_gather: bool = False
    overlap_p2p: bool = False
    grad_reduce_in_fp32: bool = True
    bucket_size: int | None = None
    clip_grad: float = 1.0

    num_experts: int = 0
    moe_router_topk: int = 1
    moe_ffn_hidden_size: int | None = None
    moe_shared_expert_size: int | None = None
    moe_token_dispatcher: str = "alltoall"
    moe_first_dense_layers: int = 0
    moe_aux_loss: bool = False
    moe_expert_bias: bool = False
    routing: str = "balanced"

    multi_latent_attention: bool = False
    q_lora_rank: int | None = None
    kv_lora_rank: int = 512
    qk_head_dim: int = 128
    qk_pos_emb_head_dim: int = 64
    v_head_dim: int = 128

    stage: int = 3
    reduce_bucket_size: int = 500_000_000
    allgather_bucket_size: int = 500_000_000
    prefetch_bucket_size: int = 50_000_000
    param_persistence_threshold: int = 100_000
    model_persistence_threshold: int = sys.maxsize
    max_live_parameters: int = 1_000_000_000
    max_reuse_distance: int = 1_000_000_000
    sub_group_size: int = 1_000_000_000
    overlap_comm: bool = False
    contiguous_gradients: bool = True
    reshard_after_forward: bool | None = None
    fsdp_units: str = LAYERS
    replicate: int = 1

    @property
    def data_ranks(self) -> int:
        """Ranks that have other samples: world_size // (tp * pp)."""
        return self.world_size // (self.tensor_model_parallel_size * self.pipeline_model_parallel)

    @property
    def padded_vocab_size(self) -> int:
        """vocab_size padded up to a multiple of make_vocab_size_divisible_by * tp, in tokens."""
        step = self.make_vocab_size_divisible_by * self.tensor_model_parallel_size
        return -(-self.vocab_size // step) * step

    @property
    def ffn_size(self) -> int:
        """Width of a dense MLP: by default 4h."""
        return 4 * self.hidden_size if self.ffn_hidden_size is None else self.ffn_hidden_size

    @property
    def expert_tp(self) -> int:
        """Tensor-parallel size of the experts: by default that of all else."""
        return self.expert_tensor_parallel_size or self.tensor_model_parallel_size

    @property
    def tokens_per_sequence(self) -> int:
        """Tokens of a sequence that a pass sees: one of a decoding step."""
        return 1 if self.phase == DECODE else self.seq_length

    @property
    def tokens_per_rank(self) -> int:
        """Tokens of a micro-batch that one rank routes to experts."""
        split = self.tensor_model_parallel_size if self.enable_sequence_parallel else 1
        return self.micro_batch * self.tokens_per_sequence // split

    @property
    def pp_stage(self) -> int:
        """The traced rank's pipeline stage in Megatron's order tp-cp-ep-dp-pp."""
        return self.rank // (self.world_size // self.pipeline_model_parallel)

    def to_dict(self) -> dict[str, Any]:
        """What differs from the defaults, by name."""
        return {name: value for name, value in asdict(self).items() if value != getattr(_DEFAULTS, name)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TraceJob":
        """The inverse of `to_dict`.

        Raises:
            ValueError: a name is unknown.
        """
        unknown = sorted(set(values) - {field.name for field in fields(cls)})
        if unknown:
            raise ValueError(f"unknown parameters of a trace: {', '.join(unknown)}")
        return cls(**values)


_DEFAULTS = TraceJob()
