"""Reads a rank's place among all ranks from the environment, and says what its process group offers.

Needs no torch.
"""

import os
from dataclasses import dataclass
from typing import Any, Protocol, Self


class ProcessGroupError(Exception):
    """The process group cannot be opened here; the message says what is missing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """This process's place among all processes, as torchrun sets it in the environment."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    nnodes: int

    @classmethod
    def from_environment(cls) -> Self:
        """The placement in torchrun's environment variables.

        Raises:
            ProcessGroupError: a variable is missing or no number.
        """
        return cls(
            rank=_number("RANK"),
            world_size=_number("WORLD_SIZE"),
            local_rank=_number("LOCAL_RANK"),
            local_world_size=_number("LOCAL_WORLD_SIZE"),
            nnodes=_number("GROUP_WORLD_SIZE"),
        )


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


def _number(name: str) -> int:
    text = os.environ.get(name)
    if text is None:
        raise ProcessGroupError(f"{name} is not set: start the workload with torchrun or driver.launch")
    if not text.isdecimal():
        raise ProcessGroupError(f"{name}={text!r} is not a number; torchrun sets it")
    return int(text)
