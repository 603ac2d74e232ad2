"""make test and make lint end at a Ctrl-C, whatever the step that ran then makes of it.

A shell cannot catch a signal that was ignored when it began: tests/conftest.py sees to that under nohup.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

CHECK = Path(__file__).resolve().parents[2] / "scripts" / "check.sh"
CATCHES = "#!/bin/sh\ntrap 'echo caught; exit 2' INT TERM HUP\necho begun\nsleep 30 >/dev/null & wait $!\n"


@pytest.mark.parametrize(
    ("sent", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=lambda value: value
)
def test_no_step_follows_one_that_catches_a_signal(sent: signal.Signals, exit_code: int, tmp_path: Path) -> None:
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for name in ("ruff", "mypy", "lint-imports"):
        (bin_folder / name).write_text(CATCHES)
        (bin_folder / name).chmod(0o755)
    command = ["bash", str(CHECK), str(tmp_path), "lint"]
    check = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert check.stdout is not None
        while check.stdout.readline().strip() != "begun":
            pass
        os.killpg(check.pid, sent)  # as a terminal does
        rest, _ = check.communicate(timeout=20)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(check.pid, signal.SIGKILL)
    assert check.returncode == exit_code
    assert rest.count("caught") == 1 and "begun" not in rest and "== ruff format" not in rest


def test_the_tests_pass_where_signals_are_ignored(tmp_path: Path) -> None:
    """As under nohup, and in the background of a shell without job control."""
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", "no_step_follows"]
    command = ["env", "--ignore-signal=INT,HUP", *tests, f"--basetemp={tmp_path / 'inner'}"]
    result = subprocess.run(command, cwd=CHECK.parents[1], capture_output=True, text=True, timeout=100, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
