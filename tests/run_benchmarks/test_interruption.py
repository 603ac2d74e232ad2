"""The first signal asks for a clean end, the second leaves at once and prints the clean-up command."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from run_benchmarks.interruption import EXIT_INTERRUPTED, SIGNALS
from run_benchmarks.preparation import ROOT

COMMAND = "python run_benchmarks/run.py clean run20261121191924"
STUCK = f"""
import time
from run_benchmarks.interruption import Interruption
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


@pytest.mark.timeout(60)
@pytest.mark.parametrize("number", SIGNALS)
def test_the_second_signal_leaves_at_once_and_says_what_to_clean(number: signal.Signals) -> None:
    argv = [sys.executable, "-c", STUCK]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.stdout.readline() == f"interrupted by {number.name}\n"
        process.send_signal(number)
        output, errors = process.communicate(timeout=30)
    assert process.returncode == EXIT_INTERRUPTED
    assert f"{number.name} again: leaving at once" in errors and COMMAND in errors
    assert output == ""
