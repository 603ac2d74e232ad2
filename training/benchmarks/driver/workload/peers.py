"""Defines what a framework's process group offers to code that knows no framework."""

from typing import Any, Protocol

from training.benchmarks.driver.workload.placement import Placement


class Peers(Protocol):
    """The ranks of a run; all of them call the same method at the same time."""

    @property
    def placement(self) -> Placement:
        """The place of this rank."""
        ...

    def gathered(self, value: Any) -> list[Any]:
        """The value of every rank, by rank."""
        ...

    def all_true(self, value: bool) -> bool:
        """Whether the value of every rank is true."""
        ...
