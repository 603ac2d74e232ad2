"""Settings of the gauge, with the metrics that stand for an outcome.py."""

from protocol.outcome import Metric

from ..plain.config import LAUNCHER as LAUNCHER
from ..plain.config import Config as Config

ENTRY_MODULE = "training.benchmarks.gauge.bare.measure"
METRICS = (Metric(name="turns(tps)", unit="turns/s", better="higher", is_key=True),)
