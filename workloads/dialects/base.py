"""Defines the interface of a dialect."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workloads.job.parameters import WorkloadArgs
from workloads.job.rules import RuleViolation

if TYPE_CHECKING:  # the start of a command needs none of them
    from workloads.dialects.model import MockedModel
    from workloads.formats.simai import SimaiWorkload
    from workloads.formats.workload import Workload


@dataclass(frozen=True, slots=True)
class Deviation:
    """A difference between a dialect and the real framework."""

    name: str
    what: str


class Dialect(ABC):
    name: str
    deviations: tuple[Deviation, ...]

    @abstractmethod
    def workload(self, args: WorkloadArgs, model: "MockedModel | None" = None, pp_stage: int = 0) -> "Workload":
        """The workload of a rank in pipeline stage `pp_stage`. model: replaces the one that the parameters describe."""

    @abstractmethod
    def simai(self, args: WorkloadArgs) -> "SimaiWorkload":
        """The workload for the SimAI simulator.

        Raises:
            CompFileError: an AIOB file is unusable.
        """

    @abstractmethod
    def problems(self, args: WorkloadArgs, target: str, given: frozenset[str]) -> list[RuleViolation]:
        """Rules that only this dialect has. target: "csv" or "simai"; given: parameters the user set."""

    @abstractmethod
    def without_effect(self, args: WorkloadArgs, target: str) -> set[str]:
        """Parameters that change nothing in this workload; a user who sets one is told."""
