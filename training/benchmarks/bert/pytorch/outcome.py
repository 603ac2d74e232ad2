"""Outcome of BERT in PyTorch: that of BERT in any framework."""

from training.benchmarks.bert.outcome import bert_outcome
from training.benchmarks.bert.pytorch.config import Config

OUTCOME = bert_outcome(Config)
