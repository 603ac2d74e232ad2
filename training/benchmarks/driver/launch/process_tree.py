"""Finds the descendants of a process through the kernel's lists of children, without reading other processes.

Reading `/proc/<pid>/task/<tid>/children` (proc(5)) costs time in proportion to the tree, not to the host's processes.
On a kernel built without it (CONFIG_PROC_CHILDREN) all processes are read.
"""

import contextlib
import ctypes
import os
import select
import signal
import time
from pathlib import Path

PROC = Path("/proc")
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
POLL_SECONDS = 0.05  # where the kernel has no pidfd (before 5.3)


def become_reaper() -> None:
    """Adopt every descendant whose parent ends (Linux's child subreaper).

    Raises:
        OSError: the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def start_ticks(pid: int) -> int:
    """Start time of a process in clock ticks since boot, which clock changes do not affect.

    Raises:
        OSError: there is no such process.
    """
    return int(_stat(PROC, pid)[19])


def is_running(pid: int, ticks: int) -> bool:
    """Whether the process that started at `ticks` (clock ticks since boot) still has this pid and is no zombie.

    In a container whose first process reaps no children, a process stays a zombie for good.
    """
    try:
        fields = _stat(PROC, pid)
    except OSError:
        return False
    return int(fields[19]) == ticks and fields[0] not in "ZX"


def above(pid: int, name: str) -> list[tuple[int, int]]:
    """Pids and start times (see `start_ticks`) of the processes above one, up to that of a name; else its parent's."""
    found: list[tuple[int, int]] = []
    with contextlib.suppress(OSError):
        while (pid := int(_stat(PROC, pid)[1])) > 1:
            found.append((pid, start_ticks(pid)))
            if (PROC / str(pid) / "comm").read_text(encoding="utf-8", errors="replace").strip() == name:
                return found
    return found[:1]


def wait_until_gone(pid: int, ticks: int, seconds: float) -> bool:
    """Wait at most `seconds` until that process (see `is_running`) has ended; returns whether it has."""
    limit = time.monotonic() + seconds
    with contextlib.suppress(OSError):
        descriptor = os.pidfd_open(pid)
        try:
            if is_running(pid, ticks):  # so the descriptor belongs to this process, not to a later one
                poll = select.poll()
                poll.register(descriptor, select.POLLIN)
                poll.poll(max(0.0, 1000 * seconds))
        finally:
            os.close(descriptor)
        return not is_running(pid, ticks)
    while is_running(pid, ticks) and time.monotonic() < limit:
        time.sleep(POLL_SECONDS)
    return not is_running(pid, ticks)


def descendants(pid: int, proc: Path = PROC) -> list[int]:
    """Pids of all descendants of a process, parents before their children.

    A process that forks meanwhile may be missed; whoever kills them repeats the call until it returns none.
    """
    by_parent = None if (proc / "thread-self" / "children").exists() else _by_parent(proc)
    found: list[int] = []
    level = [pid]
    while level:
        level = [child for parent in level for child in _children(parent, proc, by_parent)]
        found += level
    return found


def kill_below(pid: int) -> None:
    """Send SIGKILL to all descendants of a process, once."""
    for victim in descendants(pid):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(victim, signal.SIGKILL)


def _children(pid: int, proc: Path, by_parent: dict[int, list[int]] | None) -> list[int]:
    if by_parent is not None:
        return by_parent.get(pid, [])
    tasks = proc / str(pid) / "task"
    found: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in tasks.iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found += map(int, (task / "children").read_text(encoding="ascii").split())
    return found


def _by_parent(proc: Path) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for pid in [int(path.name) for path in proc.iterdir() if path.name.isdecimal()]:
        with contextlib.suppress(OSError):
            found.setdefault(int(_stat(proc, pid)[1]), []).append(pid)
    return found


def _stat(proc: Path, pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat from the third on (proc(5)): state, parent, ..."""
    return (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
