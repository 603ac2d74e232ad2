"""Lets one process at a time change a database of compute times: a lock beside it, which ends with its holder.

A change reads all rows and replaces the file, so that two at once would lose rows of one of them. SQLite's own lock
would be on the file that is replaced.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from workloads.compute.measurement import ComputeDataError

PATIENCE_SECONDS = 60.0
"""How long a writer waits for another: a change of the largest database takes less."""
RETRY_SECONDS = 0.02


@contextmanager
def only_writer(path: Path) -> Iterator[None]:
    """Hold the lock of the database at `path`; its folder has to be there. The lock file is removed at the end.

    Raises:
        ComputeDataError: another process holds it for longer than PATIENCE_SECONDS, or it cannot be made.
    """
    lock = path.with_name(f".{path.name[:200]}.lock")
    try:
        descriptor = _held(lock, time.monotonic() + PATIENCE_SECONDS)
    except OSError as error:
        raise ComputeDataError(f"{path}: cannot be written: {lock.name} beside it: {error.strerror}") from None
    if descriptor is None:
        raise ComputeDataError(f"{path}: another process has been changing it for {PATIENCE_SECONDS:g} s")
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(descriptor)


def _held(lock: Path, until: float) -> int | None:
    """The open lock file, locked; None if it stays with another until then.

    Its holder removes it, so a lock counts only on the file that has the name still.
    """
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_named(descriptor, lock):
                return descriptor
        except BlockingIOError:
            if time.monotonic() >= until:
                os.close(descriptor)
                return None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        time.sleep(RETRY_SECONDS)


def _is_named(descriptor: int, lock: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), lock.stat())
    except FileNotFoundError:
        return False
