"""The tutorials that need no hosts are followed: each command of the page runs and prints what the page shows."""

from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.docs.tutorials import follow, lacking, steps

pytestmark = pytest.mark.torch


@pytest.mark.nightly
def test_the_first_run(tmp_path: Path) -> None:
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    (tmp_path / "run_benchmarks").symlink_to(ROOT / "run_benchmarks")

    def said(command: str) -> str:
        run = f".venv/bin/python run_benchmarks/run.py --set FLAGPERF_LOG_PATH_HOST={tmp_path}/result"
        return run if command == "make run" else command  # whose installation `make matrix` tests

    follow("first-run", tmp_path, said)


@pytest.mark.parametrize(
    "page",
    [
        "describe-and-simulate",
        pytest.param("slow-leaf", marks=pytest.mark.nightly),
        "how-many-gpus",
    ],
)
def test_a_tutorial_without_hosts(page: str, tmp_path: Path) -> None:
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    follow(page, tmp_path)


@pytest.mark.parametrize("page", sorted(path.stem for path in (ROOT / "docs" / "tutorials").glob("*.md")))
def test_every_tutorial_shows_what_some_command_prints(page: str) -> None:
    assert sum(bool(step.shown) for step in steps(page)) >= 1


def test_an_output_of_another_form_is_noticed() -> None:
    shown = ("... pass ... 1/1 ...", "done in 3.5 s")
    assert lacking(shown, "A   pass  2/2  x\nlog\ndone in 12 s\n") == []
    assert lacking(shown, "A   fail  2/2  x\ndone in 12 s\n") == ["... pass ... 1/1 ..."]
    assert lacking(shown, "done in 12 s\nA pass 1/1 x\n") == ["done in 3.5 s"]
