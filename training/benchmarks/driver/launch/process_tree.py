"""The processes below one of ours, found through the kernel's lists of children, without a look at any other process.

`/proc/<pid>/task/<tid>/children` (proc(5)) costs what the tree is large, whatever else runs on the host. A kernel built
without it (CONFIG_PROC_CHILDREN) leaves only the walk over all processes.
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
    """When a process started, in clock ticks since boot, whatever the clock is set to.

    Raises:
        OSError: there is no such process.
    """
    return int(_stat(PROC, pid)[19])


def is_running(pid: int, ticks: int) -> bool:
    """Whether the process of that number is the one that started then, and no zombie of it.

    In a container whose first process reaps nobody a process stays a zombie for good.
    """
    try:
        fields = _stat(PROC, pid)
    except OSError:
        return False
    return int(fields[19]) == ticks and fields[0] not in "ZX"


def wait_until_gone(pid: int, ticks: int, seconds: float) -> bool:
    """Wait until that process has ended, for so long at most; whether it has."""
    limit = time.monotonic() + seconds
    with contextlib.suppress(OSError):
        descriptor = os.pidfd_open(pid)
        try:
            if is_running(pid, ticks):  # the descriptor is this process's then, no later one's
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
    """Everything below a process, parents before their children; itself not.

    A process that forks meanwhile may be missed: who kills looks again until there is none.
    """
    by_parent = None if _lists_children(proc) else _by_parent(proc)
    found: list[int] = []
    level = [pid]
    while level:
        level = [child for parent in level for child in _children(parent, proc, by_parent)]
        found += level
    return found


def kill_below(pid: int) -> None:
    """SIGKILL to everything below a process, once."""
    for victim in descendants(pid):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(victim, signal.SIGKILL)


def _lists_children(proc: Path) -> bool:
    return (proc / "thread-self" / "children").exists()


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
