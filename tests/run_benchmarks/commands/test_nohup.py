"""A run outlives the terminal that it was started from, where it was asked to: real runs, a real session hung up."""

import os
import pty
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from run_benchmarks.console.command_line import ROOT
from run_benchmarks.state.interruption import SIGNALS
from tests.cluster.controller import wait_until
from tests.run_benchmarks.local_run import LIGHT_ONE, Run

LONG = f"{LIGHT_ONE}ONE['overrides'] = {{'steps': 1_000_000}}\n"
SHORT = f"{LIGHT_ONE}ONE['overrides'] = {{'pause': 1.0}}\n"
IGNORED = """
import os, signal, sys, time
from run_benchmarks.state.interruption import Interruption
with Interruption("clean") as interruption:
    os.kill(os.getpid(), getattr(signal, sys.argv[1]))
    time.sleep(0.1)
    print(interruption.is_set())
"""


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_that_was_ignored_at_the_start_stays_ignored(number: signal.Signals) -> None:
    """SIGHUP under nohup, SIGINT in the background of a shell script; SIGTERM is always heard."""
    command = f'trap "" {number.name.removeprefix("SIG")}; exec "$@"'
    argv = ["sh", "-c", command, "sh", sys.executable, "-c", IGNORED, number.name]
    answer = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert answer.stdout == f"{number is signal.SIGTERM}\n", answer.stderr


@pytest.mark.nightly
def test_a_log_out_ends_no_run_that_was_to_go_on(tmp_path: Path, root: Path) -> None:
    """One under nohup, then stopped by its name; one whose console is the terminal itself, with SIGHUP ignored."""
    under_nohup, on_terminal = Run(tmp_path / "nohup", LONG, root), Run(tmp_path / "terminal", SHORT, root)
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
