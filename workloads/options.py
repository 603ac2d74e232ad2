"""Defines the options of the command line: AICB's names, their kinds and meanings, their conversion to WorkloadArgs."""

import argparse
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from workloads import dialects
from workloads.dialects.framework import presets as models
from workloads.job import presets
from workloads.job.errors import ParameterError
from workloads.job.parameters import (
    DEEPSPEED_DEFAULTS,
    DEFAULTS,
    FRAMES,
    FSDP_UNITS,
    TRAINING,
    WORKLOAD_PHASES,
    ZERO_STAGES,
    WorkloadArgs,
)
from workloads.rows.ops import AICB_TYPES

TRUE, FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


def whole(text: str) -> int:
    """An integer, also in the form 1e9.

    Raises:
        ValueError: the text is no whole number.
    """
    try:
        return int(text)
    except ValueError:
        number = float(text)
        if not number.is_integer():
            raise
        return int(number)


def truth(text: str) -> bool:
    """True or False.

    Raises:
        ValueError: the text is no truth value.
    """
    if text.lower() in TRUE + FALSE:
        return text.lower() in TRUE
    raise ValueError(text)


def truth_or_auto(text: str) -> bool | None:
    """True, False, or None for auto.

    Raises:
        ValueError: the text is none of them.
    """
    return None if text.lower() == "auto" else truth(text)


def text_or_none(text: str) -> str | None:
    """A text, or None for the word None."""
    return None if text == "None" else text


whole.__name__, truth.__name__ = "whole number", "True or False"


@dataclass(frozen=True, slots=True)
class Option:
    """One parameter on the command line. aliases: other spellings; choices: the only values."""

    name: str
    kind: Callable[[str], Any]
    help: str
    aliases: tuple[str, ...] = ()
    choices: tuple[Any, ...] = ()
    aicb_help: str = ""


Section = tuple[str, tuple[Option, ...]]

