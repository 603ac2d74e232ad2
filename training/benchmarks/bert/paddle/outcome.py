"""Outcome of BERT in Paddle: that of BERT in any framework."""

from training.benchmarks.bert.outcome import bert_outcome
from training.benchmarks.bert.paddle.config import Config

OUTCOME = bert_outcome(Config)
