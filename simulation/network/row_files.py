"""Writes the table of the rows of each job, with those that have ended while a simulation goes on."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from common.whole_files import write_whole
from simulation.network.job import Job
from simulation.network.tables import IterationTimes, RanksRun

INCOMPLETE = "incomplete"  # stands where the name of the test stands while rows are missing


class RowFiles:
    """The tables; one job's is PREFIX + EndToEnd.csv, those of several have the names of the workloads, too."""

    def __init__(self, job: Job, prefix: str, slowness: Mapping[int, float]) -> None:
        self._job, self._slowness = job, slowness
        self._written = [-1] * len(job.parts)
        uses = Counter(part.name for part in job.parts)
        self.paths = []
        for number, part in enumerate(job.parts):
            own = part.name if uses[part.name] == 1 else f"{part.name}-{number}"
            self.paths.append(Path(f"{prefix}{'' if len(job.parts) == 1 else f'{own}-'}EndToEnd.csv"))

    def times(self, run: RanksRun) -> list[IterationTimes]:
        """The times of each job on its first rank."""
        return [
            IterationTimes(self._job, part, run.of_rank(part.first), self._slowness.get(part.first, 1.0))
            for part in self._job.parts
        ]

    def write(self, run: RanksRun) -> None:
        """Write the tables that have more rows than at the last call."""
        for number, (path, part, times) in enumerate(zip(self.paths, self._job.parts, self.times(run), strict=True)):
            ended = bool(run.finished[part.first] >= 0)
            rows = len(times.rows) + ended
            if rows > self._written[number]:
                self._written[number] = rows
                lines = times.lines() if ended else times.lines(INCOMPLETE)
                write_whole(path, (line.encode() for line in lines))
