"""Refuses parameters that AICB ignores silently or cannot handle, with advice on what to use instead.

A breakable problem has an output of AICB's own, which --break_rules requests; the others end AICB with an exception.
"""

from collections.abc import Iterator
from pathlib import Path

from workloads.compute import aiob
from workloads.dialects.aicb import simai_inference, sizes
from workloads.job import rules
from workloads.job.errors import CompFileError
from workloads.job.parameters import COLLECTIVE, DEEPSPEED, FRAMEWORK_ONLY, TRAINING, WorkloadArgs, of_section
from workloads.job.rules import RuleViolation
from workloads.rows.collectives import SIMULATED

SIXTEEN_BIT = ("bfloat16", "float16")
TESTED = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce")
SIMAI_TESTED = SIMULATED[:-1]
NO_ROW = ("computation", "epoch_end")

_NEVER = FRAMEWORK_ONLY | {"gpu_type", "max_position_embeddings", "use_flash_attn", "gated_linear_unit",
          "bias_gelu_fusion", "openai_gelu", "onnx_safe", "squared_relu", "activation_func", "enable_visual",
          "moe_grouped_gemm"}  # fmt: skip
_COLLECTIVE, _ZERO = of_section(COLLECTIVE), of_section(DEEPSPEED)
_DEEPSEEK = {"n_dense_layers", "n_shared_expert", "qk_rope_dim", "qk_nope_dim", "q_lora_rank", "kv_lora_rank",
             "v_head_dim"}  # fmt: skip
_EXPERTS = {"num_experts", "moe_router_topk", "expert_model_parallel_size"}
_MEGATRON = {"enable_sequence_parallel", "use_distributed_optimizer", "make_vocab_size_divisible_by", "add_bias_linear",
             "pp_rank", "overlap_grad_reduce", "overlap_version"}  # fmt: skip
_MODEL = {"hidden_size", "num_layers", "seq_length", "num_attention_heads", "ffn_hidden_size", "vocab_size", "swiglu",
          "global_batch", "micro_batch"}  # fmt: skip
_STAGE_1_2 = {"allgather_bucket_size", "contiguous_gradients"}
_STAGE_3 = {"param_persistence_threshold", "model_persistence_threshold", "max_live_parameters", "prefetch_bucket_size"}


def without_effect(args: WorkloadArgs, target: str) -> set[str]:
    """Parameters that change nothing in this workload; AICB accepts them all silently."""
    idle = set(_NEVER)
    if target == "simai":
        idle -= {"gpu_type", "phase"}
        idle |= {"computation_enable", "pp_rank", "use_distributed_optimizer"}
    else:
        idle |= set() if args.comp_filepath else {"recompute_activations"}
    if args.frame == "collective_test":
        return idle | _ZERO | _DEEPSEEK | _EXPERTS | _MEGATRON | _MODEL | {"moe_enable", "recompute_activations"}
    idle |= _COLLECTIVE
    if args.frame == "DeepSpeed":
        other = _STAGE_1_2 if args.stage == 3 else _STAGE_3
        return idle | _DEEPSEEK | _EXPERTS | _MEGATRON | other | {"recompute_activations"}
    idle |= _ZERO
    if args.frame != "DeepSeek":
        idle |= _DEEPSEEK
    return idle if args.moe_enable else idle | _EXPERTS


def problems(args: WorkloadArgs, target: str, given: frozenset[str]) -> list[RuleViolation]:
    if args.frame == "FSDP2":
        return [RuleViolation("frame FSDP2 is none of AICB's; --dialect framework has it", breakable=False)]
    if args.phase != TRAINING:
        return list(simai_inference.refused(args, target))
    found = [] if rules.blocked(args) else list(sizes.check(args))
    found += [*_silent(args, given), *_computation(args, target)]
    if args.frame == "DeepSpeed":
        found += _deepspeed(args, given)
    if args.frame == "collective_test":
        found += _collective(args, target)
    if target == "simai":
        found += _simai(args)
    return found


