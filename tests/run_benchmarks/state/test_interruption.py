"""The first signal asks for a clean end, the second leaves at once and prints the clean-up command."""

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from run_benchmarks.console.command_line import ROOT
from run_benchmarks.state.exit_codes import EXIT_INTERRUPTED
from run_benchmarks.state.interruption import SIGNALS

COMMAND = "python run_benchmarks/run.py clean run20261121191924"
STUCK = f"""
import time
from run_benchmarks.state.interruption import Interruption
with Interruption({COMMAND!r}) as interruption:
    print("ready", flush=True)
    while not interruption.is_set():
        time.sleep(0.01)
    print(interruption.reason, flush=True)
    try:
        time.sleep(60)
    finally:
        print("not at once", flush=True)
"""


@pytest.mark.parametrize("number", SIGNALS)
def test_the_second_signal_leaves_at_once_and_says_what_to_clean(number: signal.Signals) -> None:
    argv = [sys.executable, "-c", STUCK]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.stdout.readline() == f"interrupted by {number.name}\n"
        process.send_signal(number)
        output, errors = process.communicate(timeout=200)
    assert process.returncode == EXIT_INTERRUPTED
    assert f"{number.name} again: leaving at once" in errors and COMMAND in errors
    assert output == ""


CONSOLE_GONE = """
import signal, sys, time
from pathlib import Path
from run_benchmarks.console.console import LOG
from run_benchmarks.console.terminal import print_table, start_logging, stop_logging
from run_benchmarks.state.interruption import Interruption
from run_benchmarks.console.progress import LiveProgress
start_logging("info", Path(sys.argv[1]))
with Interruption("clean") as interruption:
    with LiveProgress("ONE", 1, 1) as progress:
        LOG.info("ready")
        while not interruption.is_set():
            time.sleep(0.01)
        time.sleep(0.5)
    LOG.warning("stopping")
    print_table("", ("case",), [("ONE",)])
    LOG.info("everything is removed")
stop_logging()
sys.exit(7)
"""


@pytest.mark.parametrize("kind", ["pipe", "terminal"])
def test_a_console_that_is_gone_does_not_keep_a_run_from_its_end(kind: str, tmp_path: Path) -> None:
    """As where a Ctrl-C ends `tee` first, or a terminal is closed."""
    ours, theirs = pty.openpty() if kind == "terminal" else os.pipe()
    argv = [sys.executable, "-c", CONSOLE_GONE, str(tmp_path / "run.log")]
    with subprocess.Popen(argv, stdout=theirs, stderr=theirs, cwd=ROOT, start_new_session=True) as process:
        os.close(theirs)
        written = b""
        while b"ready" not in written:
            written += os.read(ours, 4096)
        os.close(ours)
        process.send_signal(signal.SIGHUP)
    assert process.returncode == 7
    assert "everything is removed" in (tmp_path / "run.log").read_text()
