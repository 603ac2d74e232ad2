"""A database of measured compute times: what a kernel took on a device, and an estimate where nobody has measured."""

from workloads.compute.database import load, merge
from workloads.compute.lookup import Answer, ComputeTimes
from workloads.compute.measurement import ComputeTime

__all__ = ["Answer", "ComputeTime", "ComputeTimes", "load", "merge"]
