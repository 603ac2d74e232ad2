"""Repeats an operation for hours: jitter, changes of the level, every iteration in a file, in constant memory."""

import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from common.units import format_size
from protocol.bandwidth import CONVENTION
from protocol.perflog import Event
from training.benchmarks.driver.workload.memory import smallest_available_bytes
from training.benchmarks.driver.workload.run_context import WorkloadContext
from training.benchmarks.driver.workload.statistics import MICROSECONDS, statistics
from training.benchmarks.driver.workload.team import Team, of_every_rank, slowest_rank
from training.benchmarks.driver.workload.usage import UnusableSettingsError
from training.benchmarks.network.patterns.schedule import rounds
from training.benchmarks.network.pytorch.config import Config
from training.benchmarks.network.pytorch.measuring.lineup import line_up
from training.benchmarks.network.pytorch.measuring.memory import fitting_sizes
from training.benchmarks.network.pytorch.measuring.output import Output
from training.benchmarks.network.pytorch.measuring.soaking import IterationFile, Soak
from training.benchmarks.network.pytorch.measuring.stepping import group_place, result
from training.benchmarks.network.pytorch.measuring.timing import Measurement, count_stalls, timer_of
from training.benchmarks.network.pytorch.operations.collectives import Collective
from training.benchmarks.network.pytorch.operations.variants import created
from training.benchmarks.network.reporting.answers import jitter

FOLDER = "iterations"
# A step is reported so often, and so many times at most.
LEAST_PERIOD_S, MOST_REPORTS = 10.0, 500


class LongRun:
    """The measurements of a case with the tool soak. All ranks make it together."""

    def __init__(self, run: WorkloadContext[Config]) -> None:
        self._run = run
        self._team = Team.world(run.group)
        self._place = group_place(rounds("all", line_up(run.group))[0].groups[0])
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

    def forecast(self, output: Output) -> dict[str, Any]:
        """The duration that was asked for."""
        return {"predicted_s": self._duration_s}

    def steps(self, output: Output) -> Iterator[dict[str, Any]]:
        """Measure until the time is over; yields a STEP_END of each size in each period, of its last batch."""
        output.header(self._run.config.collective, CONVENTION)
        is_first = self._team.rank == 0
        file = IterationFile(output.folder / FOLDER) if is_first and output.folder is not None else None
        numbers, begin = count(1), time.perf_counter()
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
                    yield self._report(next(numbers), size, exact[size], times_us, output)
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

    def _report(
        self, step: int, size: int, exact: int, times_us: NDArray[np.float64], output: Output
    ) -> dict[str, Any]:
        """A step: the times of the last batch, and the wrong elements since the last report."""
        config, logger = self._run.config, self._run.logger
        place = {"step": step, "total_steps": max(step, self.total_steps), "collective": config.collective}
        logger.log(Event.STEP_BEGIN, place)
        measured = Measurement(
            time_us=statistics(times_us),
            stalled_iterations=count_stalls(times_us),
            wrong_elements=of_every_rank(self._wrong[size], self._team) if self._checked[size] else None,
            checked_iterations=self._checked[size],
        )
        self._wrong[size].zero_()
        self._checked[size] = 0
        value = {**place, **result(config, self._team, exact, measured), **self._place}
        value |= {"pattern": "all", "repeat": 1, "round": "all"}
        if self._team.rank == 0:
            soak = self.soaks[size]
            value["soak"] = {"size": _name(size), "histogram": soak.news(), "max_us": soak.longest_us}
            output.step(value)
        logger.log(Event.STEP_END, value if self._team.rank == 0 else place | {"correct": value["correct"]})
        return value

    def conclusion(self) -> tuple[dict[str, Any], list[str]]:
        """(figures for FINISHED, sentences) of rank 0: per size its iterations, quantiles, histogram and changes."""
        found: dict[str, Any] = {}
        sentences = []
        for size, soak in self.soaks.items():
            name = _name(size)
            p50, p99, p999 = (soak.quantile(share) for share in (0.5, 0.99, 0.999))
            changes = soak.changes()
            found[name] = {
                "iterations": int(soak.counts.sum()),
                "p50_us": p50,
                "p99_us": p99,
                "p999_us": p999,
                "max_us": soak.longest_us,
                "histogram": soak.histogram(),
                "changes": [[each.at_s, each.before_us, each.after_us] for each in changes],
            }
            sentences.append(
                f"{name}: {found[name]['iterations']} iterations, p50 {p50:.4g} us, p99 {p99:.4g} us,"
                f" p99.9 {p999:.4g} us, longest {soak.longest_us:.4g} us; "
                + (
                    "; ".join(
                        f"at {each.at_s:.0f} s from {each.before_us:.4g} to {each.after_us:.4g} us" for each in changes
                    )
                    or "its level did not change"
                )
            )
        return {"soak": found, "jitter": jitter(found)}, sentences


def _name(size: int) -> str:
    return format_size(size) if size else "barrier"
