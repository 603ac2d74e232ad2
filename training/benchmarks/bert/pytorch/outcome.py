"""Outcome of BERT in PyTorch: that of BERT in any framework."""

from training.benchmarks.bert.outcome import OUTCOME

__all__ = ["OUTCOME"]
