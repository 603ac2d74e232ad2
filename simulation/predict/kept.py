"""Keeps the layouts that a sweep has predicted, so that an interrupted one goes on: FILE.partial beside its output."""

import json
from pathlib import Path
from typing import NamedTuple

from common.errors import input_problem
from common.whole_files import is_forced

EVERY = 256  # layouts between two writes


class Estimate(NamedTuple):
    """Of a layout: ms of an iteration, GiB that are reserved on the fullest rank."""

    ms: float
    reserved_gib: float


class KeptLayouts:
    """The predictions of a sweep's layouts that are kept, by number of GPUs and place among those of as many GPUs.

    Without a path nothing is kept beyond the process.
    """

    def __init__(self, output: Path | None, sweep: str) -> None:
        """Take up what an interrupted sweep left; `sweep` identifies it.

        Raises:
            InputProblems: the file is of another sweep, and no others_kept(keep=False), as by --force, is around.
        """
        self.path = None if output is None else output.with_name(f"{output.name}.partial")
        self._sweep, self._new = sweep, list[tuple[int, int, Estimate]]()
        self._known: dict[tuple[int, int], Estimate] = {}
        if self.path is None or not self.path.exists():
            return
        first, *lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines() or [""]
        if first != sweep:
            if not is_forced():
                raise input_problem("--output", self.path, "is what another sweep left; remove it, or give --force")
            self.path.unlink()
            return
        for line in lines:
            try:
                gpus, place, *estimate = json.loads(line)
                self._known[gpus, place] = Estimate(*map(float, estimate))
            except (ValueError, TypeError):
                continue  # the last line of a process that was killed

    @property
    def count(self) -> int:
        """How many layouts are known."""
        return len(self._known)

    def known(self, gpus: int, place: int) -> Estimate | None:
        """The predictions that are kept."""
        return self._known.get((gpus, place))

    def add(self, gpus: int, place: int, estimate: Estimate) -> None:
        """Keep a prediction."""
        self._known[gpus, place] = estimate
        self._new.append((gpus, place, estimate))
        if len(self._new) >= EVERY:
            self.write()

    def write(self) -> None:
        """Append what is new."""
        if self.path is not None and self._new:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                if not file.tell():
                    file.write(f"{self._sweep}\n")
                file.writelines(f"{json.dumps([gpus, place, *estimate])}\n" for gpus, place, estimate in self._new)
        self._new.clear()

    def discard(self) -> None:
        """Remove the file: the sweep has its output."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
