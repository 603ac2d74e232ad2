"""Settings of the light benchmark. Its ranks need no torch: they start in a tenth of the CPU time of others."""

from pydantic import Field

from ...faulty.faults import Faults

ENTRY_MODULE = "training.benchmarks.light"
LAUNCHER = "processes"


class Config(Faults):
    """How long the ranks are at work, each for itself."""

    steps: int = Field(5, ge=1, description="steps of each rank")
    pause: float = Field(0.02, ge=0, description="how long a step sleeps, in seconds")
    lines: int = Field(0, ge=0, description="lines that the rank writes before it breaks")
    waits: bool = Field(False, description="whether a rank ends only once its log folder has a file named GO_ON")
