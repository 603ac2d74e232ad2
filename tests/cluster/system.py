"""What the test bed needs of the machine: commands run with a deadline, and a look at the process table."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

PROC = Path("/proc")


class TestBedError(RuntimeError):
    """Something of the test bed did not come up or go down; says what, and what the failing command printed."""

    __test__ = False


def run(
    argv: Sequence[str | os.PathLike[str]],
    *,
    timeout: float = 30.0,
    check: bool = True,
    text_input: str | None = None,
    env: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command and return its exit code, stdout and stderr.

    Raises:
        TestBedError: the program is missing, ran longer than `timeout` seconds, or (with `check`) exited other than 0.
    """
    words = [os.fspath(word) for word in argv]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, input=text_input, env=env)
    except FileNotFoundError as error:
        raise TestBedError(f"{words[0]}: no such program on this machine") from error
    except subprocess.TimeoutExpired as error:
        raise TestBedError(f"{' '.join(words)}: no end within {timeout:g} s") from error
    if check and done.returncode != 0:
        printed = (done.stderr.strip() or done.stdout.strip() or "no output")[-2000:]
        raise TestBedError(f"{' '.join(words)}: exit code {done.returncode}: {printed}")
    return done


def wait_until(condition: Callable[[], bool], *, timeout: float, what: str, pause: float = 0.02) -> None:
    """Poll until the condition holds.

    Raises:
        TestBedError: it did not within `timeout` seconds; `what` names it.
    """
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TestBedError(f"{what}: not within {timeout:g} s")
        time.sleep(pause)


def patience() -> float:
    """How many times longer than on a quiet machine things take here now: by its load, 1 with up to three a core."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1) / 3)


def all_pids() -> Iterator[int]:
    """Process ids of the machine as this process sees it."""
    return (int(entry.name) for entry in PROC.iterdir() if entry.name.isdecimal())


def cmdline(pid: int) -> list[str]:
    """argv of a process; empty for a kernel thread, a zombie, and one that is gone."""
    try:
        raw = (PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return []
    return [os.fsdecode(word) for word in raw.split(b"\0")[:-1]]


def command_name(pid: int) -> str:
    """The kernel's name of a process (at most 15 characters), "" if it is gone."""
    try:
        return (PROC / str(pid) / "comm").read_text().rstrip("\n")
    except OSError:
        return ""


def is_alive(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        stat = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return False
    return stat.rpartition(") ")[2][:1] not in ("Z", "X")


def namespace(pid: int | str, kind: str) -> int | None:
    """Inode of a process's namespace of a kind ("net", "pid", "mnt", ...), None if the process is gone."""
    try:
        return (PROC / str(pid) / "ns" / kind).stat().st_ino
    except OSError:
        return None


def pids_in_namespace(kind: str, inode: int) -> list[int]:
    """Every process that lives in the namespace."""
    return [pid for pid in all_pids() if namespace(pid, kind) == inode]


def kill_and_wait(pids: Sequence[int], *, timeout: float = 10.0, kind: signal.Signals = signal.SIGKILL) -> None:
    """Signal the processes and wait until none of them runs any more.

    Raises:
        TestBedError: some are still there after `timeout` seconds.
    """
    for pid in pids:
        try:
            os.kill(pid, kind)
        except ProcessLookupError:
            continue
    what = f"the end of processes {', '.join(map(str, pids))} after {kind.name}"
    wait_until(lambda: not any(is_alive(pid) for pid in pids), timeout=timeout, what=what)


@contextmanager
def frozen(pids: Iterable[int]) -> Iterator[None]:
    """Processes stand still; what they hold stays open."""
    stopped = list(pids)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
