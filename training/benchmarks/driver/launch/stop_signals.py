"""Turns SIGTERM, SIGINT and SIGHUP into an exception in the main thread, with an exit for a blocked main thread.

While torch waits for the other nodes it blocks in C++, where no Python handler runs. The kernel's handler still writes
the signal's number to a socket, and a thread that reads it acts when the main thread does not.
"""

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from protocol.node_record import signal_name

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# Seconds for the main thread to run a Python handler; it needs far less unless it is blocked in a foreign call.
STUCK_AFTER_S = 1.0


class Stopped(BaseException):
    """A signal told this process to stop. It is no Exception, so that no handler on the way takes it for a failure."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(signal_name(number))


class _Hold:
    """Whether signals are held back, and the number of one that arrived meanwhile."""

    is_on = False
    waiting: int | None = None


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Hold signals back around code that may swallow exceptions of any kind, such as importing torch."""
    _Hold.is_on = True
    try:
        yield
    finally:
        _Hold.is_on = False
        if _Hold.waiting is not None:
            raise Stopped(_Hold.waiting)


def raise_on_signals(when_stuck: Callable[[int], None]) -> None:
    """From now on the first of SIGNALS ends the main thread with a Stopped exception; later signals change nothing.

    `when_stuck` is called with the signal's number, in another thread, if the main thread has not taken the signal
    within STUCK_AFTER_S; it is to end the process. Call this in the main thread.
    """
    taken = threading.Event()
    reader, writer = socket.socketpair()
    writer.setblocking(False)

    def take(number: int, frame: FrameType | None) -> None:
        taken.set()
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        if _Hold.is_on:
            _Hold.waiting = number
            return
        raise Stopped(number)

    def watch() -> None:
        with writer:  # held here: the wake-up descriptor must stay open as long as the process lives
            while (number := reader.recv(1)[0]) not in SIGNALS:
                pass
            if not taken.wait(STUCK_AFTER_S):
                when_stuck(number)

    for number in SIGNALS:
        signal.signal(number, take)
    signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=watch, name="stop-signals", daemon=True).start()
