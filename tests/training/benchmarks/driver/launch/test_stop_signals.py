"""A signal is not lost in code that swallows every exception."""

import subprocess
import sys

from tests.training.benchmarks.driver.launch.launching import ROOT

CODE = """
import os, signal
from training.benchmarks.driver.launch.stop_signals import Stopped, held, raise_on_signals
raise_on_signals(when_stuck=lambda number: os._exit(9))
try:
    with held():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except BaseException:
            print("swallowed")
        print("went on")
except Stopped as stop:
    print(stop)
"""


def test_a_signal_raises_at_the_end_of_the_code_that_would_swallow_it() -> None:
    result = subprocess.run([sys.executable, "-c", CODE], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.stdout.split() == ["went", "on", "SIGTERM"], result.stderr