def _silent(args: WorkloadArgs, given: frozenset[str]) -> Iterator[RuleViolation]:
    grouped = args.moe_grouped_gemm and args.dtype != "bfloat16"
    if grouped or (args.dtype == "float16" and args.expert_model_parallel_size > 1):
        yield RuleViolation(
            f"dtype {args.dtype!r} does not go with {'moe_grouped_gemm' if grouped else 'expert parallelism'}; "
            "nearest: bfloat16",
            breakable=False,
        )
    elif args.dtype not in SIXTEEN_BIT:
        yield RuleViolation(
            f"dtype {args.dtype!r}: sizes are always those of 2-byte elements; allowed: {', '.join(SIXTEEN_BIT)}; "
            "nearest: bfloat16"
        )
    if args.context_parallel_size > 1:
        yield RuleViolation(
            f"context_parallel_size is {args.context_parallel_size}, but AICB splits nothing over context ranks; "
            "nearest: 1"
        )
    for name in ("overlap_grad_reduce", "overlap_version"):
        if name in given and getattr(args, name):
            yield RuleViolation(f"{name} has no effect: a workload has no notion of overlap; leave it out")


def _computation(args: WorkloadArgs, target: str) -> Iterator[RuleViolation]:
    if args.comp_filepath is None:
        return
    if not args.aiob_enable:
        yield RuleViolation(f"comp_filepath {args.comp_filepath} is not read without --aiob_enable; add it")
        return
    if args.frame == "collective_test" or (args.frame == "DeepSpeed" and target == "csv"):
        yield RuleViolation(f"comp_filepath {args.comp_filepath} is not used by frame {args.frame}; leave it out")
        return
    try:
        times = aiob.read(Path(args.comp_filepath))
    except CompFileError as error:
        yield RuleViolation(str(error), breakable=False)
        return
    others = times.other_shapes(args)
    if others:
        yield RuleViolation(others)
    if target == "csv" and times.gemms is not None:
        # Rows get their own times, not those of sections; a row without one is found when they are filled in.
        return
    deepseek = args.frame == "DeepSeek" and target == "simai"
    missing = times.missing(deepseek=deepseek)
    if missing:
        usable = deepseek and not times.missing(deepseek=False)
        consequence = "; with --break_rules their times are 0" if usable else ""
        yield RuleViolation(
            f"comp_filepath {args.comp_filepath} lacks the sections {', '.join(missing)}{consequence}", breakable=usable
        )


def _deepspeed(args: WorkloadArgs, given: frozenset[str]) -> Iterator[RuleViolation]:
    if args.amp_enabled and args.stage != 3:
        yield RuleViolation(
            f"amp_enabled with ZeRO stage {args.stage} ends AICB with an exception; nearest: --stage 3, or none",
            breakable=False,
        )
    if args.contiguous_gradients and args.stage != 2 and "contiguous_gradients" in given:
        yield RuleViolation(f"contiguous_gradients has no effect with stage {args.stage}; nearest: --stage 2")


def _collective(args: WorkloadArgs, target: str) -> Iterator[RuleViolation]:
    known = SIMAI_TESTED if target == "simai" else TESTED
    if args.test_comm not in known:
        yield RuleViolation(
            f"test_comm {args.test_comm!r} is no collective that can be tested; allowed: {', '.join(known)}",
            breakable=args.test_comm not in NO_ROW,
        )
    if target == "simai" and args.multi_all_reduce_enable:
        yield RuleViolation("multi_all_reduce_enable: AICB's micro test has no such mode", breakable=False)


def _simai(args: WorkloadArgs) -> Iterator[RuleViolation]:
    if args.frame == "collective_test":
        return
    if args.aiob_enable and args.comp_filepath is None:
        yield RuleViolation(
            "aiob_enable measures on a GPU, which is not done here; give a file of the command aiob as --comp_filepath",
            breakable=False,
        )
    if args.frame == "DeepSeek" and not args.moe_enable:
        yield RuleViolation("frame DeepSeek has no SimAI text without --moe_enable: AICB cannot do it", breakable=False)
    if args.frame == "DeepSpeed" and args.pipeline_model_parallel > 1:
        yield RuleViolation("there is no SimAI text for ZeRO with pipeline stages", breakable=False)
    if args.frame == "DeepSeek" and not args.aiob_enable:
        yield RuleViolation(
            "frame DeepSeek needs --aiob_enable and --comp_filepath: AICB cannot do it without", breakable=False
        )
    if args.epoch_num > 1 and args.frame != "DeepSpeed":
        yield RuleViolation(f"epoch_num is {args.epoch_num}, but AICB's SimAI text is one iteration; nearest: 1")
