"""Outcome of the CPM benchmark: that of the shared trainer, and its own evaluation."""

from training.benchmarks.driver.training.outcome import TrainingOutcome

OUTCOME = TrainingOutcome(unit="ips", final={"loss": "lower", "embedding_average": "higher"})
