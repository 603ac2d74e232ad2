"""When each rank's process ended, to the millisecond.

torchrun polls its ranks and stamps failures in whole seconds, too coarse to tell the rank that died from its peers,
which lose their connections within a millisecond. Here every rank announces its pid on a datagram socket and a thread
waits on its pidfd, which the kernel makes readable the moment the process ends.
"""

import contextlib
import os
import selectors
import signal
import socket
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

SOCKET_ENV = "CLUSTERDYNO_RANK_SOCKET"
_STOP = b"stop"
_STACKS = b"stacks"
_STAMP = "_clusterdyno_failed_ms"


def now_ms() -> int:
    """Epoch milliseconds."""
    return time.time_ns() // 1_000_000


def stamp(error: BaseException) -> int:
    """Epoch milliseconds of the first call for this very exception: when it began to take its rank down."""
    if not hasattr(error, _STAMP):
        setattr(error, _STAMP, now_ms())
    return int(getattr(error, _STAMP))


class RankWatch:
    """Context manager: listens on `folder`/ranks while it is open; `ended_ms` maps a pid to its end (epoch ms)."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "ranks"
        self.ended_ms: dict[int, int] = {}
        self._selector = selectors.DefaultSelector()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._thread = threading.Thread(target=self._watch, name="rank-watch", daemon=True)

    def __enter__(self) -> Self:
        self._socket.bind(str(self.path))
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def request_stacks(self) -> None:
        """Have every rank that runs write the stacks of its threads into its log (driver.rank listens to SIGUSR1).

        Safe in a signal handler: the thread that owns the pidfds sends, so that no stranger with a reused pid is hit.
        """
        if self._thread.is_alive():
            _send(self.path, _STACKS)

    def stop(self) -> None:
        """Stop listening and take note of every rank that has ended by now."""
        if not self._thread.is_alive():
            return
        _send(self.path, _STOP)
        self._thread.join()
        self._note_ends(timeout=0)
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, int):
                os.close(key.fileobj)
        self._selector.close()
        self._socket.close()

    def _watch(self) -> None:
        while self._note_ends(timeout=None):
            pass

    def _note_ends(self, timeout: float | None) -> bool:
        """Handle what is ready; False once told to stop."""
        going_on = True
        for key, _ in self._selector.select(timeout):
            if key.fileobj is self._socket:
                message = self._socket.recv(64)
                going_on = message != _STOP and going_on
                if message == _STACKS:
                    self._signal_ranks()
                elif message != _STOP:
                    self._register(int(message))
            elif isinstance(key.fileobj, int):
                self.ended_ms[key.data] = now_ms()
                self._selector.unregister(key.fileobj)
                os.close(key.fileobj)
        return going_on

    def _signal_ranks(self) -> None:
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, int):
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(key.fileobj, signal.SIGUSR1)

    def _register(self, pid: int) -> None:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            self.ended_ms[pid] = now_ms()
        except OSError:
            return  # a kernel before 5.3 has no pidfd: torchrun's own time stays
        else:
            self._selector.register(descriptor, selectors.EVENT_READ, data=pid)


def announce() -> None:
    """Tell the launcher's RankWatch this process's pid; nothing happens when no launcher listens."""
    path = os.environ.get(SOCKET_ENV)
    if path:
        _send(Path(path), str(os.getpid()).encode())


def _send(path: Path, message: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(message, str(path))
