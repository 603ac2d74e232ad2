"""Settings of the benchmark that breaks."""

from typing import Literal

from pydantic import Field

from protocol.case_config import CaseConfig

ENTRY_MODULE = "training.benchmarks.faulty"


class Config(CaseConfig):
    """Which rank breaks, how, and whether it does so every time."""

    fault: Literal[
        "none", "exit", "segfault", "memory", "leave", "vanish", "return", "stop", "hang", "hostile", "odd", "adds"
    ] = Field("none", description="how the rank ends, stands still, or what it leaves for the head node")
    rank: int = Field(3, ge=0, description="global rank that breaks")
    unless: str | None = Field(None, description="file that keeps it from breaking; the first time makes it")
    steps: int = Field(50, ge=1, description="steps of all ranks")
    after: int = Field(25, ge=1, description="the step at whose end the rank breaks")
    pause: float = Field(0.02, ge=0, description="how long a step sleeps, in seconds")
    together: bool = Field(True, description="whether a step is an all_reduce, by which peers learn of a dead rank")
    prints: bool = Field(False, description="whether the other ranks print on from then, from a thread of their own")
    lines: int = Field(60, ge=0, description="lines that the rank writes before it breaks")
