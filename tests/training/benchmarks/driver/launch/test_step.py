"""The tasks of a step end with it: at a signal to it alone, at its death, at that of the daemon above it."""

import contextlib
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from run_benchmarks.console.command_line import ROOT
from tests.cluster.controller import wait_until
from training.benchmarks.driver.launch.step import BATCH_DAEMON

LASTS = "import time; time.sleep(600)"
# Leaves a process that ignores SIGTERM and has left its session, group and parent.
LEAVES = """
import os, signal, subprocess, sys, time
sleeper = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)  # " + sys.argv[1]
child = os.fork()
if child == 0:
    os.setsid()
    subprocess.Popen([sys.executable, "-c", sleeper])
    os._exit(0)
os.waitpid(child, 0)
time.sleep(600)
"""


class Node:
    """A step below a process with the name of Slurm's daemon, and a shell between them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.monitor, self.workload = folder, folder / "n.monitor", folder / "n.workload"
        daemon = shutil.copy("/bin/sh", folder / BATCH_DAEMON)
        states = ["--monitor", str(self.monitor), "--workload", str(self.workload)]
        argv = [sys.executable, "-m", "training.benchmarks.driver.launch.step", *states]
        words = [daemon, "-c", 'sh "$@"; :', "sh", "-c", '"$@"; :', "sh", *argv]
        self.daemon = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)

    def begin(self, monitor: str, workload: str) -> psutil.Process:
        """Start both tasks by these scripts; returns the step's own process."""
        assert self.daemon.stdin is not None and self.daemon.stdout is not None
        with self.daemon.stdin as given:
            given.write(self.request(monitor))
        assert self.daemon.stdout.readline() == b"ready\n"
        (shell,) = psutil.Process(self.daemon.pid).children()
        (step,) = shell.children()
        self.workload.with_name("n.workload.given").write_bytes(self.request(workload))
        self.workload.with_name("n.workload.given").rename(self.workload.with_name("n.workload.request"))
        wait_until("the workload", lambda: self.supervises(self.workload))
        return step

    def request(self, script: str) -> bytes:
        argv = [sys.executable, "-c", script, str(self.folder)]
        return json.dumps({"argv": argv, "environment": {}, "cwd": str(ROOT)}).encode()

    @staticmethod
    def supervises(state: Path) -> bool:
        """Whether a supervisor has started its command."""
        return (state / "supervisor.json").exists() and "command" in (state / "supervisor.json").read_text()

    @staticmethod
    def exit_code(state: Path) -> int:
        code = json.loads((state / "exit.json").read_text())["exit_code"]
        assert isinstance(code, int)
        return code

    def processes(self) -> list[psutil.Process]:
        """All that runs of this node, but for the daemon and the shell."""
        found = []
        for each in psutil.process_iter(["name", "cmdline", "status"]):
            is_ours = any(str(self.folder) in part for part in each.info["cmdline"] or ())
            if (
                is_ours
                and each.info["status"] != psutil.STATUS_ZOMBIE
                and each.info["name"] not in ("sh", BATCH_DAEMON)
            ):
                found.append(each)
        return found


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    yield node
    for each in node.processes():
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()
    node.daemon.kill()
    node.daemon.wait()
    assert node.daemon.stdout is not None
    node.daemon.stdout.close()


def test_a_step_ends_once_its_tasks_have_ended_and_tells_their_exit_codes(node: Node) -> None:
    node.begin("import time; time.sleep(0.5)", "raise SystemExit(3)")
    assert node.daemon.wait(60) == 0
    assert (node.exit_code(node.monitor), node.exit_code(node.workload)) == (0, 3)
    assert node.processes() == []


def by_signal(node: Node, step: psutil.Process) -> None:
    step.send_signal(signal.SIGTERM)


def by_death(node: Node, step: psutil.Process) -> None:
    step.kill()


def by_the_daemon_s_death(node: Node, step: psutil.Process) -> None:
    node.daemon.kill()


@pytest.mark.parametrize("end", [by_signal, by_death, by_the_daemon_s_death])
def test_nothing_that_tasks_started_outlives_their_step(
    node: Node, end: Callable[[Node, psutil.Process], None]
) -> None:
    step = node.begin(LASTS, LEAVES)
    wait_until("all of them", lambda: len(node.processes()) == 6)
    below = {each.pid for each in step.children(recursive=True)}
    assert {each.pid for each in node.processes()} <= {step.pid, *below}, "Slurm finds processes by their parents"
    end(node, step)
    wait_until("the end of all", lambda: not node.processes())
    assert node.exit_code(node.monitor) == node.exit_code(node.workload) == 128 + signal.SIGTERM


def test_what_a_killed_supervisor_left_ends_with_the_step(node: Node) -> None:
    step = node.begin(LASTS, LEAVES)
    wait_until("all of them", lambda: len(node.processes()) == 6)
    psutil.Process(json.loads((node.workload / "supervisor.json").read_text())["pid"]).kill()
    wait_until("its end", lambda: len(node.processes()) == 5)
    assert {each.pid for each in node.processes()} <= {step.pid, *(each.pid for each in step.children(recursive=True))}
    by_signal(node, step)
    wait_until("the end of all", lambda: not node.processes())