SECTIONS: tuple[Section, ...] = (
    ("what runs", (
        Option("frame", str, "training framework", choices=FRAMES),
        Option("phase", str, "training, or inference: the prompts of a batch (prefill) or one token each (decode)",
               choices=WORKLOAD_PHASES),
        Option("model_name", text_or_none, "name of the model, used in file names"),
        Option("gpu_type", text_or_none, "GPU, used in the names of SimAI files"),
        Option("dtype", str, "type of weights and activations; sizes are always 2 bytes an element"),
        Option("epoch_num", whole, "iterations"),
        Option("workload_only", truth, "accepted for AICB's command lines: only workloads are written here"),
        Option("enable_visual", truth, "accepted for AICB's command lines"),
    )),
    ("cluster and batch", (
        Option("world_size", whole, "GPUs in all"),
        Option("global_batch", whole, "samples an iteration, over all data-parallel ranks and micro-batches"),
        Option("micro_batch", whole, "samples a rank runs at once"),
        Option("tensor_model_parallel_size", whole, "tensor-parallel size (tp)", ("--tp",)),
        Option("pipeline_model_parallel", whole, "pipeline stages (pp)", ("--pp",)),
        Option("expert_model_parallel_size", whole, "expert-parallel size (ep)", ("--ep",)),
        Option("context_parallel_size", whole, "context-parallel size"),
        Option("pp_rank", whole, "pipeline stage whose rows are written, -1 for the first",
               aicb_help="pipeline stage whose set-up is written, -1 for the first"),
    )),
    ("model", (
        Option("hidden_size", whole, "width of the transformer"),
        Option("num_layers", whole, "transformer layers"),
        Option("seq_length", whole, "tokens a sample"),
        Option("num_attention_heads", whole, "attention heads (default: one per 128 of the width)",
               aicb_help="attention heads (default: as many as layers)"),
        Option("ffn_hidden_size", whole, "width of the MLP (default: 4h, with swiglu 8h/3 in steps of 64)"),
        Option("vocab_size", whole, "tokens in the vocabulary"),
        Option("max_position_embeddings", whole, "positions that can be embedded"),
        Option("make_vocab_size_divisible_by", whole, "the vocabulary is padded to a multiple of this times tp"),
        Option("add_bias_linear", truth, "linear layers have a bias"),
        Option("use_flash_attn", truth, "flash attention"),
        Option("swiglu", truth, "gated linear units with SiLU instead of GeLU"),
        Option("gated_linear_unit", truth, "gated linear units"),
        Option("bias_gelu_fusion", truth, "bias and GeLU fused"),
        Option("openai_gelu", truth, "OpenAI's GeLU"),
        Option("onnx_safe", truth, "work around the ONNX exporter"),
        Option("squared_relu", truth, "squared ReLU instead of GeLU"),
        Option("activation_func", text_or_none, "activation function"),
        Option("recompute_activations", truth, "recompute attention in the backward pass"),
    )),
    ("Megatron", (
        Option("enable_sequence_parallel", truth, "sequence parallelism", ("--sp",)),
        Option("use_distributed_optimizer", truth, "optimizer state split over dp"),
        Option("overlap_grad_reduce", truth, "overlap of the gradient reduction"),
        Option("overlap_version", truth, "AICB's overlapping variant"),
    )),
    ("what the frameworks have and AICB does not", (
        Option("virtual_pipeline", whole, "virtual stages of a pipeline stage (interleaved schedule)", ("--vpp",)),
        Option("num_layers_first_stage", whole, "layers of the first pipeline stage, if not as many as the others"),
        Option("num_layers_last_stage", whole, "layers of the last pipeline stage"),
        Option("num_query_groups", whole, "groups of heads that share keys and values (default: one a head)"),
        Option("kv_channels", whole, "elements of an attention head (default: hidden_size / heads)"),
        Option("position_embedding", str, "positions", choices=("rope", "learned_absolute")),
        Option("normalization", str, "norm", choices=("RMSNorm", "LayerNorm")),
        Option("qk_layernorm", truth, "queries and keys are normalised"),
        Option("untie_embeddings", truth, "the output head has weights of its own"),
        Option("activation_recompute", str, "activations recomputed in the backward pass",
               choices=("none", "selective", "full")),
        Option("overlap_param_gather", truth, "parameters gathered during the forward pass"),
        Option("overlap_p2p", truth, "interleaved schedule: sends and receives beside the computation"),
        Option("grad_reduce_in_fp32", truth, "gradients reduced in 32 bits"),
        Option("bucket_size", whole, "elements of a gradient bucket (default: the larger of 40 M and 1 M a dp rank)"),
        Option("expert_tensor_parallel_size", whole, "tensor-parallel size of the experts (default: tp)", ("--etp",)),
        Option("moe_ffn_hidden_size", whole, "width of an expert (default: that of the dense MLP)"),
        Option("moe_shared_expert_size", whole, "width of the experts that see every token (default: none)"),
        Option("moe_token_dispatcher", str, "how tokens reach their experts: allgather or alltoall"),
        Option("moe_first_dense_layers", whole, "first layers without experts"),
        Option("moe_aux_loss", truth, "a loss that balances the experts"),
        Option("moe_expert_bias", truth, "biases that balance the experts (DeepSeek-V3)"),
        Option("routing", str, "tokens by expert: balanced, zipf:EXPONENT or file:PATH"),
        Option("multi_latent_attention", truth, "attention of DeepSeek-V3"),
        Option("reshard_after_forward", truth_or_auto, "FSDP2: parameters are gathered again in the backward pass: "
               "true, false, or auto: all but the root's (fsdp_units torchtitan: but norm and head) (default: auto)"),
        Option("fsdp_units", str, "FSDP2: what is sharded apart: each layer, or also embedding, and norm with head, as "
               "torchtitan does, which can split tensors (--tp), too", choices=FSDP_UNITS),
        Option("clip_grad", float, "FSDP2: clip gradients by their norm, 0: not at all"),
        Option("replicate", whole, "FSDP2: copies of each shard (hybrid sharding)"),
        Option("overlap_comm", truth, "ZeRO: gradients are reduced during the backward pass, also by ZeRO 1"),
        Option("max_reuse_distance", whole, "ZeRO 3: parameters used again within so many elements stay gathered"),
        Option("sub_group_size", whole, "ZeRO 3: elements of a rank's shards that are stepped at once"),
    )),
    ("mixture of experts and DeepSeek", (
        Option("moe_enable", truth, "mixture of experts"),
        Option("num_experts", whole, "experts of a layer, over all ep ranks"),
        Option("moe_router_topk", whole, "experts a token goes to", ("--topk",)),
        Option("moe_grouped_gemm", truth, "experts' GEMMs in one kernel"),
        Option("n_dense_layers", whole, "DeepSeek: first layers without experts"),
        Option("n_shared_expert", whole, "DeepSeek: experts that see every token"),
        Option("q_lora_rank", whole, "DeepSeek: rank of the query's compression"),
        Option("kv_lora_rank", whole, "DeepSeek: rank of the key and value compression"),
        Option("qk_nope_dim", whole, "DeepSeek: query and key dimensions of a head without positions"),
        Option("qk_rope_dim", whole, "DeepSeek: query and key dimensions of a head with rotary positions"),
        Option("v_head_dim", whole, "DeepSeek: value dimensions of a head"),
    )),
    ("DeepSpeed (sizes in elements)", (
        Option("stage", whole, "ZeRO stage", ("--zero_stage",), choices=ZERO_STAGES),
        Option("amp_enabled", truth, "automatic mixed precision"),
        Option("reduce_bucket_size", whole, "gradients reduced at once"),
        Option("allgather_bucket_size", whole, "ZeRO 1 and 2: parameters gathered at once"),
        Option("contiguous_gradients", truth, "ZeRO 2: reduce each gradient range to its owner"),
        Option("param_persistence_threshold", whole, "ZeRO 3: parameters up to this size stay whole"),
        Option("model_persistence_threshold", whole, "ZeRO 3: and up to this size together"),
        Option("max_live_parameters", whole, "ZeRO 3: parameters whole at a time before prefetching pauses"),
        Option("prefetch_bucket_size", whole, "ZeRO 3: parameters gathered ahead at once"),
    )),
    ("collective test (sizes in bytes)", (
        Option("test_comm", str, "the collective", choices=tuple(member.name for member in AICB_TYPES)),
        Option("begin_size", whole, "first size"),
        Option("end_size", whole, "last size; sizes double in between"),
        Option("iter_num", whole, "repetitions of each size"),
        Option("multi_all_reduce_enable", whole, "1: run in all pipeline groups at once", choices=(0, 1)),
    )),
    ("computation", (
        Option("computation_enable", truth, "add the GEMMs as rows"),
        Option("aiob_enable", truth, "add the GEMMs, with measured times if there is a --comp_filepath"),
        Option("comp_filepath", text_or_none, "AIOB description file with measured times"),
    )),
)  # fmt: skip
OPTIONS = {option.name: option for _, options in SECTIONS for option in options}


