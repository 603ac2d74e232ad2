"""run.py under a Python that lacks what it needs: FlagPerf's habit is `python3 run_benchmarks/run.py`."""

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from run_benchmarks.console.command_line import ROOT, RUN_PY
from tests.docs.pages import pages

OLD = "import runpy, sys; sys.version_info = (3, 8, 18); runpy.run_path(sys.argv[1], run_name='__main__')"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["-S"], "lacks docker, paramiko, pydantic, rich"),  # without site-packages
        (["-c", OLD], "is Python 3.8; run.py needs 3.11 or later"),
    ],
)
def test_without_its_environment_it_says_make_run(words: list[str], why: str, tmp_path: Path) -> None:
    (tmp_path / "run_benchmarks").mkdir()
    script = shutil.copy(RUN_PY, tmp_path / "run_benchmarks")

    def said() -> str:
        answer = subprocess.run([sys.executable, *words, script, "list"], capture_output=True, text=True, timeout=200)
        assert (answer.returncode, answer.stdout) == (2, "")
        return answer.stderr

    assert (
        said() == f"{sys.executable} {why}: `make run` in {tmp_path} makes the environment .venv"
        " with what it needs, and runs\n"
    )
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    assert said() == f"{sys.executable} {why}: run it with {python}, or `make run` in {tmp_path}\n"


def test_an_old_python_can_read_it() -> None:
    """The parser judges it by the grammar of 3.7, the oldest that it knows."""
    ast.parse(RUN_PY.read_text(encoding="utf-8"), feature_version=(3, 7))


def test_no_page_prints_run_py_without_its_environment() -> None:
    bare = re.compile(r"(?<![\w/.-])python3? run_benchmarks/run\.py")
    assert {page.name for page in pages() if bare.search(page.read_text(encoding="utf-8"))} <= {"CHANGELOG.md"}
    commands = [line for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines() if line[:4] == "    "]
    python = [line for line in commands if re.search(r"\bpython3?\b", line)]
    assert python and not [line for line in python if not line.strip("$ ").startswith(".venv/bin/python ")]
