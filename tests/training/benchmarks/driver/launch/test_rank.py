"""What torchrun starts for each rank."""

import gc
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


def test_while_a_rank_loads_its_modules_garbage_is_looked_for_rarely(tmp_path: Path) -> None:
    (tmp_path / "loading.py").write_text("import gc\nprint(gc.isenabled(), gc.get_threshold())\n")
    run = "from training.benchmarks.driver.launch import rank; rank._run('loading', [])"
    paths = os.pathsep.join((str(ROOT), str(tmp_path)))
    done = subprocess.run([sys.executable, "-c", run], env=os.environ | {"PYTHONPATH": paths}, capture_output=True)
    first, *others = gc.get_threshold()
    assert done.stdout.decode() == f"True {(50_000, *others)}\n" and first < 5_000