def idle_in(dialect: str, target: str) -> frozenset[str]:
    """Parameters that change nothing in any workload of a dialect."""
    jobs = [
        WorkloadArgs(frame=frame, stage=stage, moe_enable=True, multi_latent_attention=latent, comp_filepath="FILE",
                     overlap_grad_reduce=True, virtual_pipeline=2)
        for frame in FRAMES for stage in ZERO_STAGES for latent in (False, True)
    ]  # fmt: skip
    return frozenset.intersection(*(frozenset(dialects.get(dialect).without_effect(job, target)) for job in jobs))


def add_to(
    parser: argparse.ArgumentParser, dialect: str = dialects.DEFAULT_DIALECT, hidden: Collection[str] = ()
) -> None:
    """Adds every option, with the defaults of a dialect. Only what the user sets ends up in the parsed namespace.

    hidden: taken, but not shown by --help.
    """
    parser.add_argument(
        "-m", "--model_size", choices=(*presets.NAMES, *models.NAMES), metavar="MODEL", default=argparse.SUPPRESS,
        help=f"a ready-made model: {', '.join(presets.NAMES if dialect == 'aicb' else models.NAMES)}"
        f"{'' if dialect == 'aicb' else ', or an AICB name of one of them'}; options given beside it win",
    )  # fmt: skip
    for title, options in SECTIONS:
        group = parser.add_argument_group(title)
        for option in options:
            extra: dict[str, Any] = {"nargs": "?", "const": True} if option.kind in (truth, truth_or_auto) else {}
            if option.choices:
                extra["choices"] = option.choices
            group.add_argument(
                f"--{option.name}",
                *option.aliases,
                dest=option.name,
                type=option.kind,
                default=argparse.SUPPRESS,
                metavar=_METAVARS.get(option.kind, "TEXT"),
                help=argparse.SUPPRESS if option.name in hidden else _help(option, dialect),
                **extra,
            )


