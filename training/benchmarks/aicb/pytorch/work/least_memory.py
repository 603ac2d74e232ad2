"""Estimates the least memory of a rank before any host is asked; the controller plans with it. No torch, no numpy."""

from dataclasses import replace
from fractions import Fraction

from training.benchmarks.aicb.pytorch.work.calls import Caller
from training.benchmarks.aicb.pytorch.work.footprint import footprint
from training.benchmarks.aicb.pytorch.work.stage import GENERATED, StageWorkload, groups_of
from workloads import api
from workloads.job.parameters import WorkloadArgs


def least_bytes(args: WorkloadArgs, dialect: str, scale: Fraction) -> int:
    """Bytes of the largest input and output together of the pipeline stage that needs the least; of its first rank.

    Every rank needs so much at least: calls that overlap, and the operands of a replay, come on top of it.

    Raises:
        AicbError: the workload cannot be generated, or a row cannot be called.
    """
    return min(_stage_bytes(args, dialect, scale, stage) for stage in range(args.pipeline_model_parallel))


def _stage_bytes(args: WorkloadArgs, dialect: str, scale: Fraction, stage: int) -> int:
    groups = groups_of(args, dialect)
    own = stage * (args.world_size // groups.pp)
    # One iteration has the sizes of all.
    workload = api.generate(replace(args, epoch_num=1), dialect=dialect, pp_stage=stage)
    of = StageWorkload(workload, groups, stage, own, GENERATED, args.frame)
    caller = Caller(of, own, args.world_size, scale)
    calls = (caller.call(item) for item in workload.rows.tally_kinds() if item.is_communication)
    return max((footprint(call, own).total for call in calls), default=0)
