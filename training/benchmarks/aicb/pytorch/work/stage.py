"""The workload of one pipeline stage, and the groups of a job by its parallel sizes. No torch, no numpy."""

from dataclasses import dataclass

from workloads.formats.workload import Workload
from workloads.job.errors import AicbError
from workloads.job.groups import RankGroups
from workloads.job.parameters import WorkloadArgs

GENERATED = "the generated workload"


@dataclass(frozen=True, slots=True)
class StageWorkload:
    """The rows of one pipeline stage as its first rank, `own`, has them; `name` says where they come from."""

    workload: Workload
    groups: RankGroups
    stage: int
    own: int
    name: str
    frame: str


def rank_groups(name: str, world_size: int, tp: int, pp: int, ep: int, *, is_exact: bool = True) -> RankGroups:
    """The groups of these sizes. is_exact: ep has to divide dp; else the rows may state the ranks of their experts.

    Raises:
        AicbError: the sizes leave ranks out; the message begins with `name`.
    """
    try:
        if not is_exact and (world_size // (tp * pp)) % ep:
            ep = 1  # Megatron lays experts over tp, too: the rows state their ranks.
        return RankGroups(world_size=world_size, tp=tp, pp=pp, ep=ep)
    except ValueError as error:
        raise AicbError(f"{name}: {error}: ranks would belong to no group") from None


def groups_of(args: WorkloadArgs, dialect: str) -> RankGroups:
    """The groups of a generated workload.

    Raises:
        AicbError: its sizes leave ranks out.
    """
    return rank_groups(
        GENERATED,
        args.world_size,
        args.tensor_model_parallel_size,
        args.pipeline_model_parallel,
        args.expert_model_parallel_size if args.expert_tensor_parallel_size is None else 1,
        is_exact=dialect == "aicb",
    )
