"""Outcome of the Llama benchmark: the shared trainer's, with Llama's evaluation."""

from training.benchmarks.driver.training.measuring.outcome import TrainingOutcome
from training.benchmarks.llama.pytorch.config import Config

OUTCOME = TrainingOutcome(unit="ips", final={"loss": "lower"}, settings=Config)
