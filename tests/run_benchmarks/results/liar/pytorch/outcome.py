"""The half of it that the controller reads."""

from training.benchmarks.driver.training.measuring.outcome import TrainingOutcome

from .config import Config

OUTCOME = TrainingOutcome(unit="ips", final={"loss": "lower"}, settings=Config)
