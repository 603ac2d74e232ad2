"""The dialect `aicb`: the output of AICB 2.1, byte for byte, with its known errors (see `deviations`)."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from workloads.compute import aiob
from workloads.dialects.aicb.deviations import DEVIATIONS
from workloads.dialects.base import Dialect
from workloads.dialects.model import MockedModel
from workloads.formats.simai import SimaiWorkload
from workloads.formats.workload import Workload
from workloads.job.errors import CompFileError
from workloads.job.parameters import TRAINING, WorkloadArgs
from workloads.job.rules import RuleViolation
from workloads.rows.ops import CommType, Gemm, LogItem, gemm_of, gemms_of


class AicbDialect(Dialect):
    name = "aicb"
    deviations = DEVIATIONS

    def workload(self, args: WorkloadArgs, model: MockedModel | None = None, pp_stage: int = 0) -> Workload:
        from workloads.dialects.aicb.trainer import TrainingLoop

        stated, args = args, _undivided(args)
        trainer: TrainingLoop
        if args.frame == "DeepSpeed":
            from workloads.dialects.aicb.zero import Zero12Trainer
            from workloads.dialects.aicb.zero3 import Zero3Trainer

            trainer = Zero3Trainer(args, model) if args.stage == 3 else Zero12Trainer(args, model)
        elif args.frame == "collective_test":
            from workloads.dialects.aicb.collective import CollectiveTrainer

            trainer = CollectiveTrainer(args)
        else:
            from workloads.dialects.aicb.megatron import MegatronTrainer

            trainer = MegatronTrainer(args, model, pp_stage)
        workload = Workload(trainer.rows(), stated)
        if args.aiob_enable and args.comp_filepath and args.frame in ("Megatron", "DeepSeek"):
            return _with_times(workload, aiob.read(Path(args.comp_filepath)))
        return workload

    def simai(self, args: WorkloadArgs) -> SimaiWorkload:
        args = _undivided(args)
        if args.frame == "collective_test":
            from workloads.dialects.aicb import simai_micro

            return simai_micro.generate(args)
        if args.phase != TRAINING:
            from workloads.dialects.aicb import simai_inference

            return simai_inference.generate(args)
        times = aiob.read(Path(args.comp_filepath)) if args.aiob_enable and args.comp_filepath else None
        if args.frame == "DeepSpeed":
            from workloads.dialects.aicb import simai_zero

            return simai_zero.generate(args, times)
        from workloads.dialects.aicb import simai_megatron

        return simai_megatron.generate(args, times)

    def problems(self, args: WorkloadArgs, target: str, given: frozenset[str]) -> list[RuleViolation]:
        from workloads.dialects.aicb import rules

        return rules.problems(args, target, given)

    def without_effect(self, args: WorkloadArgs, target: str) -> set[str]:
        from workloads.dialects.aicb import rules

        return rules.without_effect(args, target)


def _undivided(args: WorkloadArgs) -> WorkloadArgs:
    """The parameters as AICB takes them: it divides nothing over context ranks."""
    return replace(args, context_parallel_size=1)


def _with_times(workload: Workload, times: aiob.CompFile) -> Workload:
    """Fill in the computation rows: each GEMM its own time, if the file has it.

    Deviation `aiob_whole_blocks`: with AICB's description file each GEMM gets the time of its whole block.
    """
    if times.gemms is not None:
        return _with_times_of_rows(workload, times.path, times.gemms)
    recompute = workload.args is not None and workload.args.recompute_activations
    blocks = {"attention": times.attention_ns(recompute=recompute), "mlp": times.mlp_ns()}

    def fill(item: LogItem) -> LogItem:
        if item.comm_type is CommType.computation:
            for block, elapsed in blocks.items():
                if block in item.stage:
                    return replace(item, elapsed_time=elapsed)
        return item

    return Workload(workload.rows.map(fill), workload.args)


def _with_times_of_rows(workload: Workload, path: Path, times: Mapping[Gemm, float]) -> Workload:
    lacking = [gemm for gemm in gemms_of(workload.rows.tally()) if gemm not in times]
    if lacking:
        raise CompFileError(
            f"{path} lacks {len(lacking)} of this workload's matrix products, the first is {lacking[0].op} "
            f"{lacking[0].shape}: it was measured for another job"
        )

    def fill(item: LogItem) -> LogItem:
        gemm = gemm_of(item)
        return item if gemm is None else replace(item, elapsed_time=round(times[gemm]))

    return Workload(workload.rows.map(fill), workload.args)


__all__ = ["AicbDialect"]
