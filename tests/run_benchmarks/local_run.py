"""run.py on this machine as its own host: real runs with the process runtime, in a folder of the test's."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from run_benchmarks.console.command_line import ROOT
from tests.cluster.faulty_project import LIGHT
from tests.run_benchmarks.conftest import CLUSTER, TEST

# Case ONE without torch, in a copy of the project that has it (tests.cluster.faulty_project).
LIGHT_ONE = f"ONE = {LIGHT | {'nproc': 2}!r}\n"


class Run:
    """run.py, of the project in `root`, with files and results in a folder of its own."""

    def __init__(self, folder: Path, case: str, root: Path = ROOT) -> None:
        folder.mkdir()
        folders = {"FLAGPERF_PATH_HOST": str(folder / "deploy"), "FLAGPERF_LOG_PATH_HOST": str(folder / "logs")}
        (folder / "cluster_conf.py").write_text(CLUSTER)
        (folder / "test_conf.py").write_text(TEST + case + "".join(f"{k} = {v!r}\n" for k, v in folders.items()))
        files = ["--cluster-conf", str(folder / "cluster_conf.py"), "--test-conf", str(folder / "test_conf.py")]
        self.root = root
        self.argv = [sys.executable, str(root / "run_benchmarks/run.py"), *files]
        self.folder = folder

    @property
    def result(self) -> Path | None:
        """The newest run's folder."""
        return max((self.folder / "logs").glob("run*"), default=None)

    def log(self) -> str:
        """What run.log has."""
        return "" if self.result is None else (self.result / "run.log").read_text()

    def in_a_round(self) -> bool:
        """Whether the ranks are at work."""
        return any("TRAIN_START" in text for text in texts(self.folder, "rank0.out.log"))

    def journal(self) -> list[dict[str, Any]]:
        """The events of the run so far."""
        if self.result is None or not (self.result / "journal.jsonl").exists():
            return []
        return [json.loads(line) for line in (self.result / "journal.jsonl").read_text().splitlines()]

    def verdict(self) -> str | None:
        """Of the run once it has ended."""
        ends = [event for event in self.journal() if event["event"] == "run_ended"]
        return ends[-1]["verdict"] if ends else None


def texts(folder: Path, name: str) -> Iterator[str]:
    """Of the files of that name below `folder`, while a run makes, renames and removes folders there.

    Path.rglob of Python 3.11 fails on a folder that goes while it looks.
    """
    for parent, _, files in os.walk(folder):
        if name in files:
            with suppress(FileNotFoundError):
                yield (Path(parent) / name).read_text(errors="replace")
