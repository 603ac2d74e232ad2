"""A lock on a folder: one process at a time uses the hosts or the engine that live in it."""

import os
import time
from pathlib import Path

from run_benchmarks.state.run_lock import try_lock
from tests.cluster.system import TestBedError

LOCK = "lock"
LOCK_SECONDS = 240.0


class FolderLock:
    """Held from acquire() to release(), or until the process ends, however it ends; the folder is made if need be."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor: int | None = None

    def acquire(self, *, timeout: float = LOCK_SECONDS) -> None:
        """Take the lock and wait for it if another process holds it; nothing to do when this object holds it already.

        Raises:
            TestBedError: it was not free within `timeout` seconds.
        """
        if self._descriptor is not None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        deadline = time.monotonic() + timeout
        try:
            while not try_lock(descriptor):
                if time.monotonic() > deadline:
                    raise TestBedError(f"{self._folder}: another process has used what is in it for {timeout:g} s")
                time.sleep(0.2)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def release(self) -> None:
        """Let it go; nothing to do when it is not held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
