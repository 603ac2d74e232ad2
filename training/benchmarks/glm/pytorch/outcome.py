"""Outcome of the GLM benchmark: the shared trainer's, with GLM's evaluation."""

from training.benchmarks.driver.training.measuring.outcome import TrainingOutcome
from training.benchmarks.glm.pytorch.config import Config

OUTCOME = TrainingOutcome(unit="ips", final={"loss": "lower", "accuracy": "higher"}, settings=Config)
