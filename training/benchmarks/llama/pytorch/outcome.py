"""Outcome of the Llama benchmark: that of the shared trainer, and its own evaluation."""

from training.benchmarks.driver.training.outcome import TrainingOutcome

OUTCOME = TrainingOutcome(unit="ips", final={"loss": "lower"})
