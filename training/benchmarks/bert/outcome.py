"""Outcome of the BERT benchmark in any framework: the trainings' common one, with BERT's evaluation."""

from training.benchmarks.driver.training.measuring.outcome import TrainingOutcome

OUTCOME = TrainingOutcome(unit="sps", final={"loss": "lower", "mlm_accuracy": "higher"})
