"""Writes the table of the rows of each job, with those that have ended while a simulation goes on."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from common.errors import MistakeList
from common.whole_files import others_kept, refuse_present, write_whole
from simulation.network.job import Job
from simulation.network.tables import ONE_JOB, IterationTimes, RanksRun

INCOMPLETE = "incomplete"  # stands where the name of the test stands while rows are missing
FLOWS, LINKS, PAGE = OTHERS = "fct.txt", "links.csv", "network.html"
TABLE, TRACE = "EndToEnd.csv", ".json"
HEAD_BYTES = 4096  # of a file, that say whose it is


def refuse_names(jobs: Sequence[str], prefix: str, trace: Path | None) -> None:
    """Before a simulation of jobs of these names: no file that is there and kept has a name that a run's files have,
    though this run may not write all of them, and none of a former run with this prefix would stay.

    Raises:
        InputProblems: some have, or the trace has the name of another; all are named.
    """
    mistakes = MistakeList()
    paths = [*(path for path, _label in tables_of(jobs, prefix)), *(Path(prefix + name) for name in OTHERS)]
    if trace is not None and trace.resolve() in [path.resolve() for path in paths]:
        mistakes.add("--trace", trace, f"is the name of another file, with -r {prefix}")
    for path in paths:
        if path.is_dir():
            mistakes.add(str(path), None, "is a folder; take another -r")
    with mistakes.noted():
        refuse_present(dict.fromkeys([*paths, *([trace] if trace else []), *_former(prefix)]), "take another -r")
    mistakes.check()


def tables_of(jobs: Sequence[str], prefix: str) -> list[tuple[Path, str]]:
    """The table of each job, and the name that stands in it: of several jobs each has its own."""
    if len(jobs) == 1:
        return [(Path(prefix + TABLE), ONE_JOB)]
    names = [f"{name}-{number}" for number, name in enumerate(jobs)] if len({*jobs}) < len(jobs) else jobs
    return [(Path(f"{prefix}{name}-{TABLE}"), _label(name)) for name in names]


def _label(name: str) -> str:
    """A job's name in a cell."""
    return "".join(each if each.isprintable() and each != "," else "_" for each in name)


def _former(prefix: str) -> Iterator[Path]:
    """The files of a former run with this prefix that a run with other options does not write.

    The table of one job has a name that no other prefix gives; the tables of several jobs, and traces beside the other
    files, say in their first lines whose they are.
    """
    start = Path(f"{prefix}x")
    folder, name = start.parent, start.name[:-1]
    yield Path(prefix + TABLE)
    with suppress(OSError):
        for path in sorted(folder.iterdir()):
            if path.suffix == TRACE and _head(path).startswith(trace_head(prefix)):
                yield path
            elif path.name.startswith(name) and path.name.endswith(f"-{TABLE}"):
                label = _label(path.name[len(name) : -len(f"-{TABLE}")])
                second = _head(path).partition(b"\n")[2]
                if second.startswith((f"{label}, ".encode(), f"{label} {INCOMPLETE}, ".encode())):
                    yield path


def trace_head(prefix: str) -> bytes:
    """The beginning of a trace, which says what the names of the run's other files begin with."""
    name = Path(f"{prefix}x").name[:-1]
    return b'{"displayTimeUnit": "ns", "otherData": ' + json.dumps({"network -r": name}).encode()


def _head(path: Path) -> bytes:
    """The first bytes of a file; none of what is no file or cannot be read."""
    with suppress(OSError):
        if path.is_file():
            with path.open("rb") as file:
                return file.read(HEAD_BYTES)
    return b""


class RowFiles:
    """The tables; one job's is PREFIX + EndToEnd.csv, those of several have the names of the workloads, too.

    A context: where Ctrl-C ends it, it says which rows are there.
    """

    def __init__(self, job: Job, prefix: str, slowness: Mapping[int, float]) -> None:
        self._job, self._slowness, self._prefix = job, slowness, prefix
        self._is_begun = False
        self._written = [-1] * len(job.parts)
        tables = tables_of([part.name for part in job.parts], prefix)
        self.paths, self._labels = [path for path, _label in tables], [label for _path, label in tables]

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

    def write(self, run: RanksRun, *, anyway: bool = False) -> None:
        """Write the tables that have more rows than at the last call; the first ones remove files of a former run.

        Where no row has ended nothing is touched, unless it is to be written `anyway`.
        """
        tables = self.times(run)
        ends = [bool(run.finished[part.first] >= 0) for part in self._job.parts]
        if not (anyway or any(ends) or any(times.rows for times in tables)):
            return
        if not self._is_begun:
            self._remove_former()
        self._is_begun = True
        for number, (path, times, ended) in enumerate(zip(self.paths, tables, ends, strict=True)):
            rows = len(times.rows) + ended
            if rows > self._written[number]:
                lines = times.lines(self._labels[number] if ended else self._incomplete(number))
                with others_kept(keep=False):  # the rows before
                    write_whole(path, (line.encode() for line in lines))
                self._written[number] = rows

    def begin_again(self) -> None:
        """Let the next rows take the place of those so far, of a simulation that was given up."""
        self._written = [-1] * len(self._written)

    def _incomplete(self, number: int) -> str:
        label = self._labels[number]
        return INCOMPLETE if label == ONE_JOB else f"{label} {INCOMPLETE}"

    def _remove_former(self) -> None:
        for path in [*(Path(self._prefix + name) for name in OTHERS), *_former(self._prefix)]:
            if path not in self.paths and path.is_file():
                path.resolve().unlink()
