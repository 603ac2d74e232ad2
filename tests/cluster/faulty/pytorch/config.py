"""Settings of the benchmark that breaks."""

from pydantic import Field

from ..faults import Faults

ENTRY_MODULE = "training.benchmarks.faulty"


class Config(Faults):
    """How long the ranks work, and whether side by side."""

    steps: int = Field(50, ge=1, description="steps of all ranks")
    pause: float = Field(0.02, ge=0, description="how long a step sleeps, in seconds")
    together: bool = Field(True, description="whether a step is an all_reduce, by which peers learn of a dead rank")
