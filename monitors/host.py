"""Samples CPU and memory of the host from the kernel's counters, which show the host even in a container."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

import psutil

from monitors.sampler import Sampler, Unavailable, Values

FREQUENCY_CORES, FREQUENCY_PERIOD_S = 8, 5.0


class CpuSampler(Sampler):
    """Utilization since the last sample, in percent of all cores (0 to 100)."""

    source = "cpu"
    log = "cpu_monitor.log"
    columns: ClassVar[Sequence[str]] = ("utilization_percent",)

    def __init__(self, *, per_core: bool) -> None:
        self._per_core = per_core
        self._last = _core_times()  # the interval of the first sample begins here

    def sample(self) -> Values:
        """{"utilization_percent": mean over cores, "process_s", "cores", "steal_percent"}, on demand "cores_percent".

        `process_s`: seconds of all processes since boot, over all cores, without interrupts. `steal_percent`: time that
        the hypervisor gave to others, in percent of all cores.
        """
        times = _core_times()
        cores = [_percent(before, after) for before, after in zip(self._last, times, strict=False)]
        steal = _steal_percent(self._last, times)
        self._last = times
        values: dict[str, float | list[float]] = {
            "utilization_percent": round(sum(cores) / len(cores), 2) if cores else 0.0,
            "process_s": round(sum(each.processes for each in times), 2),
            "cores": len(times),
            "steal_percent": steal,
        }
        if self._per_core:
            values["cores_percent"] = cores
        return values


class _CoreTimes(NamedTuple):
    """Seconds of one core since the boot."""

    total: float
    idle: float
    processes: float
    steal: float


def _core_times() -> list[_CoreTimes]:
    """Times of each core. A guest's time is part of user and nice; what the hypervisor took is not idle."""
    return [
        _CoreTimes(
            total=each.user + each.nice + each.system + each.idle + each.iowait + each.irq + each.softirq + each.steal,
            idle=each.idle + each.iowait,
            processes=each.user + each.nice + each.system,
            steal=each.steal,
        )
        for each in psutil.cpu_times(percpu=True)
    ]


def _percent(before: _CoreTimes, after: _CoreTimes) -> float:
    total = after.total - before.total
    busy = total - (after.idle - before.idle)
    return round(min(100.0, max(0.0, 100 * busy / total)), 1) if total > 0 else 0.0


def _steal_percent(before: Sequence[_CoreTimes], after: Sequence[_CoreTimes]) -> float:
    total = sum(each.total for each in after) - sum(each.total for each in before)
    steal = sum(each.steal for each in after) - sum(each.steal for each in before)
    return round(min(100.0, max(0.0, 100 * steal / total)), 2) if total > 0 else 0.0


class FrequencySampler(Sampler):
    """Present frequency of up to FREQUENCY_CORES cores, spread over all: each reading may interrupt its core.

    Raises:
        Unavailable: the kernel does not tell frequencies, as in a virtual machine.
    """

    source = "cpu_frequency"

    def __init__(self, cpus: Path = Path("/sys/devices/system/cpu")) -> None:
        files = sorted(cpus.glob("cpu[0-9]*/cpufreq/scaling_cur_freq"))
        if not files:
            raise Unavailable(f"no frequencies below {cpus}")
        self._files = files[:: -(-len(files) // FREQUENCY_CORES)]
        self._due = 0.0

    def sample(self) -> Values | None:
        """{"mhz": mean, "min_mhz": least} of these cores; None before FREQUENCY_PERIOD_S have passed."""
        if time.monotonic() < self._due:
            return None
        self._due = time.monotonic() + FREQUENCY_PERIOD_S
        mhz = [int(file.read_text()) / 1000 for file in self._files]
        return {"mhz": round(sum(mhz) / len(mhz), 1), "min_mhz": min(mhz)}


class ThrottleSampler(Sampler):
    """Counts how often the kernel saw the processors throttled for heat.

    Raises:
        Unavailable: the kernel does not count thermal throttling.
    """

    source = "cpu_throttle"

    def __init__(self, cpus: Path = Path("/sys/devices/system/cpu")) -> None:
        packages: dict[str, Path] = {}
        for file in sorted(cpus.glob("cpu[0-9]*/thermal_throttle/package_throttle_count")):
            try:
                package = (file.parents[1] / "topology/physical_package_id").read_text()
            except OSError:
                package = ""
            packages.setdefault(package, file)
        if not packages:
            raise Unavailable(f"no throttle counts below {cpus}")
        self._files = list(packages.values())
        self._last = self._count()

    def _count(self) -> int:
        return sum(int(file.read_text()) for file in self._files)

    def sample(self) -> Values | None:
        """{"events": number since the last sample}; None if there were none."""
        before, self._last = self._last, self._count()
        return {"events": self._last - before} if self._last > before else None


class MemorySampler(Sampler):
    """Memory in use: neither free nor reclaimable (total minus MemAvailable of /proc/meminfo), in bytes and percent."""

    source = "mem"
    log = "mem_monitor.log"
    columns: ClassVar[Sequence[str]] = ("used_percent",)

    def sample(self) -> Values:
        """{"used_percent", "used_bytes", "total_bytes"}"""
        memory = psutil.virtual_memory()
        used = memory.total - memory.available
        return {"used_percent": round(100 * used / memory.total, 2), "used_bytes": used, "total_bytes": memory.total}
