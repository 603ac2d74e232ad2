"""Refuses what Megatron-core refuses, and what cannot be told without running it, each with the reason."""

from collections.abc import Iterator

from workloads.dialects.framework.inference import refused
from workloads.dialects.framework.model import stage_layers
from workloads.dialects.framework.sharding import sharded
from workloads.dialects.framework.simai_rules import simai_text
from workloads.dialects.framework.widths import experts, latent, widths
from workloads.job import refusals, rules
from workloads.job.parameters import CP_COMM_TYPES, DECODE, FP8_RECIPES, FRAMES, WorkloadArgs
from workloads.job.rules import RuleViolation

CHOICES = {
    "position_embedding": ("rope", "learned_absolute"),
    "normalization": ("RMSNorm", "LayerNorm"),
    "activation_recompute": ("none", "selective", "full"),
    "cp_comm_type": CP_COMM_TYPES,
}
FRAMES_KNOWN = ("Megatron", "FSDP2", "DeepSpeed")
_RECIPES = {
    "Megatron": ("none", "tensorwise", "delayed", "mxfp8"), "FSDP2": ("none", "tensorwise", "rowwise"),
    "DeepSpeed": ("none",),
}  # fmt: skip


def problems(args: WorkloadArgs, target: str) -> list[RuleViolation]:
    """Every broken rule of this dialect; none is breakable, for Megatron does not run."""
    if rules.blocked(args):
        return []
    texts = [*_known(args, target), *refused(args), *refusals.too_many(args)]
    if not texts and args.frame != "Megatron":
        texts += [*_choices(args), *_windows(args), *sharded(args)]
    elif not texts:
        texts += [*_choices(args), *_parallel(args), *_stages(args)]
        texts += [*_computed(args), *(latent(args) if args.multi_latent_attention else widths(args))]
        texts += experts(args) if args.moe_enable else []
    if target == "simai" and not texts:
        texts += simai_text(args)
    return [RuleViolation(text, breakable=False) for text in texts]


def _known(args: WorkloadArgs, target: str) -> Iterator[str]:
    if args.frame not in FRAMES_KNOWN:
        others = ", ".join(frame for frame in FRAMES if frame not in FRAMES_KNOWN)
        yield f"frame {args.frame} is not in the dialect framework; --dialect aicb has {others}"
    if args.frame == "DeepSeek":
        yield "what AICB calls frame DeepSeek is here --multi_latent_attention with experts, or -m deepseek_v3"
    if not args.moe_enable and (args.num_experts > 1 or args.expert_model_parallel_size > 1):
        yield "num_experts and expert_model_parallel_size need --moe_enable"
    if target != "simai":
        for name in ("aiob_enable", "comp_filepath"):
            if getattr(args, name):
                yield f"{name}: `compute fill` times the rows of --computation_enable; --dialect aicb has it"


def _choices(args: WorkloadArgs) -> Iterator[str]:
    most, next_token = args.max_position_embeddings, args.phase == DECODE
    if args.position_embedding == "learned_absolute" and args.seq_length + next_token > most:
        asked = f"{args.seq_length}{' and the token after it' * next_token}"
        yield f"seq_length {asked}: at most max_position_embeddings {most}, which learned_absolute embeds"
    for name, allowed in CHOICES.items():
        value = getattr(args, name)
        if value not in allowed:
            yield f"{name} is {value!r}; allowed: {', '.join(allowed)}"
    recipes = _RECIPES.get(args.frame, FP8_RECIPES)
    if args.fp8_recipe not in recipes:
        yield f"fp8_recipe is {args.fp8_recipe!r}; frame {args.frame} has {', '.join(recipes)}"
    for name in ("virtual_pipeline", "num_query_groups", "bucket_size", "num_layers_first_stage",
                 "num_layers_last_stage", "kv_channels", "expert_tensor_parallel_size", "moe_ffn_hidden_size",
                 "moe_shared_expert_size"):  # fmt: skip
        value = getattr(args, name)
        if value is not None and value < 1:
            yield f"{name} is {value}; it must be at least 1, nearest: 1"
    if args.moe_token_dispatcher not in (*refusals.DISPATCHERS, refusals.DEEPEP):
        yield f"{refusals.dispatcher(args.moe_token_dispatcher)} (--dialect aicb has an all_to_all of its own)"
    dtypes = ("bfloat16", "float16") if args.frame == "DeepSpeed" else ("bfloat16",)
    if args.dtype not in dtypes:
        yield f"dtype is {args.dtype!r}; only {' and '.join(dtypes)} has been traced, nearest: bfloat16"
    least = int(args.frame == "DeepSpeed" and args.stage == 1)  # ZeRO 1 reduces gradients in the last micro-batch
    if args.num_microbatches < least:
        yield (
            f"global_batch {args.global_batch} makes {args.num_microbatches} micro-batches a rank; it must make at "
            f"least {least}, nearest: {args.data_parallel_size * args.micro_batch}"
        )


