"""Generates workloads from parameters: checks the rules, then calls the dialect."""

from typing import TYPE_CHECKING

from workloads import dialects
from workloads.dialects.base import Dialect
from workloads.job import rules
from workloads.job.errors import ParameterError
from workloads.job.parameters import DEFAULTS, WorkloadArgs

if TYPE_CHECKING:  # the start of a command needs none of them
    from workloads.dialects.model import MockedModel
    from workloads.formats.simai import SimaiWorkload
    from workloads.formats.workload import Workload

BREAK_HINT = "--break_rules writes what {dialect} would write all the same"


def generate(
    args: WorkloadArgs,
    *,
    model: "MockedModel | None" = None,
    dialect: str = dialects.DEFAULT_DIALECT,
    break_rules: bool = False,
    pp_stage: int = 0,
) -> "Workload":
    """The workload of one rank.

    model: a model of your own instead of the one that the parameters describe; for frame DeepSpeed any `MockedModel`,
    for Megatron one whose modules have `forward` and `backward`. pp_stage: the rank's pipeline stage. break_rules:
    generate also if rules are broken, as long as the dialect's output is well defined.

    Raises:
        ParameterError: rules are broken; the message lists all of them.
    """
    chosen = dialects.get(dialect)
    check(args, chosen, "csv", break_rules=break_rules)
    if not 0 <= pp_stage < args.pipeline_model_parallel:
        raise ParameterError([f"pp_stage {pp_stage} is none of the stages 0 to {args.pipeline_model_parallel - 1}"])
    if model is not None and args.frame == "collective_test":
        raise ParameterError(["frame collective_test has no model"])
    return chosen.workload(args, model, pp_stage)


def simai(args: WorkloadArgs, *, dialect: str = dialects.DEFAULT_DIALECT, break_rules: bool = False) -> "SimaiWorkload":
    """The SimAI text of one iteration.

    Raises:
        ParameterError: rules are broken; the message lists all of them.
    """
    chosen = dialects.get(dialect)
    check(args, chosen, "simai", break_rules=break_rules)
    return chosen.simai(args)


def check(args: WorkloadArgs, dialect: Dialect, target: str, *, break_rules: bool = False) -> None:
    """Check every rule of the parameters, those of the dialect and those of any dialect.

    Raises:
        ParameterError: a rule is broken; with `break_rules` only a rule that the dialect cannot do without.
    """
    given = frozenset(name for name, value in args.to_dict().items() if value != getattr(DEFAULTS, name))
    found = [*rules.check(args), *dialect.problems(args, target, given)]
    if break_rules:
        found = [problem for problem in found if not problem.breakable]
    if found:
        texts = [problem.text for problem in found]
        if not break_rules and all(problem.breakable for problem in found):
            texts.append(BREAK_HINT.format(dialect=dialect.name))
        raise ParameterError(texts)
