"""Describes a job to trace: a job's parameters, the traced rank, and how much is recorded."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from workloads.job.parameters import DECODE, WorkloadArgs

UNTRACED = frozenset({
    "gpu_type", "model_name", "pp_rank", "global_batch", "epoch_num", "enable_visual",
    "workload_only", "use_flash_attn", "gated_linear_unit", "bias_gelu_fusion", "openai_gelu", "onnx_safe",
    "squared_relu", "activation_func", "recompute_activations", "overlap_version", "amp_enabled", "begin_size",
    "end_size", "test_comm", "iter_num", "multi_all_reduce_enable", "moe_enable", "moe_grouped_gemm", "n_dense_layers",
    "n_shared_expert", "aiob_enable", "comp_filepath",
})  # fmt: skip
"""Parameters that no trace has: AICB's alone, or said by others, as moe_enable by num_experts."""
FORMER = {
    "recompute": "activation_recompute", "qk_head_dim": "qk_nope_dim", "qk_pos_emb_head_dim": "qk_rope_dim"
}  # fmt: skip
"""Names of parameters in older records."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceJob(WorkloadArgs):
    """A job with defaults as small as a trace wants them, where None means the framework's default.

    rank: the traced rank. iterations: how many are recorded. own_groups: make only the process groups that hold the
    rank, as worlds beyond 16,384 ranks do always; the trace is the same. num_experts 0: no experts; q_lora_rank 0: the
    query is not compressed.
    """

    rank: int = 0
    num_microbatches: int = 1
    iterations: int = 1
    own_groups: bool = False

    num_layers: int = 2
    num_attention_heads: int = 16
    num_experts: int = 0
    q_lora_rank: int = 0
    contiguous_gradients: bool = True
    prefetch_bucket_size: int = 50_000_000

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
        return self.micro_batch * self.tokens_per_sequence // self.context_parallel_size // split

    @property
    def pp_stage(self) -> int:
        """The traced rank's pipeline stage in Megatron's order tp-cp-ep-dp-pp."""
        return self.rank // (self.world_size // self.pipeline_model_parallel)

    def to_dict(self) -> dict[str, Any]:
        """The parameters that differ from their defaults, by name."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in values.items() if value != getattr(_DEFAULTS, name)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TraceJob":
        """The inverse of `to_dict`.

        Raises:
            ValueError: a name is unknown.
        """
        named = {FORMER.get(name, name): value for name, value in values.items()}
        unknown = sorted(set(named) - NAMES)
        if unknown:
            raise ValueError(f"unknown parameters of a trace: {', '.join(unknown)}")
        return cls(**named)


_DEFAULTS = TraceJob()
NAMES = frozenset(each.name for each in fields(TraceJob)) - UNTRACED
