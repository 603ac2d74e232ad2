"""Repeats an operation for hours: jitter, changes of the level, every iteration in a file, in constant memory."""

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from common.units import format_size
from protocol.bandwidth import CONVENTION
from training.benchmarks.driver.workload.memory import smallest_available_bytes
from training.benchmarks.driver.workload.run_context import WorkloadContext
from training.benchmarks.driver.workload.statistics import MICROSECONDS, statistics
from training.benchmarks.driver.workload.team import Team, of_every_rank, slowest_rank
from training.benchmarks.driver.workload.usage import UnusableSettingsError
from training.benchmarks.network.pytorch.config import Config
from training.benchmarks.network.pytorch.measuring.memory import fitting_sizes
from training.benchmarks.network.pytorch.measuring.output import Output
from training.benchmarks.network.pytorch.measuring.soaking import IterationFile, Soak
from training.benchmarks.network.pytorch.measuring.stepping import StepsOfAll, result
from training.benchmarks.network.pytorch.measuring.timing import Measurement, count_stalls, timer_of
from training.benchmarks.network.pytorch.operations.collectives import Collective
from training.benchmarks.network.pytorch.operations.variants import created

FOLDER = "iterations"
# A step is reported so often, and so many times at most.
LEAST_PERIOD_S, MOST_REPORTS = 10.0, 500


class LongRun:
    """The measurements of a case with the tool soak. All ranks make it together."""

    def __init__(self, run: WorkloadContext[Config]) -> None:
        self._run = run
        self._team = Team.world(run.group)
        collective = created(run.config, self._team)
        self._sizes, self.skipped = fitting_sizes(run, collective)
        need, free = sum(map(collective.memory_bytes, self._sizes)), smallest_available_bytes(run.group)
        if need > free:
            raise UnusableSettingsError(
                f"sizes = {run.config.sizes!r}: a soak keeps the buffers of all sizes: {need / 1e9:.1f} GB a rank are"
                f" needed, {free / 1e9:.1f} GB are free; name fewer"
            )
        self._duration_s = run.config.duration_s
        self._period_s = max(LEAST_PERIOD_S, self._duration_s / MOST_REPORTS)
        self.total_steps = max(1, int(self._duration_s / self._period_s)) * len(self._sizes)
        self.soaks = {size: Soak() for size in self._sizes}
        self._wrong = {size: torch.zeros(1, dtype=torch.int64, device=run.group.device) for size in self._sizes}
        self._checked = dict.fromkeys(self._sizes, 0)
        self._reported = 0

    def forecast(self, output: Output) -> dict[str, Any]:
        """The duration that was asked for."""
        return {"predicted_s": self._duration_s}

    def steps(self, output: Output) -> Iterator[dict[str, Any]]:
        """Measure until the time is over; yields a STEP_END of each size in each period, of its last batch."""
        output.header(self._run.config.collective, CONVENTION)
        is_first = self._team.rank == 0
        file = IterationFile(output.folder / FOLDER) if is_first and output.folder is not None else None
        steps, begin = StepsOfAll(self._run, output), time.perf_counter()
        reported = 0.0
        is_over = is_due = False
        collectives = {size: created(self._run.config, self._team) for size in self._sizes}
        exact = {size: collective.prepare(size) for size, collective in collectives.items()}
        while not is_over:
            for place, (size, collective) in enumerate(collectives.items()):
                at_s = time.perf_counter() - begin
                times_us, *flags = self._batch(size, collective, begin, reported)
                # The first size decides for all, so that each report, and the last, has every size's iterations.
                is_over, is_due = flags if place == 0 else (is_over, is_due)
                if is_first:
                    self.soaks[size].add(at_s, times_us)
                if file is not None:
                    file.append(at_s, size, times_us)
                if is_due or is_over:
                    yield self._report(steps, size, exact[size], times_us)
            if is_due:
                reported += self._period_s
        if file is not None:
            file.close()

    def _batch(
        self, size: int, collective: Collective, begin: float, reported: float
    ) -> tuple[NDArray[np.float64], bool, bool]:
        """One batch: times of the slowest rank in microseconds; whether the run is over; whether a report is due.

        The last two are the same on every rank.
        """
        config, team = self._run.config, self._team
        elapsed_s = timer_of(team)
        collective.refill()
        elapsed_s(collective.run, team)
        found = collective.wrong_elements() if config.check else None
        if found is not None:
            self._wrong[size] += found
            self._checked[size] += 1
        times_s = [elapsed_s(collective.run, team) for _ in range(config.iterations)]
        now = time.perf_counter() - begin
        flags = [float(now >= self._duration_s), float(now >= reported + self._period_s)]
        together = slowest_rank(np.array([*times_s, *flags]), team)
        return together[:-2] * MICROSECONDS, bool(together[-2]), bool(together[-1])

    def _report(self, steps: StepsOfAll, size: int, exact: int, times_us: NDArray[np.float64]) -> dict[str, Any]:
        """A step: the times of the last batch, and the wrong elements since the last report."""
        self._reported += 1
        total, collective = max(self._reported, self.total_steps), self._run.config.collective
        place = {"step": self._reported, "total_steps": total, "collective": collective}
        return steps.step(place, partial(self._since_the_last, size, exact, times_us))

    def _since_the_last(self, size: int, exact: int, times_us: NDArray[np.float64]) -> dict[str, Any]:
        measured = Measurement(
            time_us=statistics(times_us),
            stalled_iterations=count_stalls(times_us),
            wrong_elements=of_every_rank(self._wrong[size], self._team) if self._checked[size] else None,
            checked_iterations=self._checked[size],
        )
        self._wrong[size].zero_()
        self._checked[size] = 0
        soak = self.soaks[size]
        own = {"size": _name(size), "histogram": soak.news(), "max_us": soak.longest_us}
        return {**result(self._run.config, self._team, exact, measured), "soak": own}

    def changes(self) -> dict[str, list[list[float]]]:
        """On rank 0 the changes of each size's level: seconds since the start, microseconds before and after."""
        return {
            _name(size): [[each.at_s, each.before_us, each.after_us] for each in soak.changes()]
            for size, soak in self.soaks.items()
        }


def _name(size: int) -> str:
    return format_size(size) if size else "barrier"
