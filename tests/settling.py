"""Waits until something has come to rest, however long a busy machine takes for it."""

import time
from collections.abc import Callable

QUIET_SECONDS = 0.3


def settled(read: Callable[[], object]) -> object:
    """What `read` gives once it stays the same for QUIET_SECONDS; fails the test where it does not within a minute."""
    limit, last = time.monotonic() + 60, read()
    while True:
        time.sleep(QUIET_SECONDS)
        if (value := read()) == last:
            return value
        assert time.monotonic() < limit, f"does not come to rest: {last}, {value}"
        last = value
