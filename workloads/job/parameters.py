"""The parameters of a workload, with AICB's names and defaults, and the values derived from them.

This is data only: `rules` defines the allowed values, `options` the spelling on the command line.
"""

import sys
from dataclasses import dataclass, fields
from math import prod
from typing import Any

FRAMES = ("Megatron", "DeepSpeed", "collective_test", "DeepSeek", "FSDP2")
ZERO_STAGES = (1, 2, 3)
SCRIPTS_NAMES = {"pipeline_model_parallel_size": "pipeline_model_parallel"}
"""Names of AICB's scripts and tutorial for options that its programs call otherwise. No aliases: the beginnings of a
name would be ambiguous."""
TRAINING, PREFILL, DECODE = WORKLOAD_PHASES = ("training", "prefill", "decode")
"""What a workload is a part of; prefill is the pass of a prompt, decode that of one token of each sequence."""
LAYERS, TORCHTITAN = FSDP_UNITS = ("layers", "torchtitan")
"""What FSDP2 shards apart: each layer, with all else in the root; or also the embedding, and the norm with the head."""
ELEMENT_BYTES = 2
"""Bytes of a parameter, an activation or a 16-bit gradient."""
GRADIENT_BYTES = 4
"""Bytes of a main gradient, which Megatron keeps and reduces in 32 bits."""


