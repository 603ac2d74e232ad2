"""The dialect `framework`: what Megatron-core, FSDP2 or DeepSpeed itself sends, held to recorded traces call by call.

The loss over data-parallel ranks and the distribution of tokens are the training script's and have no rows.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from workloads.dialects.base import Deviation, Dialect
from workloads.job.errors import ParameterError
from workloads.job.parameters import WorkloadArgs
from workloads.job.rules import RuleViolation

if TYPE_CHECKING:  # the start of a command needs none of them
    from workloads.dialects.model import MockedModel
    from workloads.formats.simai import SimaiWorkload
    from workloads.formats.workload import Workload
    from workloads.rows.blocks import Block
    from workloads.rows.ops import LogItem


class FrameworkDialect(Dialect):
    name = "framework"
    deviations: tuple[Deviation, ...] = ()

    def workload(self, args: WorkloadArgs, model: "MockedModel | None" = None, pp_stage: int = 0) -> "Workload":
        """The workload of the first rank of a pipeline stage: pp_rank if that is set, else `pp_stage`."""
        from workloads.dialects.framework.rows import workload_rows
        from workloads.formats.workload import Workload

        if model is not None:
            raise ParameterError(
                ["the dialect framework has no place for a model of your own; --dialect aicb (dialect='aicb') does"]
            )
        rows: Block[LogItem] = workload_rows(args, _first_rank(args, pp_stage))
        return Workload(rows, args)

    def simai(self, args: WorkloadArgs) -> "SimaiWorkload":
        """One iteration of the first rank of stage pp_rank, 0 if that is not set."""
        from workloads.compute import aiob
        from workloads.dialects.framework import simai_text

        measured = aiob.read(Path(args.comp_filepath)) if args.comp_filepath else None
        return simai_text.generate(args, _first_rank(args, 0), measured)

    def problems(self, args: WorkloadArgs, target: str, given: frozenset[str]) -> list[RuleViolation]:
        from workloads.dialects.framework import rules

        return rules.problems(args, target)

    def without_effect(self, args: WorkloadArgs, target: str) -> set[str]:
        from workloads.dialects.framework import effects

        return effects.without_effect(args)


def _first_rank(args: WorkloadArgs, pp_stage: int) -> int:
    stage = args.pp_rank if args.pp_rank >= 0 else pp_stage
    return stage * (args.world_size // args.pipeline_model_parallel)


__all__ = ["FrameworkDialect"]
