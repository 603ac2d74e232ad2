"""Settings of the gauge. Its ranks need no torch."""

from pydantic import Field

from protocol.case_config import CaseConfig

ENTRY_MODULE = "training.benchmarks.gauge.plain.measure"
LAUNCHER = "processes"


class Config(CaseConfig):
    """What the gauge is to show."""

    turns_per_second: float = Field(100.0, gt=0, description="what it measures")
