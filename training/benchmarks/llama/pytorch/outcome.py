"""Outcome of the Llama benchmark: the shared trainer's, with Llama's evaluation."""

from training.benchmarks.driver.training.measuring.outcome import TrainingOutcome

OUTCOME = TrainingOutcome(unit="ips", final={"loss": "lower"})
