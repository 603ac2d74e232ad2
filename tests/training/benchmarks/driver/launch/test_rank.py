"""What torchrun starts for each rank."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.benchmarks.driver.launch.launching import ROOT

# The end by a signal comes while the error is being written: half of it is in the file by then.
ENDED_WHILE_IT_WRITES = """
import os, pathlib, signal, sys
from training.benchmarks.driver.launch import rank

def half(self, text, encoding):
    with open(self, "w") as file:
        file.write(text[: len(text) // 2])
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)

if sys.argv[1] == "half":
    pathlib.Path.write_text = half
rank._record("the stack", ValueError("why"))
"""


@pytest.mark.parametrize("how", ["half", "whole"])
def test_an_error_file_is_whole_or_not_there(tmp_path: Path, how: str) -> None:
    file = tmp_path / "error.json"
    environment = os.environ | {"TORCHELASTIC_ERROR_FILE": str(file)}
    done = subprocess.run([sys.executable, "-c", ENDED_WHILE_IT_WRITES, how], cwd=ROOT, env=environment, timeout=60)
    if how == "half":
        assert done.returncode == -signal.SIGKILL
        assert not file.exists()
    else:
        assert done.returncode == 0
        assert json.loads(file.read_text())["message"]["message"] == "ValueError: why"
