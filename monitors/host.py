"""CPU and memory of the host, from the kernel's own counters. In a container these are the host's, not the cgroup's."""

from collections.abc import Sequence
from typing import ClassVar

import psutil

from monitors.sampler import Sampler, Values


class CpuSampler(Sampler):
    """Utilisation since the sample before, in percent of all cores (0 to 100)."""

    source = "cpu"
    log = "cpu_monitor.log"
    columns: ClassVar[Sequence[str]] = ("utilization_percent",)

    def __init__(self, *, per_core: bool) -> None:
        self._per_core = per_core
        psutil.cpu_percent(percpu=True)  # the interval of the first sample begins here

    def sample(self) -> Values:
        """{"utilization_percent": mean over cores} and, if asked for, "cores_percent": one value a core."""
        cores = psutil.cpu_percent(percpu=True)
        values: dict[str, float | list[float]] = {"utilization_percent": round(sum(cores) / len(cores), 2)}
        if self._per_core:
            values["cores_percent"] = cores
        return values


class MemorySampler(Sampler):
    """Memory in use: what is neither free nor reclaimable (total minus MemAvailable of /proc/meminfo)."""

    source = "mem"
    log = "mem_monitor.log"
    columns: ClassVar[Sequence[str]] = ("used_percent",)

    def sample(self) -> Values:
        """{"used_percent", "used_bytes", "total_bytes"}"""
        memory = psutil.virtual_memory()
        used = memory.total - memory.available
        return {
            "used_percent": round(100 * used / memory.total, 2),
            "used_bytes": used,
            "total_bytes": memory.total,
        }
