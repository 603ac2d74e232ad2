"""A database of measured compute times: what a kernel took on a device, and an estimate where nobody has measured."""

from training.benchmarks.aicb.compute.database import load, merge
from training.benchmarks.aicb.compute.lookup import Answer, ComputeTimes
from training.benchmarks.aicb.compute.measurement import ComputeTime

__all__ = ["Answer", "ComputeTime", "ComputeTimes", "load", "merge"]
