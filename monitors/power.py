"""Power meters: each records watts, joules since its start, and the method that its energy comes from."""

import stat
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

from monitors.sampler import Sampler, Unavailable, Values

POWERCAP = "/sys/class/powercap"  # of the host, wherever a container sees it
COUNTER = "counter"
INTEGRATED = "integrated power"


class Reading(NamedTuple):
    """Watts now, and joules since the meter was opened (None: no counter; they are integrated from the watts).

    of_devices: how many devices the sum is of, and how many there are; None for a meter of the whole machine.
    """

    watts: float
    joules: float | None
    of_devices: tuple[int, int] | None = None


class PowerMeter(Sampler):
    """One way to measure this host's power. `method` states the origin of `joules`, both valid after a sample."""

    source = "power"
    log = "pwr_monitor.log"
    columns: ClassVar[Sequence[str]] = ("watts", "meter")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.method = COUNTER
        self.joules: float | None = None
        self._clock = clock
        self._last: tuple[float, float] | None = None

    @abstractmethod
    def read(self) -> Reading | None:
        """A new reading in watts and joules; None if there is none since the last."""

    def sample(self) -> Values | None:
        """{"meter", "watts", "joules" since the start, "method"}; of devices "devices": [measured, all], too."""
        reading = self.read()
        if reading is None:
            return None
        self._account(reading)
        return {
            "meter": self.meter,
            "watts": round(reading.watts, 3),
            "joules": round(self.joules or 0.0, 3),
            "method": self.method,
            **({} if reading.of_devices is None else {"devices": list(reading.of_devices)}),
        }

    def _account(self, reading: Reading) -> None:
        """Take the counter, or add the trapezoid since the last reading: (w0 + w1) / 2 * (t1 - t0)."""
        now = self._clock()
        if reading.joules is not None:
            self.method, self.joules = COUNTER, reading.joules
        else:
            self.method, self.joules = INTEGRATED, self.joules or 0.0
            if self._last is not None:
                then, watts = self._last
                self.joules += (watts + reading.watts) / 2 * (now - then)
        self._last = (now, reading.watts)


class RaplMeter(PowerMeter):
    """Energy counters of the CPU packages and their DRAM (Intel RAPL, also on AMD) through Linux powercap.

    Counters are microjoules that wrap at `max_energy_range_uj` (kernel documentation, power/powercap/powercap.rst and
    ABI/testing/sysfs-class-powercap). Sums top-level domains `package-*` and their subdomains `dram`: `core` and
    `uncore` are parts of the package, `psys` contains it, and `intel-rapl-mmio` counts the same packages again.

    `root` is where the host's /sys/class/powercap is seen.

    Raises:
        Unavailable: there is no such domain, or it may not be read (root only since Linux 5.10).
    """

    meter = "rapl"

    def __init__(
        self, root: Path, clock: Callable[[], float] = time.monotonic, cpuinfo: Path = Path("/proc/cpuinfo")
    ) -> None:
        super().__init__(clock)
        self._domains = [_Domain(path) for path in _rapl_domains(root, cpuinfo)]
        self._opened = self._before = clock()
        self._total = 0.0

    def read(self) -> Reading | None:
        """Mean watts since the last sample."""
        now = self._clock()
        if now <= self._before:
            return None
        counters = [domain.read() for domain in self._domains]  # all or none: after a failure no step may be lost
        joules = sum(domain.advance(counter) for domain, counter in zip(self._domains, counters, strict=True))
        watts = joules / (now - self._before)
        self._before = now
        self._total += joules
        return Reading(watts, self._total)


class _Domain:
    """One powercap zone and its last counter value in microjoules."""

    def __init__(self, path: Path) -> None:
        self._counter = path / "energy_uj"
        try:
            self._last = int(self._counter.read_text())
            self._range = int((path / "max_energy_range_uj").read_text())
        except PermissionError as error:
            shown = f"the power counters ({POWERCAP}/{path.name}/energy_uj)"
            raise Unavailable(f"{shown} may not be read by this user: {who_may(self._counter)}") from error
        except OSError as error:
            raise Unavailable(f"{error.filename} cannot be read: {error.strerror}") from error

    def read(self) -> int:
        return int(self._counter.read_text())

    def advance(self, counter: int) -> float:
        """Joules from the previous counter value to this one, with a wrap if it decreased."""
        step = counter - self._last
        if step < 0:
            step += self._range
        self._last = counter
        return step / 1e6


def who_may(path: Path) -> str:
    """The users that may use a file, and how others get access."""
    try:
        found = path.stat()
    except OSError:
        return "log in as root"
    rights = f"mode {stat.S_IMODE(found.st_mode):04o}, user {found.st_uid}, group {found.st_gid}"
    return f"{rights}; log in as root, or have a group of yours allowed to (chgrp, chmod g+rw)"


def _lack(cpuinfo: Path) -> str:
    """The reason why a host has no counters of its CPUs' energy."""
    try:
        virtual = " hypervisor" in cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:
        virtual = False
    if virtual:
        return "this host is a virtual machine without power counters: the machine beneath it alone can measure"
    none = f"this host's kernel has no power counters of its CPUs ({POWERCAP})"
    return f"{none}: no driver is loaded (intel_rapl_msr), or none exists"


def _rapl_domains(root: Path, cpuinfo: Path) -> list[Path]:
    if not root.is_dir():
        raise Unavailable(_lack(cpuinfo))
    zones = [path for path in sorted(root.glob("intel-rapl:*")) if (path / "name").is_file()]
    names = {zone: (zone / "name").read_text().strip() for zone in zones}
    packages = [zone for zone in zones if zone.name.count(":") == 1 and names[zone].startswith("package")]
    drams = [
        zone for zone in zones if names[zone] == "dram" and zone.with_name(zone.name.rsplit(":", 1)[0]) in packages
    ]
    if not packages:
        raise Unavailable(_lack(cpuinfo))
    return packages + drams
