"""Outcome of BERT in Paddle: that of BERT in any framework."""

from training.benchmarks.bert.outcome import OUTCOME

__all__ = ["OUTCOME"]
