"""Checks parameters independently of the dialect; a broken rule states the value, what is allowed and the nearest."""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from math import prod

from workloads.job.parameters import FRAMES, WORKLOAD_PHASES, ZERO_STAGES, WorkloadArgs
from workloads.rows.ranks import MOST_RANKS

POSITIVE = ("world_size", "tensor_model_parallel_size", "pipeline_model_parallel", "expert_model_parallel_size",
            "context_parallel_size")  # fmt: skip
MODEL_POSITIVE = ("micro_batch", "hidden_size", "num_layers", "seq_length", "num_attention_heads", "ffn_hidden_size",
                  "vocab_size", "max_position_embeddings", "make_vocab_size_divisible_by")  # fmt: skip
DEEPSEEK_SIZES = ("n_dense_layers", "n_shared_expert", "q_lora_rank", "kv_lora_rank", "qk_rope_dim", "qk_nope_dim",
                  "v_head_dim")  # fmt: skip


MOST_ROWS = 2**50
"""Of layers, iterations or sizes in all: each has fewer than 2**13 rows, and rows are counted in 63 bits."""
FARTHEST = 1_000_000
"""How far a divisor is looked for: of a large prime, a step for each number below it would take days."""


@dataclass(frozen=True, slots=True)
class RuleViolation:
    """A broken rule. breakable: the dialect still has a well-defined output, which --break_rules requests."""

    text: str
    breakable: bool = True


def check(args: WorkloadArgs) -> list[RuleViolation]:
    """Every broken rule. If a size is not positive, the rules that would divide by it are skipped."""
    problems = list(_signs(args))
    if problems:
        return problems
    problems += _cluster(args)
    if any(not problem.breakable for problem in problems):
        return problems
    if args.frame == "collective_test":
        return problems + list(_collective(args))
    return problems + list(_batch(args))


def past_positions(name: str, tokens: int, limit: int) -> str:
    """Warns of a sequence past the positions of a model, "": it is not, or the limit is unknown (0)."""
    if not 0 < limit < tokens:
        return ""
    how = "is not this model unless rotary positions are scaled; a learned table ends there"
    asked = f"{limit} tokens (max_position_embeddings), {tokens} are asked"
    return f"{name} has positions for {asked}: what is trained or read there {how}"


def blocked(args: WorkloadArgs) -> bool:
    """Whether a broken rule leaves nothing that further rules could be checked on."""
    return any(_signs(args)) or any(not problem.breakable for problem in _cluster(args))


def divisor_near(number: int, wanted: int) -> str:
    """The divisors of `number` nearest to `wanted`, as text; 1 and the number where none is within FARTHEST."""
    low, high = min(wanted, number), max(wanted, 1)
    below = next((value for value in range(low, max(0, low - FARTHEST), -1) if number % value == 0), 1)
    above = next((value for value in range(high, min(number, high + FARTHEST)) if number % value == 0), number)
    return str(below) if below == above else f"{below} or {above}"


def multiple_near(number: int, step: int) -> str:
    """The positive multiples of `step` nearest to `number`, as text."""
    below = number // step * step
    return f"{below} or {below + step}" if below > 0 else str(step)


def sequence_step(tp: int, cp: int, *, split: bool) -> int:
    """The tokens that a sequence is a multiple of: two chunks a context-parallel rank, with sequence parallelism
    (`split`) each split over the tensor-parallel ranks.
    """
    return (2 * cp if cp > 1 else 1) * (tp if split else 1)


def _signs(args: WorkloadArgs) -> Iterator[RuleViolation]:
    if args.frame not in FRAMES:
        near = get_close_matches(args.frame, FRAMES, 1, cutoff=0.0)
        yield RuleViolation(f"frame {args.frame!r} is none of {', '.join(FRAMES)}; nearest: {near[0]}", breakable=False)
        return
    if args.stage not in ZERO_STAGES:
        nearest = min(ZERO_STAGES, key=lambda stage: abs(stage - args.stage))
        yield RuleViolation(
            f"stage is {args.stage}; ZeRO has the stages 1, 2 and 3, nearest: {nearest}", breakable=False
        )
    if args.phase not in WORKLOAD_PHASES:
        near = get_close_matches(args.phase, WORKLOAD_PHASES, 1, cutoff=0.0)
        allowed = ", ".join(WORKLOAD_PHASES)
        yield RuleViolation(f"phase {args.phase!r} is none of {allowed}; nearest: {near[0]}", breakable=False)
    at_least_one = list(POSITIVE)
    at_least_zero: list[str] = []
    if args.frame == "collective_test":
        at_least_one += ["begin_size", "end_size"]
    else:
        at_least_one += MODEL_POSITIVE
    if args.frame == "DeepSeek":
        at_least_zero += DEEPSEEK_SIZES
    if args.moe_enable or args.frame == "DeepSeek":
        at_least_zero += ["num_experts", "moe_router_topk"]
    for names, least in ((at_least_one, 1), (at_least_zero, 0)):
        for name in names:
            value = getattr(args, name)
            if value is not None and value < least:
                yield RuleViolation(
                    f"{name} is {value}; it must be at least {least}, nearest: {least}", breakable=False
                )
    if args.world_size > MOST_RANKS:
        yield RuleViolation(
            f"world_size is {args.world_size}; it must be at most {MOST_RANKS}, nearest: {MOST_RANKS}", breakable=False
        )


def _cluster(args: WorkloadArgs) -> Iterator[RuleViolation]:
    tp, pp, world = args.tensor_model_parallel_size, args.pipeline_model_parallel, args.world_size
    sizes, names = [tp, pp], ["tensor_model_parallel_size", "pipeline_model_parallel"]
    if args.context_parallel_size > 1:
        sizes, names = [*sizes, args.context_parallel_size], [*names, "context_parallel_size"]
    if world % prod(sizes):
        yield RuleViolation(
            f"world_size {world} must be a multiple of {' * '.join(names)} "
            f"= {' * '.join(map(str, sizes))} = {prod(sizes)}; nearest: {multiple_near(world, prod(sizes))}",
            breakable=False,
        )
    if args.frame == "collective_test":
        layers, counted = args.iter_num, "iter_num"
    else:
        batches = max(1, args.num_microbatches) if args.data_parallel_size else 1
        layers, counted = args.num_layers * batches, "num_layers * micro-batches of a rank"
    if args.epoch_num * layers > MOST_ROWS:
        yield RuleViolation(
            f"epoch_num {args.epoch_num} * {counted} {layers} are more than a workload holds, {MOST_ROWS}; "
            f"nearest epoch_num: {max(1, MOST_ROWS // max(1, layers))}",
            breakable=False,
        )
    if args.epoch_num < 1:
        yield RuleViolation(f"epoch_num is {args.epoch_num}; at least one iteration is needed, nearest: 1")


def _batch(args: WorkloadArgs) -> Iterator[RuleViolation]:
    step = args.data_parallel_size * args.micro_batch
    if args.global_batch < 1 or args.global_batch % step:
        yield RuleViolation(
            f"global_batch {args.global_batch} must be a multiple of the {args.data_parallel_size} data-parallel ranks "
            f"* micro_batch {args.micro_batch} = {step}; nearest: {multiple_near(args.global_batch, step)}"
        )


def _collective(args: WorkloadArgs) -> Iterator[RuleViolation]:
    if args.end_size < args.begin_size:
        yield RuleViolation(
            f"end_size {args.end_size} must be at least begin_size {args.begin_size}; nearest: {args.begin_size}"
        )
    if args.iter_num < 1:
        yield RuleViolation(f"iter_num is {args.iter_num}; it must be at least 1, nearest: 1")