def _help(option: Option, dialect: str) -> str:
    own = {} if dialect == "aicb" else DEEPSPEED_DEFAULTS
    default = own.get(option.name, getattr(DEFAULTS, option.name))
    choices = f": {', '.join(map(str, option.choices))}" if option.choices else ""
    words = option.aicb_help if dialect == "aicb" and option.aicb_help else option.help
    return words + choices + ("" if default is None or default is False else f" (default: {default})")


_METAVARS: Mapping[Any, str] = {whole: "N", truth: "BOOL", truth_or_auto: "BOOL|auto", float: "X"}


def resolve(given: dict[str, Any], model_size: str | None, target: str, dialect: str) -> WorkloadArgs:
    """The parameters of the dialect's preset, overridden by those given.

    Raises:
        ValueError: this frame has no such preset.
    """
    if dialect == "framework" and given.get("frame") == "DeepSpeed":
        given = {**DEEPSPEED_DEFAULTS, **given}
    if model_size is None:
        return WorkloadArgs(**given)
    if dialect == "framework":
        preset = models.values(model_size, target, given.get("frame"))
    else:
        preset = presets.values(model_size, target=target, frame=given.get("frame"))
    merged = {**preset, **given}
    if merged.get("phase", TRAINING) != TRAINING:
        # A preset's batch and split sequence are those of training.
        merged["enable_sequence_parallel"] = given.get("enable_sequence_parallel", False)
        if "global_batch" not in given:
            merged.pop("global_batch", None)
    if "global_batch" not in merged:
        args = WorkloadArgs(**merged)
        if args.tensor_model_parallel_size * args.pipeline_model_parallel > 0:
            ranks = max(1, args.data_parallel_size)
            count = presets.batches_per_rank(args.frame)
            if dialect == "framework":
                count = max(count, args.pipeline_model_parallel)
            merged["global_batch"] = count * ranks * args.micro_batch
    return WorkloadArgs(**merged)


def described(given: dict[str, Any], target: str, dialect: str) -> WorkloadArgs:
    """The job that the options of `add_to` describe; `model_size` is taken out of them.

    Raises:
        ParameterError: there is no such preset.
    """
    model_size = given.pop("model_size", None)
    try:
        return resolve(given, model_size, target, dialect)
    except ValueError as error:
        raise ParameterError([str(error)]) from None


def note_idle(given: Iterable[str], args: WorkloadArgs, dialect: str, target: str) -> None:
    """Say on stderr which options of those `given` change no row of the workload that a dialect makes of `args`."""
    idle = sorted(set(given) & dialects.get(dialect).without_effect(args, target))
    if idle:
        print(f"note: no effect on this workload: {', '.join(f'--{name}' for name in idle)}", file=sys.stderr)
