"""Settings of the training that may lie: those of every training, and its lie."""

from typing import Literal

from pydantic import Field

from training.benchmarks.driver.training.settings.settings import Target, TrainingConfig

ENTRY_MODULE = "training.benchmarks.liar"
LAUNCHER = "processes"


class Config(TrainingConfig):
    """What it trains, and how it lies."""

    lie: Literal["none", "steps", "clock", "other clock", "whole clock", "figures"] = Field(
        "none", description="what its log does not bear out"
    )
    pause: float = Field(0.002, ge=0, description="how long a step takes, in seconds")
    target_loss: float | None = Field(None, gt=0, description="mean loss per token to reach")

    def targets(self) -> tuple[Target, ...]:
        bound = self.target_loss
        return () if bound is None else (Target(metric="eval_loss", bound=bound, at_least=False),)

    def parameters(self) -> int:
        return 100

    def tokens_per_sample(self) -> int:
        return 16

    def flops_per_sample(self) -> int:
        return 1000
