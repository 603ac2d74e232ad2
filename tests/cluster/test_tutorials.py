"""The tutorials with hosts are followed: each command of the page runs and prints what the page shows."""

import json
from pathlib import Path

import pytest

from tests.cluster.bed import TestBed, take_down
from tests.cluster.controller import Controller
from tests.docs.pages import ROOT
from tests.docs.tutorials import follow

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
BED = "-m tests.cluster"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with what the commands of a page name."""
    for name in (".venv", "run_benchmarks"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


@pytest.mark.nightly
def test_two_hosts(place: Path, testbed: TestBed) -> None:
    """On the hosts of the other tests, which are those that `up` makes."""
    controller = Controller(place, testbed)
    controller.configure_test({"ALL_REDUCE": {"overrides": {"sizes": "8, 64K"}}})

    def said(command: str) -> str | None:
        if BED in command or not command.startswith(".venv"):
            return None
        return command.replace(".cache/cluster/", f"{place}/")

    follow("two-hosts", place, said)


@pytest.mark.nightly
def test_find_the_bad_host(place: Path) -> None:
    def said(command: str) -> str:
        words = command.replace(f"{BED} exec", f"{BED} exec --dir {place}/bed").replace("--no-engine", "")
        words = words.replace(f"{BED} up 4", f"{BED} up 4 --no-engine --dir {place}/bed")
        words = words.replace(f"{BED} down", f"{BED} down --dir {place}/bed").replace(".cache/cluster", f"{place}/bed")
        return words.replace("$PWD/.venv", f"{ROOT}/.venv") + (
            f" --set FLAGPERF_LOG_PATH_HOST={place}/result" if "run.py" in words else ""
        )

    try:
        follow("find-the-bad-host", place, said, {"accept --rungs": 1})
        files = sorted((place / "result").glob("accept*/accept.json"))
        slow, mended = (json.loads(file.read_text()) for file in files)
        assert [host.rpartition(".")[2] for host in slow["drain"]] == ["3"]
        assert mended["ready"] and mended["drain"] == {}, "with exit code 0, as every command but the first of accept"
    finally:
        take_down(place / "bed")
