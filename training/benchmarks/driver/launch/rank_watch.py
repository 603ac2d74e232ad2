"""Records when each rank's process ended, to the microsecond, and how far each rank had progressed.

torchrun polls its ranks and stamps failures in whole seconds, too coarse to tell the rank that died from its peers,
which lose their connections within a millisecond. Here every rank announces itself on a datagram socket, and a thread
waits on its pidfd, which the kernel makes readable when the process ends. On the same socket the ranks report their
progress (see pulse). A second thread writes rank_states.json, so that a slow disk delays no timestamp.
"""

import contextlib
import json
import os
import selectors
import signal
import socket
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic import ValidationError

from protocol.node_record import signal_name
from protocol.pulse import PULSE_SECONDS, send_to
from protocol.rank_states import STOPPED_STATES, NodeRanks, RankState

_STOP = b"stop"
_STACKS = b"stacks"
_STAMP = "_clusterdyno_failed_ms"
_WORD_BYTES = 1 << 16


def now_ms() -> int:
    """The present time in epoch milliseconds."""
    return time.time_ns() // 1_000_000


def stamp(error: BaseException) -> int:
    """Epoch milliseconds of the first call for this exception object: when it began to end its rank."""
    if not hasattr(error, _STAMP):
        setattr(error, _STAMP, now_ms())
    return int(getattr(error, _STAMP))


@dataclass(kw_only=True)
class _Rank:
    """State of one process; `said` holds the fields of RankState that the rank itself reported."""

    rank: int
    told_ms: int
    moved_ms: int
    said: dict[str, Any] = field(default_factory=dict)
    end: dict[str, Any] = field(default_factory=dict)
    train_start_ms: int | None = None
    train_ms: tuple[int, int] | None = None
    state: str | None = None
    state_told_ms: int = 0

    def look(self, pid: int) -> None:
        """Read the kernel's state of the process.

        A stopped process that has reported nothing since counts as stopped: the round kills it in the end, and the
        kernel's state during that is irrelevant.
        """
        was_stopped = self.state in STOPPED_STATES and self.state_told_ms == self.told_ms
        if self.end or was_stopped or (state := _state(pid)) is None:
            return
        self.state, self.state_told_ms = state, self.told_ms


