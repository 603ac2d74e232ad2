"""Outcome of the BERT benchmark in any framework: the trainings' common one, with BERT's evaluation."""

from training.benchmarks.bert.settings import BertSettings
from training.benchmarks.driver.training.measuring.outcome import TrainingOutcome


def bert_outcome(settings: type[BertSettings]) -> TrainingOutcome:
    """The outcome of the framework with these settings."""
    return TrainingOutcome(unit="sps", final={"loss": "lower", "mlm_accuracy": "higher"}, settings=settings)