def _computed(args: WorkloadArgs) -> Iterator[str]:
    """Broken rules of dropout and of attention's window."""
    if not 0 <= args.hidden_dropout < 1:
        yield f"hidden_dropout is {args.hidden_dropout}; it must be from 0 to below 1, nearest: 0"
    yield from _windows(args)


def _windows(args: WorkloadArgs) -> Iterator[str]:
    if args.sliding_window is not None and args.sliding_window < 1:
        yield f"sliding_window is {args.sliding_window}; it must be at least 1, nearest: 1"
    if args.sliding_window is not None and args.context_parallel_size > 1:
        yield f"sliding_window {args.sliding_window}: context-parallel ranks see all tokens here; nearest: none"
    if args.full_attention_every < 0 or (args.full_attention_every and args.sliding_window is None):
        yield f"full_attention_every is {args.full_attention_every}; it is at least 0 and needs sliding_window"


def _parallel(args: WorkloadArgs) -> Iterator[str]:
    yield from refusals.context_parallelism(args)
    etp, ep = args.expert_tensor_parallel_size or args.tensor_model_parallel_size, args.expert_model_parallel_size
    ranks = args.world_size // args.pipeline_model_parallel
    if ranks % (max(1, etp) * ep):
        yield (
            f"the {ranks} ranks of a pipeline stage must be a multiple of expert_tensor_parallel_size * "
            f"expert_model_parallel_size = {etp} * {ep} = {etp * ep}"
        )
    if args.enable_sequence_parallel and args.tensor_model_parallel_size == 1:
        yield "enable_sequence_parallel needs tensor_model_parallel_size of 2 or more: Megatron splits over tp ranks"
    yield from refusals.overlapped(args)
    if args.pp_rank < -1 or args.pp_rank >= args.pipeline_model_parallel:
        yield (
            f"pp_rank {args.pp_rank} must be -1 or one of the pipeline stages 0 to {args.pipeline_model_parallel - 1}"
        )


def _stages(args: WorkloadArgs) -> Iterator[str]:
    pp, virtual = args.pipeline_model_parallel, args.virtual_pipeline
    given = [each for each in (args.num_layers_first_stage, args.num_layers_last_stage) if each is not None]
    if given and pp < 2:
        yield "num_layers_first_stage and num_layers_last_stage need pipeline_model_parallel of 2 or more"
        return
    if virtual > 1 and pp < 2:
        yield f"virtual_pipeline {virtual} needs pipeline_model_parallel of 2 or more"
    yield from _divided_layers(args, given)
    if virtual > 1 and pp > 1 and (args.num_microbatches % pp or args.num_microbatches < pp):
        nearest = rules.multiple_near(args.num_microbatches, pp)
        yield (
            f"with virtual stages the {args.num_microbatches} micro-batches of a rank must be a multiple of "
            f"pipeline_model_parallel {pp}; nearest: {nearest}"
        )


def _divided_layers(args: WorkloadArgs, given: list[int]) -> Iterator[str]:
    """Broken rules of the layers of stages, `given` of which the user set."""
    virtual, layers = args.virtual_pipeline, args.num_layers
    rest, middle = layers - sum(given), args.pipeline_model_parallel - len(given)
    if (middle and (rest < middle or rest % middle)) or (not middle and rest):
        yield (
            f"{rest} of num_layers {layers} must be divided evenly over {middle} pipeline stages; nearest num_layers: "
            f"{sum(given) + max(middle, round(rest / middle) * middle) if middle else sum(given)}, or set "
            "num_layers_first_stage and num_layers_last_stage"
        )
    elif virtual > 1 and any(each % virtual for each in stage_layers(args)):
        yield f"virtual_pipeline {virtual} must divide the layers of each stage, {stage_layers(args)}"