class RankWatch:
    """Context manager that listens on `folder`/ranks while it is open; `ended_ms` maps a pid to its end in epoch ms.

    With a `log_dir` it keeps rank_states.json there up to date.
    """

    def __init__(self, folder: Path, log_dir: Path | None = None) -> None:
        self.path = folder / "ranks"
        self.ended_ms: dict[int, int] = {}
        self._ranks: dict[int, _Rank] = {}
        self._log_dir = log_dir
        self._selector = selectors.DefaultSelector()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._thread = threading.Thread(target=self._watch, name="rank-watch", daemon=True)
        self._write_now, self._over = threading.Event(), threading.Event()
        self._writer = threading.Thread(target=self._keep_written, name="rank-states", daemon=True)

    def __enter__(self) -> Self:
        self._socket.bind(str(self.path))
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._thread.start()
        self._writer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def request_stacks(self) -> None:
        """Make every running rank write the stacks of its threads into its log (`rank` handles SIGUSR1).

        Safe in a signal handler: the thread that owns the pidfds sends the signals, so that a reused pid is never hit.
        """
        if self._thread.is_alive():
            send_to(self.path, _STACKS)

    def stop(self) -> None:
        """Stop listening, and record every rank that has ended by now."""
        if not self._thread.is_alive():
            return
        send_to(self.path, _STOP)
        self._thread.join()
        self._note_ends(timeout=0)
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, int):
                os.close(key.fileobj)
        self._selector.close()
        self._socket.close()
        self._over.set()
        self._write_now.set()
        self._writer.join()

    def _watch(self) -> None:
        while self._note_ends(timeout=None):
            pass

    def _note_ends(self, timeout: float | None) -> bool:
        """Handle ready descriptors, ends before messages because their time matters. False once told to stop."""
        ready = [key for key, _ in self._selector.select(timeout)]
        for key in ready:
            if isinstance(key.fileobj, int):
                self._note_end(key.data, time.time_ns() // 1000, key.fileobj)
                self._selector.unregister(key.fileobj)
                os.close(key.fileobj)
        return not any(key.fileobj is self._socket for key in ready) or self._hear(self._socket.recv(_WORD_BYTES))

    def _hear(self, word: bytes) -> bool:
        if word == _STOP:
            return False
        if word == _STACKS:
            self._signal_ranks()
            self._write_now.set()
        else:
            with contextlib.suppress(ValueError, KeyError, TypeError):  # a workload may find the socket, too
                self._take(json.loads(word))
        return True

    def _take(self, said: dict[str, Any]) -> None:
        pid, what = int(said.pop("pid")), said.pop("what")
        now = now_ms()
        if what == "here":
            self._ranks[pid] = _Rank(rank=int(said["rank"]), told_ms=now, moved_ms=now)
            self._register(pid)
            return
        rank = self._ranks[pid]
        if what in ("TRAIN_START", "TRAIN_END"):
            if what == "TRAIN_START":
                rank.train_start_ms = now
            elif rank.train_start_ms is not None:
                rank.train_ms = rank.train_start_ms, now
            return
        if "left_us" in rank.said:
            return  # a pulse that was sent before and arrived after
        if what == "leaves":
            said |= {"left_us": said.pop("at_us"), "left_code": said.pop("exit_code"), "waits_in": None}
        moved = any(said.get(name) != rank.said.get(name) for name in ("events", "steps", "collectives"))
        rank.moved_ms = now if moved else rank.moved_ms
        rank.told_ms = now
        rank.said |= said

    def _note_end(self, pid: int, at_us: int, descriptor: int | None) -> None:
        self.ended_ms[pid] = at_us // 1000
        self._ranks[pid].end = {"ended_us": at_us, **({} if descriptor is None else _how_it_ended(descriptor))}

    def _signal_ranks(self) -> None:
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, int):
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(key.fileobj, signal.SIGUSR1)

    def _register(self, pid: int) -> None:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            self._note_end(pid, time.time_ns() // 1000, None)
        except OSError:
            return  # a kernel before 5.3 has no pidfd: torchrun's own time stays
        else:
            self._selector.register(descriptor, selectors.EVENT_READ, data=pid)

    def _keep_written(self) -> None:
        while not self._over.is_set():
            self._write_now.wait(PULSE_SECONDS)
            self._write_now.clear()
            self._write()

    def _write(self) -> None:
        if self._log_dir is None or not self._ranks:
            return
        states = []
        for pid, rank in sorted(self._ranks.copy().items(), key=lambda item: item[1].rank):
            rank.look(pid)
            known: dict[str, Any] = {"pid": pid, "told_ms": rank.told_ms, "moved_ms": rank.moved_ms}
            known |= {"state": rank.state, "train_ms": rank.train_ms}
            with contextlib.suppress(ValidationError):
                states.append(RankState.model_validate({**rank.said, **rank.end, **known, "rank": rank.rank}))
        with contextlib.suppress(OSError):  # a full disk: the ranks' own failure will say so
            NodeRanks(written_ms=now_ms(), ranks=states).write(self._log_dir)


def _how_it_ended(descriptor: int) -> dict[str, Any]:
    """Exit code or signal of the child behind this pidfd, without reaping it; {} if its parent has reaped it."""
    try:
        found = os.waitid(os.P_PIDFD, descriptor, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return {}
    if found is None:
        return {}
    if found.si_code == os.CLD_EXITED:
        return {"exit_code": found.si_status}
    return {"signal": signal_name(found.si_status)}


def _state(pid: int) -> str | None:
    """The kernel's letter for the state of the process, None if it has ended."""
    try:
        letter = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(") ")[2][:1]
    except OSError:
        return None
    return None if letter in ("", "Z", "X") else letter
