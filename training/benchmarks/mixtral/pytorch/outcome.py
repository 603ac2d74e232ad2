"""Outcome of the Mixtral benchmark: the shared trainer's, with LLaMA's evaluation."""

from training.benchmarks.driver.training.measuring.outcome import TrainingOutcome
from training.benchmarks.mixtral.pytorch.config import Config

OUTCOME = TrainingOutcome(unit="ips", final={"loss": "lower"}, settings=Config)
