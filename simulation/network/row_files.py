"""Writes the table of the rows of each job, with those that have ended while a simulation goes on."""

import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from common.errors import MistakeList
from common.whole_files import others_kept, refuse_present, write_whole
from simulation.network.job import Job
from simulation.network.tables import IterationTimes, RanksRun

INCOMPLETE = "incomplete"  # stands where the name of the test stands while rows are missing
FLOWS, LINKS, PAGE = OTHERS = "fct.txt", "links.csv", "network.html"


def refuse_names(job: Job, prefix: str, trace: Path | None) -> None:
    """Before a simulation: no file that is there and kept has a name that a run's files have, though this run may not
    write all of them.

    Raises:
        InputProblems: some have, or the trace has the name of another; all are named.
    """
    mistakes = MistakeList()
    paths = [*RowFiles(job, prefix, {}).paths, *(Path(prefix + name) for name in OTHERS)]
    if trace is not None and trace.resolve() in [path.resolve() for path in paths]:
        mistakes.add("--trace", trace, f"is the name of another file, with -r {prefix}")
    with mistakes.noted():
        refuse_present(paths if trace is None else [*paths, trace], "take another -r")
    mistakes.check()


class RowFiles:
    """The tables; one job's is PREFIX + EndToEnd.csv, those of several have the names of the workloads, too.

    A context: where Ctrl-C ends it, it says which rows are there.
    """

    def __init__(self, job: Job, prefix: str, slowness: Mapping[int, float]) -> None:
        self._job, self._slowness = job, slowness
        self._others = [Path(prefix + name) for name in OTHERS]
        self._written = [-1] * len(job.parts)
        names = [part.name for part in job.parts]
        if len({*names}) < len(names):
            names = [f"{name}-{number}" for number, name in enumerate(names)]
        own = [""] if len(names) == 1 else [f"{name}-" for name in names]
        self.paths = [Path(f"{prefix}{each}EndToEnd.csv") for each in own]

    def __enter__(self) -> "RowFiles":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, KeyboardInterrupt):
            for path, part, rows in zip(self.paths, self._job.parts, self._written, strict=True):
                if rows >= 0:
                    print(f"{path}: {min(rows, len(part.rows))} of {len(part.rows)} rows had ended", file=sys.stderr)

    def times(self, run: RanksRun) -> list[IterationTimes]:
        """The times of each job on its first rank."""
        return [
            IterationTimes(self._job, part, run.of_rank(part.first), self._slowness.get(part.first, 1.0))
            for part in self._job.parts
        ]

    def write(self, run: RanksRun) -> None:
        """Write the tables that have more rows than at the last call; the first call removes files of a former run."""
        for path in self._others:
            if path.is_file():
                path.resolve().unlink()
        self._others = []
        for number, (path, part, times) in enumerate(zip(self.paths, self._job.parts, self.times(run), strict=True)):
            ended = bool(run.finished[part.first] >= 0)
            rows = len(times.rows) + ended
            if rows > self._written[number]:
                self._written[number] = rows
                lines = times.lines() if ended else times.lines(INCOMPLETE)
                with others_kept(keep=False):  # the rows before
                    write_whole(path, (line.encode() for line in lines))
