"""Outcome of the CPM benchmark: the shared trainer's, with CPM's evaluation."""

from training.benchmarks.cpm.pytorch.config import Config
from training.benchmarks.driver.training.measuring.outcome import TrainingOutcome

OUTCOME = TrainingOutcome(
    unit="ips", final={"loss": "lower", "embedding_average": "higher", "mlm_accuracy": "higher"}, settings=Config
)
