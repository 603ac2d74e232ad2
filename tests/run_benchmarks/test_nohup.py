"""A run outlives the terminal that it was started from, where it was asked to: real runs, a real session hung up."""

from __future__ import annotations

import json
import os
import pty
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from run_benchmarks.interruption import SIGNALS
from run_benchmarks.preparation import ROOT
from tests.run_benchmarks.conftest import CLUSTER, TEST

LONG = "ONE['overrides'] = {'sizes': '1M', 'iterations': 1_000_000, 'warmup_iterations': 0}\n"
SHORT = "ONE['overrides'] = {'sizes': '1M', 'iterations': 200, 'warmup_iterations': 0}\n"
IGNORED = """
import os, signal, sys, time
from run_benchmarks.interruption import Interruption
with Interruption("clean") as interruption:
    os.kill(os.getpid(), getattr(signal, sys.argv[1]))
    time.sleep(0.1)
    print(interruption.is_set())
"""


@pytest.mark.timeout(60)
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_that_was_ignored_at_the_start_stays_ignored(number: signal.Signals) -> None:
    """SIGHUP under nohup, SIGINT in the background of a shell script; SIGTERM is always heard."""
    command = f'trap "" {number.name.removeprefix("SIG")}; exec "$@"'
    argv = ["sh", "-c", command, "sh", sys.executable, "-c", IGNORED, number.name]
    answer = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=50)
    assert answer.stdout == f"{number is signal.SIGTERM}\n", answer.stderr


class Run:
    """run.py with files and results in a folder of its own."""

    def __init__(self, folder: Path, case: str) -> None:
        folder.mkdir()
        folders = {"FLAGPERF_PATH_HOST": str(folder / "deploy"), "FLAGPERF_LOG_PATH_HOST": str(folder / "logs")}
        (folder / "cluster_conf.py").write_text(CLUSTER)
        (folder / "test_conf.py").write_text(TEST + case + "".join(f"{k} = {v!r}\n" for k, v in folders.items()))
        files = ["--cluster-conf", str(folder / "cluster_conf.py"), "--test-conf", str(folder / "test_conf.py")]
        self.argv = [sys.executable, str(ROOT / "run_benchmarks/run.py"), *files]
        self.folder = folder

    @property
    def result(self) -> Path | None:
        return max((self.folder / "logs").glob("run*"), default=None)

    def log(self) -> str:
        return "" if self.result is None else (self.result / "run.log").read_text()

    def in_a_round(self) -> bool:
        return any("TRAIN_START" in path.read_text() for path in self.folder.rglob("rank0.out.log"))

    def verdict(self) -> str | None:
        """Of the run once it has ended."""
        if self.result is None:
            return None
        lines = (self.result / "journal.jsonl").read_text().splitlines()
        ends = [event for event in map(json.loads, lines) if event["event"] == "run_ended"]
        return ends[-1]["verdict"] if ends else None


def wait_until(what: str, condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < limit, f"gave up waiting for {what}"
        time.sleep(0.05)


@pytest.mark.timeout(180)
def test_a_log_out_ends_no_run_that_was_to_go_on(tmp_path: Path) -> None:
    """One under nohup, then stopped by its name; one whose console is the terminal itself, with SIGHUP ignored."""
    under_nohup, on_terminal = Run(tmp_path / "nohup", LONG), Run(tmp_path / "terminal", SHORT)
    commands = (
        f"cd {tmp_path}; nohup {shlex.join(under_nohup.argv)} & (trap '' HUP; exec {shlex.join(on_terminal.argv)}) &\n"
    )
    shell, terminal = pty.fork()
    if shell == 0:  # an interactive one hands its own SIGHUP on to all of its jobs
        os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
    os.write(terminal, commands.encode())
    wait_until("both rounds", lambda: under_nohup.in_a_round() and on_terminal.in_a_round())
    os.close(terminal)
    os.waitpid(shell, 0)
    wait_until("the end on a lost terminal", lambda: on_terminal.verdict() is not None)
    assert on_terminal.verdict() == "pass" and "interrupted" not in on_terminal.log()
    assert under_nohup.verdict() is None and "interrupted" not in under_nohup.log()
    assert "Testcase ONE Round 1 starts" in (tmp_path / "nohup.out").read_text()
    assert under_nohup.result is not None
    stopped = subprocess.run([*under_nohup.argv, "stop", under_nohup.result.name], capture_output=True, text=True)
    assert stopped.returncode == 0, stopped.stderr
    assert "interrupted by SIGTERM" in stopped.stdout and under_nohup.verdict() == "aborted"
    again = subprocess.run([*under_nohup.argv, "stop", under_nohup.result.name], capture_output=True, text=True)
    assert again.returncode == 2 and "it has ended: aborted" in again.stderr
