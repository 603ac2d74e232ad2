"""The one description of a job: its parameters, with AICB's names and defaults, and the values derived from them.

Each says what it means, its choices and its other spellings. The options of every command, the settings of a case
and the files of a job are made from it; `rules` says which values fit together.
"""

import sys
from dataclasses import dataclass, field, fields
from math import prod
from typing import Any, NamedTuple, TypeVar

from workloads.rows.ops import AICB_TYPES

FRAMES = ("Megatron", "DeepSpeed", "collective_test", "DeepSeek", "FSDP2")
ZERO_STAGES = (1, 2, 3)
SCRIPTS_NAMES = {"pipeline_model_parallel_size": "pipeline_model_parallel"}
"""Names of AICB's scripts and tutorial for options that its programs call otherwise. No aliases: the beginnings of a
name would be ambiguous."""
TRAINING, PREFILL, DECODE = WORKLOAD_PHASES = ("training", "prefill", "decode")
"""Phases of a job: prefill is the pass of a prompt, decode that of one token of each sequence."""
LAYERS, TORCHTITAN = FSDP_UNITS = ("layers", "torchtitan")
"""FSDP2's units: each layer, with all else in the root; or also the embedding, and the norm with the head."""
RING, ALL_TO_ALL = CP_COMM_TYPES = ("p2p", "a2a")
"""How context-parallel ranks exchange what attention needs: keys and values in a ring, or heads for tokens."""
ELEMENT_BYTES = 2
"""Bytes of a parameter, an activation or a 16-bit gradient."""
GRADIENT_BYTES = 4
"""Bytes of a main gradient, which Megatron keeps and reduces in 32 bits."""


FP8_RECIPES = ("none", "tensorwise", "rowwise", "delayed", "mxfp8")


COLLECTIVES = tuple(member.name for member in AICB_TYPES)
SECTIONS = (RUN, CLUSTER, MODEL, MEGATRON, FRAMEWORKS, EXPERTS, DEEPSPEED, COLLECTIVE, COMPUTATION) = (
    "what runs", "cluster and batch", "model", "Megatron", "what the frameworks have and AICB does not",
    "mixture of experts and DeepSeek", "DeepSpeed (sizes in elements)", "collective test (sizes in bytes)",
    "computation",
)  # fmt: skip
"""The sections of --help, in their order."""
_Value = TypeVar("_Value")


class Meaning(NamedTuple):
    """The meaning of a parameter. aliases: further options; choices: the only values; aicb_help: in AICB's dialect."""

    section: str
    help: str
    aliases: tuple[str, ...] = ()
    choices: tuple[Any, ...] = ()
    aicb_help: str = ""


def said(
    section: str, default: _Value, help: str, *, aliases: tuple[str, ...] = (), choices: tuple[Any, ...] = (),
    aicb_help: str = "",
) -> _Value:  # fmt: skip
    """A field with its default and its meaning."""
    meaning = Meaning(section, help, aliases, choices, aicb_help)
    made: _Value = field(default=default, metadata={"meaning": meaning})
    return made


