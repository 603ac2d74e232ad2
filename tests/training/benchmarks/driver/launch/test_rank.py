"""What torchrun starts for each rank."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.benchmarks.driver.launch.launching import ROOT

# The kernel ends the process by a signal in the middle of its writing, whatever it writes with: a file holds 100 bytes.
ENDED_WHILE_IT_WRITES = """
import resource, signal, sys
from training.benchmarks.driver.launch import rank

if sys.argv[1] == "half":
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
rank._record("the stack", ValueError("why"))
"""


@pytest.mark.parametrize("how", ["half", "whole"])
def test_an_error_file_is_whole_or_not_there(tmp_path: Path, how: str) -> None:
    file = tmp_path / "error.json"
    environment = os.environ | {"TORCHELASTIC_ERROR_FILE": str(file)}
    done = subprocess.run([sys.executable, "-c", ENDED_WHILE_IT_WRITES, how], cwd=ROOT, env=environment, timeout=200)
    if how == "half":
        assert done.returncode == -signal.SIGXFSZ
        assert not file.exists()
    else:
        assert done.returncode == 0
        assert json.loads(file.read_text())["message"]["message"] == "ValueError: why"
