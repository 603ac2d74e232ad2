"""The lock that a workload holds on its log folder as long as it lives; the monitor ends when it is free again."""

import contextlib
import fcntl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from protocol.node_record import LOCK_FILE
from training.benchmarks.driver.launch.failures import LaunchError

# A monitor that tests the lock holds it for a moment; a workload holds it far longer than this.
_LOCK_PATIENCE_S = 1.0


@contextlib.contextmanager
def workload_lock(log_dir: Path) -> Iterator[None]:
    """Hold D/workload.lock. The kernel releases it when this process ends for any reason, and the monitor sees that.

    Raises:
        LaunchError: another workload holds it.
    """
    with (log_dir / LOCK_FILE).open("a") as file:
        deadline = time.monotonic() + _LOCK_PATIENCE_S
        while not _try_lock(file):
            if time.monotonic() > deadline:
                raise LaunchError(f"another workload runs in {log_dir}: its {LOCK_FILE} is held")
            time.sleep(_LOCK_PATIENCE_S / 100)
        yield


def _try_lock(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
