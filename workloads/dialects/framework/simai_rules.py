"""Refuses what SimAI's text has no place for: it knows one size of tensor and of data-parallel groups."""

from collections.abc import Iterator
from pathlib import Path

from workloads.compute import aiob
from workloads.job.errors import CompFileError
from workloads.job.parameters import TRAINING, WorkloadArgs


def simai_text(args: WorkloadArgs) -> Iterator[str]:
    """Rules of SimAI's text that a valid job breaks."""
    tp, etp = args.tensor_model_parallel_size, args.expert_tensor_parallel_size
    if args.moe_enable and etp not in (None, tp):
        yield (
            f"expert_tensor_parallel_size is {etp}, but SimAI's text has one tensor-parallel size, {tp}, for all; "
            f"nearest: {tp}"
        )
    if args.replicate > 1:
        yield f"replicate is {args.replicate}, but SimAI's text has one data-parallel group; nearest: 1"
    if args.context_parallel_size > 1:
        yield (
            f"context_parallel_size is {args.context_parallel_size}, but SimAI's text has no context-parallel group; "
            "nearest: 1, or --dialect aicb --break_rules, which splits nothing"
        )
    if args.epoch_num > 1:
        yield f"epoch_num is {args.epoch_num}, but SimAI's text is one iteration; nearest: 1"
    if args.computation_enable:
        yield "computation_enable: SimAI's text always has computation; leave it out"
    if args.phase != TRAINING and (args.comp_filepath is not None or args.aiob_enable):
        yield f"comp_filepath and aiob_enable: an AIOB file has times of training, none of phase {args.phase}"
        return
    yield from _measured(args)


def _measured(args: WorkloadArgs) -> Iterator[str]:
    if args.aiob_enable != (args.comp_filepath is not None):
        yield "aiob_enable and comp_filepath go together: times are read from a file, nothing is measured here"
    if args.comp_filepath is None:
        return
    if args.frame != "Megatron":
        yield f"comp_filepath {args.comp_filepath} holds times of Megatron's modules; frame {args.frame} has others"
        return
    try:
        times = aiob.read(Path(args.comp_filepath))
    except CompFileError as error:
        yield str(error)
        return
    others = times.other_shapes(args)
    if others:
        yield others
    missing = times.missing(deepseek=args.multi_latent_attention)
    if missing:
        yield f"comp_filepath {args.comp_filepath} lacks the sections {', '.join(missing)}"
