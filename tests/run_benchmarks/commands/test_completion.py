"""`run.py completion`, judged by bash itself."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from run_benchmarks.commands import cli

# What bash offers for a command line whose last word is being typed.
ASK = """
source /dev/stdin
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
"$(complete -p "$1" | sed 's/.*-F \\([^ ]*\\) .*/\\1/')"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script() -> str:
    answer = CliRunner().invoke(cli.app, ["completion"])
    assert answer.exit_code == 0, answer
    return answer.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["run.py", "imp"], ["import-flagperf"]),
        (["run_benchmarks/run.py", "--cluster"], ["--cluster-conf"]),
        (["run_benchmarks/run.py", "plan", "--set"], ["--set", "--settings"]),
        (["run.py", "--case", "A", "plan", "--sett"], ["--settings"]),
        (["run.py", "list", "be"], ["bert"]),
        (["run.py", "import-flagperf", "--o"], ["--output", "--overwrite"]),
        (["run.py", "stop", "--n"], ["--now"]),
        (["other.py", "p"], [""]),
    ],
)
def test_what_bash_offers(words: list[str], offered: list[str], script: str) -> None:
    argv = ["bash", "-c", ASK, "bash", sys.executable, *words]
    answer = subprocess.run(argv, input=script, capture_output=True, text=True, timeout=30)
    assert (answer.stdout.splitlines(), answer.stderr) == (offered, "")


def test_every_command_and_run_is_offered(script: str) -> None:
    for name in ("run", "check", "resume", "verify", "list", "completion"):
        assert f'        "{name}") words="' in script
    of_a_run = ("resume", "collect", "status", "attach", "stop", "clean", "verify", "drain", "undrain")
    assert script.count("/result/'run*'") == len(of_a_run)
