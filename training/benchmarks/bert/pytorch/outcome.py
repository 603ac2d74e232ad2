"""Outcome of the BERT benchmark: that of the shared trainer, and its own evaluation."""

from training.benchmarks.driver.training.outcome import TrainingOutcome

OUTCOME = TrainingOutcome(unit="sps", final={"loss": "lower", "mlm_accuracy": "higher"})