HEAD_ELEMENTS = 128
"""Elements of an attention head where nobody says how many heads there are."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkloadArgs:
    """Parameters of a workload. Sizes are in elements unless they say bytes; None means "derived" (see below)."""

    frame: str = "Megatron"
    gpu_type: str | None = None
    model_name: str | None = None
    world_size: int = 1
    tensor_model_parallel_size: int = 1
    pipeline_model_parallel: int = 1
    context_parallel_size: int = 1
    expert_model_parallel_size: int = 1
    pp_rank: int = -1
    global_batch: int = 4
    micro_batch: int = 1
    epoch_num: int = 1
    computation_enable: bool = False
    dtype: str = "bfloat16"
    enable_visual: bool = False
    workload_only: bool = False

    hidden_size: int = 1024
    num_layers: int = 24
    seq_length: int = 2048
    num_attention_heads: int | None = None
    ffn_hidden_size: int | None = None
    vocab_size: int = 32000
    max_position_embeddings: int = 4096
    make_vocab_size_divisible_by: int = 128
    add_bias_linear: bool = False
    use_flash_attn: bool = False
    swiglu: bool = False
    gated_linear_unit: bool = False
    bias_gelu_fusion: bool = False
    openai_gelu: bool = False
    onnx_safe: bool = False
    squared_relu: bool = False
    activation_func: str | None = None
    recompute_activations: bool = False

    enable_sequence_parallel: bool = False
    use_distributed_optimizer: bool = False
    overlap_grad_reduce: bool = False
    overlap_version: bool = False

    stage: int = 3
    amp_enabled: bool = False
    reduce_bucket_size: int = 500_000_000
    allgather_bucket_size: int = 500_000_000
    contiguous_gradients: bool = False
    param_persistence_threshold: int = 100_000
    model_persistence_threshold: int = sys.maxsize
    max_live_parameters: int = 1_000_000_000
    prefetch_bucket_size: int = 1_000_000_000

    begin_size: int = 1_048_576
    end_size: int = 1_048_576
    test_comm: str = "all_reduce"
    iter_num: int = 500
    multi_all_reduce_enable: int = 0

    moe_enable: bool = False
    num_experts: int = 1
    moe_router_topk: int = 1
    moe_grouped_gemm: bool = False
    n_dense_layers: int = 3
    n_shared_expert: int = 2
    qk_rope_dim: int = 64
    qk_nope_dim: int = 128
    q_lora_rank: int = 1536
    kv_lora_rank: int = 512
    v_head_dim: int = 128

    aiob_enable: bool = False
    comp_filepath: str | None = None

    phase: str = TRAINING
    virtual_pipeline: int = 1
    num_layers_first_stage: int | None = None
    num_layers_last_stage: int | None = None
    num_query_groups: int | None = None
    position_embedding: str = "rope"
    normalization: str = "RMSNorm"
    qk_layernorm: bool = False
    untie_embeddings: bool = False
    activation_recompute: str = "none"
    overlap_param_gather: bool = False
    overlap_p2p: bool = False
    grad_reduce_in_fp32: bool = True
    bucket_size: int | None = None
    kv_channels: int | None = None
    expert_tensor_parallel_size: int | None = None
    moe_ffn_hidden_size: int | None = None
    moe_shared_expert_size: int | None = None
    moe_token_dispatcher: str = "alltoall"
    moe_first_dense_layers: int = 0
    moe_aux_loss: bool = False
    moe_expert_bias: bool = False
    routing: str = "balanced"
    multi_latent_attention: bool = False
    reshard_after_forward: bool | None = None
    fsdp_units: str = LAYERS
    clip_grad: float = 1.0
    replicate: int = 1
    overlap_comm: bool = False
    max_reuse_distance: int = 1_000_000_000
    sub_group_size: int = 1_000_000_000

    @property
    def expert_size(self) -> int:
        """Width of an expert in elements: moe_ffn_hidden_size, by default that of the dense MLP."""
        return self.moe_ffn_hidden_size or self.ffn_size

    @property
    def framework_heads(self) -> int:
        """num_attention_heads, by default one per 128 elements of the width, at least one."""
        return self.num_attention_heads or max(1, self.hidden_size // HEAD_ELEMENTS)

    @property
    def data_parallel_size(self) -> int:
        """Number of ranks that hold the same shard: world_size // (tp * pp); no dialect divides over context ranks."""
        return self.world_size // (self.tensor_model_parallel_size * self.pipeline_model_parallel)

    @property
    def num_microbatches(self) -> int:
        """Micro-batches per iteration and rank (gradient accumulation): global_batch // (dp * micro_batch)."""
        return self.global_batch // (self.data_parallel_size * self.micro_batch)

    @property
    def ffn_size(self) -> int:
        """ffn_hidden_size in elements; by default 4h, with swiglu two thirds of it in steps of 64: int(8h/3 / 64) *
        64.
        """
        if self.ffn_hidden_size is not None:
            return self.ffn_hidden_size
        return int((4 * self.hidden_size * 2 / 3) / 64) * 64 if self.swiglu else 4 * self.hidden_size

    @property
    def padded_vocab_size(self) -> int:
        """vocab_size, in tokens, padded up to a multiple of make_vocab_size_divisible_by * tp."""
        step = self.make_vocab_size_divisible_by * self.tensor_model_parallel_size
        return -(-self.vocab_size // step) * step

    @property
    def activation_bytes(self) -> int:
        """Bytes of one micro-batch's activations: 2 * b * s * h."""
        return ELEMENT_BYTES * prod((self.micro_batch, self.seq_length, self.hidden_size))

    @property
    def computes(self) -> bool:
        """Whether computation rows are part of the workload."""
        return self.computation_enable or self.aiob_enable

    def in_short(self) -> str:
        """Which job it is, in a few words: framework, model, ranks and how they are divided."""
        if self.frame == "collective_test":
            return f"{self.test_comm} of {self.world_size} ranks"
        sizes = {
            "tp": self.tensor_model_parallel_size, "pp": self.pipeline_model_parallel,
            "ep": self.expert_model_parallel_size,
        }  # fmt: skip
        model = self.model_name or f"{self.num_layers} layers of width {self.hidden_size}"
        zero = f" ZeRO {self.stage}" if self.frame == "DeepSpeed" else ""
        divided = ", ".join(
            [f"{self.world_size} ranks", *(f"{name} {size}" for name, size in sizes.items() if size > 1)]
        )
        return f"{self.frame}{zero}, {model}, {divided}"

    def to_dict(self) -> dict[str, Any]:
        """Every parameter by name, for a record beside the workload."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "WorkloadArgs":
        """The inverse of `to_dict`.

        Raises:
            ValueError: a name is unknown.
        """
        unknown = sorted(set(values) - {field.name for field in fields(cls)})
        if unknown:
            raise ValueError(f"unknown parameters: {', '.join(unknown)}")
        return cls(**values)


DEFAULTS = WorkloadArgs()
DEEPSPEED_DEFAULTS = {"contiguous_gradients": True, "prefetch_bucket_size": 50_000_000}
"""DeepSpeed's own (0.19.8) where AICB has others."""
FRAMEWORK_ONLY = frozenset({
    "phase", "virtual_pipeline",
    "num_layers_first_stage", "num_layers_last_stage", "num_query_groups", "position_embedding",
    "normalization", "qk_layernorm", "untie_embeddings", "activation_recompute", "overlap_param_gather", "overlap_p2p",
    "grad_reduce_in_fp32", "bucket_size", "kv_channels", "expert_tensor_parallel_size", "moe_ffn_hidden_size",
    "moe_shared_expert_size", "moe_token_dispatcher", "moe_first_dense_layers", "moe_aux_loss", "moe_expert_bias",
    "routing", "multi_latent_attention", "reshard_after_forward", "fsdp_units", "clip_grad",
    "replicate", "overlap_comm", "max_reuse_distance", "sub_group_size",
})  # fmt: skip
"""Parameters that AICB does not have."""
