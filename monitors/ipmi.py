"""Power of the whole machine from its management controller: `ipmitool dcmi power reading`, never waited for."""

import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from monitors.power import PowerMeter, Reading
from monitors.sampler import Unavailable

# One reading takes up to a second on a slow controller, and controllers refresh every few seconds.
PERIOD_S = 5.0
DEADLINE_S = 4.0

_DEVICES = ("ipmi[0-9]*", "ipmi/[0-9]*", "ipmidev/[0-9]*")
_READING = re.compile(r"Instantaneous power reading:\s*(\d+)\s*Watts")


class IpmiError(Exception):
    """ipmitool failed after it had worked; retried at the next period."""


class IpmiMeter(PowerMeter):
    """Chassis power in watts. A reading is started, and fetched at a later tick, so the clock never waits for it.

    Raises Unavailable where there is no IPMI device or no ipmitool, and from `read` where the controller has no DCMI.
    """

    meter = "ipmi"

    def __init__(
        self,
        dev: Path = Path("/dev"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(clock)
        if not any(path for pattern in _DEVICES for path in dev.glob(pattern)):
            raise Unavailable(f"no IPMI device ({dev}/ipmi*)")
        tool = shutil.which("ipmitool")
        if tool is None:
            raise Unavailable("there is an IPMI device, but ipmitool is not installed")
        self._argv = [tool, "dcmi", "power", "reading"]
        self._process: subprocess.Popen[str] | None = None
        self._started = -PERIOD_S
        self._answered = False
        self._start()

    def read(self) -> Reading | None:
        """The reading that has come in since the last call, if any."""
        watts = None
        if self._process is not None:
            watts = self._finish(self._process)
        if self._process is None and self._clock() - self._started >= PERIOD_S:
            self._start()
        return None if watts is None else Reading(watts, None)

    def _start(self) -> None:
        self._started = self._clock()
        self._process = subprocess.Popen(
            self._argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )

    def _finish(self, process: subprocess.Popen[str]) -> float | None:
        if process.poll() is None:
            if self._clock() - self._started > DEADLINE_S:
                process.kill()  # polled until it is gone: a process inside the driver may take its time to die
            return None
        self._process = None
        output, errors = process.communicate()
        found = _READING.search(output)
        if process.returncode == 0 and found is not None:
            self._answered = True
            return float(found[1])
        said = (errors.strip() or output.strip() or "nothing").splitlines()[-1]
        what = "was killed after its deadline" if process.returncode < 0 else f"exit code {process.returncode}"
        problem = f"ipmitool dcmi power reading: {what}, said: {said}"
        raise IpmiError(problem) if self._answered else Unavailable(problem)

    def close(self) -> None:
        """Kills a reading under way without waiting for it."""
        if self._process is not None:
            self._process.kill()
            self._process.stdout and self._process.stdout.close()
            self._process.stderr and self._process.stderr.close()