HEAD_ELEMENTS = 128
"""Elements of an attention head where nobody says how many heads there are."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkloadArgs:
    """Parameters of a workload. Sizes are in elements unless they say bytes; None means "derived" (see below)."""

    frame: str = said(RUN, "Megatron", "training framework", choices=FRAMES)
    gpu_type: str | None = said(RUN, None, "GPU, used in the names of SimAI files")
    model_name: str | None = said(RUN, None, "name of the model, used in file names")
    world_size: int = said(CLUSTER, 1, "GPUs in all")
    tensor_model_parallel_size: int = said(CLUSTER, 1, "tensor-parallel size (tp)", aliases=("--tp",))
    pipeline_model_parallel: int = said(CLUSTER, 1, "pipeline stages (pp)", aliases=("--pp",))
    context_parallel_size: int = said(CLUSTER, 1, "context-parallel size (cp)", aliases=("--cp",))
    expert_model_parallel_size: int = said(CLUSTER, 1, "expert-parallel size (ep)", aliases=("--ep",))
    pp_rank: int = said(
        CLUSTER,
        -1,
        "pipeline stage whose rows are written, -1 for the first",
        aicb_help="pipeline stage whose set-up is written, -1 for the first",
    )
    global_batch: int = said(CLUSTER, 4, "samples an iteration, over all data-parallel ranks and micro-batches")
    micro_batch: int = said(CLUSTER, 1, "samples a rank runs at once")
    epoch_num: int = said(RUN, 1, "iterations")
    computation_enable: bool = said(COMPUTATION, False, "add the GEMMs as rows")
    dtype: str = said(RUN, "bfloat16", "type of weights and activations; sizes are always 2 bytes an element")
    enable_visual: bool = said(RUN, False, "accepted for AICB's command lines")
    workload_only: bool = said(RUN, False, "accepted for AICB's command lines: only workloads are written here")

    hidden_size: int = said(MODEL, 1024, "width of the transformer")
    num_layers: int = said(MODEL, 24, "transformer layers")
    seq_length: int = said(MODEL, 2048, "tokens a sample")
    num_attention_heads: int | None = said(
        MODEL,
        None,
        "attention heads (default: one per 128 of the width)",
        aicb_help="attention heads (default: as many as layers)",
    )
    ffn_hidden_size: int | None = said(MODEL, None, "width of the MLP (default: 4h, with swiglu 8h/3 in steps of 64)")
    vocab_size: int = said(MODEL, 32000, "tokens in the vocabulary")
    max_position_embeddings: int = said(MODEL, 4096, "positions that can be embedded")
    make_vocab_size_divisible_by: int = said(MODEL, 128, "the vocabulary is padded to a multiple of this times tp")
    add_bias_linear: bool = said(MODEL, False, "linear layers have a bias")
    use_flash_attn: bool = said(MODEL, False, "flash attention")
    swiglu: bool = said(MODEL, False, "gated linear units with SiLU instead of GeLU")
    gated_linear_unit: bool = said(MODEL, False, "gated linear units")
    bias_gelu_fusion: bool = said(MODEL, False, "bias and GeLU fused")
    openai_gelu: bool = said(MODEL, False, "OpenAI's GeLU")
    onnx_safe: bool = said(MODEL, False, "work around the ONNX exporter")
    squared_relu: bool = said(MODEL, False, "squared ReLU instead of GeLU")
    activation_func: str | None = said(MODEL, None, "activation function")
    recompute_activations: bool = said(MODEL, False, "recompute attention in the backward pass")

    enable_sequence_parallel: bool = said(MEGATRON, False, "sequence parallelism", aliases=("--sp",))
    use_distributed_optimizer: bool = said(MEGATRON, False, "optimizer state split over dp")
    overlap_grad_reduce: bool = said(MEGATRON, False, "overlap of the gradient reduction")
    overlap_version: bool = said(MEGATRON, False, "AICB's overlapping variant")

    stage: int = said(DEEPSPEED, 3, "ZeRO stage", aliases=("--zero_stage",), choices=ZERO_STAGES)
    amp_enabled: bool = said(DEEPSPEED, False, "automatic mixed precision")
    reduce_bucket_size: int = said(DEEPSPEED, 500_000_000, "elements of gradients reduced at once")
    allgather_bucket_size: int = said(DEEPSPEED, 500_000_000, "ZeRO 1 and 2: elements of parameters gathered at once")
    contiguous_gradients: bool = said(DEEPSPEED, False, "ZeRO 2: reduce each gradient range to its owner")
    param_persistence_threshold: int = said(DEEPSPEED, 100_000, "ZeRO 3: parameters of up to N elements stay whole")
    model_persistence_threshold: int = said(DEEPSPEED, sys.maxsize, "ZeRO 3: and of up to N elements together")
    max_live_parameters: int = said(
        DEEPSPEED, 1_000_000_000, "ZeRO 3: elements of parameters whole at a time before prefetching pauses"
    )
    prefetch_bucket_size: int = said(DEEPSPEED, 1_000_000_000, "ZeRO 3: elements of parameters gathered ahead at once")

    begin_size: int = said(COLLECTIVE, 1_048_576, "first size in bytes, such as 4096 or 1M")
    end_size: int = said(COLLECTIVE, 1_048_576, "last size in bytes; sizes double in between")
    test_comm: str = said(COLLECTIVE, "all_reduce", "the collective", choices=COLLECTIVES)
    iter_num: int = said(COLLECTIVE, 500, "repetitions of each size")
    multi_all_reduce_enable: int = said(COLLECTIVE, 0, "1: run in all pipeline groups at once", choices=(0, 1))

    moe_enable: bool = said(EXPERTS, False, "mixture of experts")
    num_experts: int = said(EXPERTS, 1, "experts of a layer, over all ep ranks")
    moe_router_topk: int = said(EXPERTS, 1, "experts a token goes to", aliases=("--topk",))
    moe_grouped_gemm: bool = said(EXPERTS, False, "experts' GEMMs in one kernel")
    n_dense_layers: int = said(EXPERTS, 3, "DeepSeek: first layers without experts")
    n_shared_expert: int = said(EXPERTS, 2, "DeepSeek: experts that see every token")
    qk_rope_dim: int = said(EXPERTS, 64, "DeepSeek: query and key dimensions of a head with rotary positions")
    qk_nope_dim: int = said(EXPERTS, 128, "DeepSeek: query and key dimensions of a head without positions")
    q_lora_rank: int = said(EXPERTS, 1536, "DeepSeek: rank of the query's compression")
    kv_lora_rank: int = said(EXPERTS, 512, "DeepSeek: rank of the key and value compression")
    v_head_dim: int = said(EXPERTS, 128, "DeepSeek: value dimensions of a head")

    aiob_enable: bool = said(COMPUTATION, False, "add the GEMMs, with measured times if there is a --comp_filepath")
    comp_filepath: str | None = said(COMPUTATION, None, "AIOB description file with measured times")

    phase: str = said(
        RUN,
        TRAINING,
        "training, or inference: the prompts of a batch (prefill) or one token each (decode)",
        choices=WORKLOAD_PHASES,
    )
    virtual_pipeline: int = said(
        FRAMEWORKS, 1, "virtual stages of a pipeline stage (interleaved schedule)", aliases=("--vpp",)
    )
    num_layers_first_stage: int | None = said(
        FRAMEWORKS, None, "layers of the first pipeline stage, if not as many as the others"
    )
    num_layers_last_stage: int | None = said(FRAMEWORKS, None, "layers of the last pipeline stage")
    num_query_groups: int | None = said(
        FRAMEWORKS, None, "groups of heads that share keys and values (default: one a head)"
    )
    position_embedding: str = said(FRAMEWORKS, "rope", "positions", choices=("rope", "learned_absolute"))
    normalization: str = said(FRAMEWORKS, "RMSNorm", "norm", choices=("RMSNorm", "LayerNorm"))
    qk_layernorm: bool = said(FRAMEWORKS, False, "queries and keys are normalised")
    untie_embeddings: bool = said(FRAMEWORKS, False, "the output head has weights of its own")
    activation_recompute: str = said(
        FRAMEWORKS, "none", "activations recomputed in the backward pass", choices=("none", "selective", "full")
    )
    cp_comm_type: str = said(
        FRAMEWORKS, RING, "context parallelism: keys and values in a ring (p2p), or heads for tokens (a2a)",
        choices=CP_COMM_TYPES,
    )  # fmt: skip
    hidden_dropout: float = said(FRAMEWORKS, 0.0, "share of elements dropped after embedding, attention and MLP")
    sliding_window: int | None = said(
        FRAMEWORKS, None, "tokens that a token attends to, itself one of them (default: all before it)"
    )
    full_attention_every: int = said(
        FRAMEWORKS, 0, "with sliding_window: every so many layers, one attends to all tokens, 0: none"
    )
    fp8_recipe: str = said(
        FRAMEWORKS,
        "none",
        "products of the layers in FP8: FSDP2 tensorwise or rowwise as torchao scales, Megatron as Transformer Engine "
        "does: mxfp8, or in Hopper's rows tensorwise (current scaling) or delayed",
        choices=FP8_RECIPES,
    )
    overlap_param_gather: bool = said(FRAMEWORKS, False, "parameters gathered during the forward pass")
    overlap_p2p: bool = said(FRAMEWORKS, False, "interleaved schedule: sends and receives beside the computation")
    grad_reduce_in_fp32: bool = said(FRAMEWORKS, True, "gradients reduced in 32 bits")
    bucket_size: int | None = said(
        FRAMEWORKS, None, "elements of a gradient bucket (default: the larger of 40 M and 1 M a dp rank)"
    )
    kv_channels: int | None = said(FRAMEWORKS, None, "elements of an attention head (default: hidden_size / heads)")
    expert_tensor_parallel_size: int | None = said(
        FRAMEWORKS, None, "tensor-parallel size of the experts (default: tp)", aliases=("--etp",)
    )
    moe_ffn_hidden_size: int | None = said(FRAMEWORKS, None, "width of an expert (default: that of the dense MLP)")
    moe_shared_expert_size: int | None = said(
        FRAMEWORKS, None, "width of the experts that see every token (default: none)"
    )
    moe_token_dispatcher: str = said(
        FRAMEWORKS, "alltoall", "how tokens reach their experts: allgather, alltoall, deepep"
    )
    moe_first_dense_layers: int = said(FRAMEWORKS, 0, "first layers without experts")
    moe_aux_loss: bool = said(FRAMEWORKS, False, "a loss that balances the experts")
    moe_expert_bias: bool = said(FRAMEWORKS, False, "biases that balance the experts (DeepSeek-V3)")
    routing: str = said(FRAMEWORKS, "balanced", "tokens by expert: balanced, zipf:EXPONENT or file:PATH")
    multi_latent_attention: bool = said(FRAMEWORKS, False, "attention of DeepSeek-V3")
    reshard_after_forward: bool | None = said(
        FRAMEWORKS,
        None,
        "FSDP2: parameters are gathered again in the backward pass: true, false, or auto: all but the root's "
        "(fsdp_units torchtitan: but norm and head) (default: auto)",
    )
    fsdp_units: str = said(
        FRAMEWORKS,
        LAYERS,
        "FSDP2: what is sharded apart: each layer, or also embedding, and norm with head, as torchtitan does, which "
        "can split tensors (--tp), too",
        choices=FSDP_UNITS,
    )
    clip_grad: float = said(FRAMEWORKS, 1.0, "FSDP2: clip gradients by their norm, 0: not at all")
    replicate: int = said(FRAMEWORKS, 1, "FSDP2: copies of each shard (hybrid sharding)")
    overlap_comm: bool = said(FRAMEWORKS, False, "ZeRO: gradients are reduced during the backward pass, also by ZeRO 1")
    max_reuse_distance: int = said(
        FRAMEWORKS, 1_000_000_000, "ZeRO 3: parameters used again within so many elements stay gathered"
    )
    sub_group_size: int = said(
        FRAMEWORKS, 1_000_000_000, "ZeRO 3: elements of a rank's shards that are stepped at once"
    )

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
        """Number of ranks with samples of their own that hold the same shard: world_size // (tp * pp * cp)."""
        shared = self.tensor_model_parallel_size * self.pipeline_model_parallel * self.context_parallel_size
        return self.world_size // shared

    @property
    def num_microbatches(self) -> int:
        """Micro-batches per iteration and rank (gradient accumulation): global_batch // (dp * micro_batch)."""
        return self.global_batch // (self.data_parallel_size * self.micro_batch)

    @property
    def ffn_size(self) -> int:
        """ffn_hidden_size in elements; by default 4h, with swiglu 2/3 of it: int(8h/3 / 64) * 64."""
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
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "WorkloadArgs":
        """The inverse of `to_dict`.

        Raises:
            ValueError: a name is unknown, or a value of another kind.
        """
        unknown = sorted(set(values) - {each.name for each in fields(cls)})
        if unknown:
            raise ValueError(f"unknown parameters: {', '.join(unknown)}")
        flags = {name: bool(value) for name, value in values.items() if KINDS[name] is bool and value in (0, 1)}
        values = values | flags
        kinds = {name: int | float if KINDS[name] is float else KINDS[name] for name in values}
        wrong = [f"{name} is {value!r:.80}" for name, value in values.items() if not isinstance(value, kinds[name])]
        if wrong:
            raise ValueError(f"values of another kind: {', '.join(wrong)}")
        return cls(**values)


DEFAULTS = WorkloadArgs()
MEANINGS: dict[str, Meaning] = {each.name: each.metadata["meaning"] for each in fields(WorkloadArgs)}
KINDS: dict[str, Any] = {each.name: each.type for each in fields(WorkloadArgs)}
"""The type of each parameter."""
DEEPSPEED_DEFAULTS = {"contiguous_gradients": True, "prefetch_bucket_size": 50_000_000}
"""DeepSpeed's own (0.19.8) where AICB has others."""


def of_section(section: str) -> frozenset[str]:
    """The parameters that are about one of SECTIONS."""
    return frozenset(name for name, meaning in MEANINGS.items() if meaning.section == section)


FRAMEWORK_ONLY = of_section(FRAMEWORKS) | {"phase"}
"""Parameters that AICB does not have."""
