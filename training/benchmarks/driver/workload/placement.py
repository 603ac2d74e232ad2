"""Reads a rank's place among all ranks from the environment. Needs no torch."""

import os
from dataclasses import dataclass
from typing import Self


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


def _number(name: str) -> int:
    text = os.environ.get(name)
    if text is None:
        raise ProcessGroupError(f"{name} is not set: start the workload with torchrun or driver.launch")
    if not text.isdecimal():
        raise ProcessGroupError(f"{name}={text!r} is not a number; torchrun sets it")
    return int(text)
