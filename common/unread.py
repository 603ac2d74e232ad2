"""Goes on where nobody reads what is said any more: `head` that has enough, a `tee` that a Ctrl-C ended.

Other tools die of SIGPIPE then. Work of hours must not: it goes on, and what it still says is dropped.
"""

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO


def open_closed() -> None:
    """Drop what is printed to a stdout or stderr that is closed from the start (`>&-`): Python has None there."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115


@contextmanager
def unread() -> Iterator[None]:
    """Go on after printing to stdout whose reader has gone: what ends here has done its work."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        drop()


def drop(*streams: TextIO) -> None:
    """Let go what stdout and stderr, or these streams, hold and are given later, where it cannot be written: it would
    fail at the exit.
    """
    with Path(os.devnull).open("wb") as null:
        for stream in streams or (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                with suppress(OSError):
                    os.dup2(null.fileno(), stream.fileno())


def has_readers() -> bool:
    """Whether stdout and stderr are read: a file or a terminal is; a pipe or socket until its other end is closed."""
    watched = select.poll()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # a stream in memory
            watched.register(stream.fileno(), 0)
    return not any(event & (select.POLLERR | select.POLLHUP) for _, event in watched.poll(0))
