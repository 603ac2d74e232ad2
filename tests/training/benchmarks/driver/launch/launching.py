"""Runs `driver.launch` as the controller does: as a process of its own, in its own session."""

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil

from protocol.node_record import LOCK_FILE, NodeExit

ROOT = Path(__file__).parents[5]
WORKLOAD = "tests.training.benchmarks.driver.launch.failing_workload"
DEADLINE_S = 200.0
# What a rank finds in its environment that is the only one.
ALONE = {
    "RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_RANK": "0",
    "LOCAL_WORLD_SIZE": "1",
    "GROUP_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "0",
}


def plain_processes(ranks: int | None = None) -> list[str]:
    """Options for the launcher that needs no torch, which takes two CPU seconds to load: a free port, and how many
    ranks a node has.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    meeting = ["--launcher", "processes", "--master_addr", "127.0.0.1", "--master_port", str(port)]
    return meeting if ranks is None else [*meeting, "--nproc_per_node", str(ranks)]


def command(log_dir: Path, options: Sequence[str], workload: Sequence[str]) -> list[str]:
    """argv of one launch; `workload` is the entry module and its arguments."""
    launch = [sys.executable, "-m", "training.benchmarks.driver.launch", "--log_dir", str(log_dir)]
    return [*launch, *options, "--", "-m", *workload]


@contextlib.contextmanager
def started(argv: Sequence[str], **environment: str) -> Iterator[subprocess.Popen[str]]:
    """The running process; whatever of its session is left at the end is killed."""
    inherited = {key: value for key, value in os.environ.items() if not key.endswith("_SOCKET_IFNAME")}
    inherited.pop("OMP_NUM_THREADS", None)
    process = subprocess.Popen(
        argv, cwd=ROOT, env=inherited | environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)  # its ranks die with it: PR_SET_PDEATHSIG
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def run(
    log_dir: Path,
    options: Sequence[str],
    workload: Sequence[str],
    *,
    deadline_s: float = DEADLINE_S,
    **environment: str,
) -> tuple[int, str]:
    """Exit code and output of a launch that is waited for."""
    with started(command(log_dir, options, workload), **environment) as process:
        output, _ = process.communicate(timeout=deadline_s)
    return process.returncode, output


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Return once `condition` holds; fails the test, naming `what`, when it does not in time."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"gave up waiting: {what}"
        time.sleep(0.02)


def lock_is_held(log_dir: Path) -> bool:
    """Whether somebody holds the workload's lock, seen as the monitor sees it."""
    path = log_dir / LOCK_FILE
    if not path.exists():
        return False
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def rank_pids(process: subprocess.Popen[str]) -> list[int]:
    """Pids of the ranks that the launch `process` runs."""
    return [child.pid for child in psutil.Process(process.pid).children()]


def is_gone(pid: int) -> bool:
    """Whether no process (zombies aside) of that pid is left."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def exit_record(log_dir: Path) -> NodeExit:
    """The node_exit.json of a launch."""
    return NodeExit.read(log_dir)
