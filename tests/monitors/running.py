"""A monitor as the controller starts it, for tests: a process, its folder, its records."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]


class Monitor:
    """`python -m monitors` in a folder; ended at the end of the with block, whatever happens in it."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        vendor: str = "cpu",
        tree: Path = REPOSITORY,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.folder = folder
        argv = [sys.executable, "-m", "monitors", f"--log_dir={folder}", f"--vendor={vendor}", *arguments]
        self.process = subprocess.Popen(
            argv, cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def __enter__(self) -> "Monitor":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def end(self, *, by: signal.Signals | None = None) -> tuple[int, str]:
        """Exit code and what it said, after a signal or by itself."""
        if by is not None:
            self.process.send_signal(by)
        output, _ = self.process.communicate(timeout=200)
        return self.process.returncode, output

    def wait_for(self, source: str, count: int = 1) -> list[dict[str, Any]]:
        """The records with values of a source, once there are that many."""
        for _ in range(3000):
            found = [record for record in self.records() if record["source"] == source and "values" in record]
            if len(found) >= count:
                return found
            if self.process.poll() is not None:
                raise AssertionError(f"the monitor ended with {self.process.returncode}: {self.process.stdout}")
            time.sleep(0.01)
        raise AssertionError(f"{count} records of {source} never came: {self.records()}")

    def records(self) -> list[dict[str, Any]]:
        """All whole lines of monitor.jsonl so far."""
        path = self.folder / "monitor.jsonl"
        lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    def lines(self, log: str) -> list[str]:
        """The lines of a text log that are no comments."""
        return [line for line in (self.folder / log).read_text().splitlines() if not line.startswith("#")]

    def comments(self, log: str) -> list[str]:
        """The comment lines of a text log."""
        return [line for line in (self.folder / log).read_text().splitlines() if line.startswith("#")]


def new_vendor(tree: Path, name: str, adapter: str, *, others: Sequence[tuple[str, str]] = ()) -> Path:
    """Adds a vendor's folder, and nothing else, to a tree that holds the packages."""
    folder = tree / "vendors" / name
    folder.mkdir()
    (folder / "adapter.py").write_text(adapter, encoding="utf-8")
    for path, text in others:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return folder
