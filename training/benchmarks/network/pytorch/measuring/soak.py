"""Repeats an operation for hours: jitter, changes of the level, every iteration in a file, in constant memory.

The file is a folder of one growing NumPy file per column, which `numpy.load(path, mmap_mode="r")` reads.
"""

import io
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from common.bandwidth import CONVENTION
from common.statistics import MAD
from common.units import format_size
from training.benchmarks.driver.workload.memory import smallest_available_bytes
from training.benchmarks.driver.workload.run_context import WorkloadContext
from training.benchmarks.driver.workload.statistics import MICROSECONDS, statistics
from training.benchmarks.driver.workload.team import Team, of_every_rank, slowest_rank
from training.benchmarks.driver.workload.usage import UnusableSettingsError
from training.benchmarks.network.pytorch.config import Config
from training.benchmarks.network.pytorch.measuring.memory import fitting_sizes
from training.benchmarks.network.pytorch.measuring.output import Output
from training.benchmarks.network.pytorch.measuring.stepping import StepsOfAll, result
from training.benchmarks.network.pytorch.measuring.timing import Measurement, count_stalls, timer_of
from training.benchmarks.network.pytorch.operations.collectives import Collective
from training.benchmarks.network.pytorch.operations.variants import created
from training.benchmarks.network.reporting.answers import PER_OCTAVE

# Bins of a histogram: 8 per power of two, from 1 us to 2**31 us; what is shorter or longer is in the first and last.
OCTAVES = 31
# Windows of a run; two are joined into one when there are more.
MOST_WINDOWS = 512
# A change is a step between two stretches of windows beyond this many standard errors, and this share of the level.
_DEVIATIONS, _LEAST_SHARE, _SHORTEST = 6.0, 0.05, 4
_HEADER_BYTES = 128


class ColumnFile:
    """One column in NumPy's format, to which values are appended. It holds `count` values after each append."""

    def __init__(self, path: Path, dtype: str) -> None:
        self._dtype = np.dtype(dtype)
        self._file = path.open("wb")
        self.count = 0
        self._write_header()

    def append(self, values: NDArray[np.generic]) -> None:
        """Add `values`, shape (n,); the header follows them, so that a reader never sees more than is there."""
        self._file.seek(0, io.SEEK_END)
        self._file.write(np.ascontiguousarray(values, dtype=self._dtype).tobytes())
        self.count += len(values)
        self._file.seek(0)
        self._write_header()
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write_header(self) -> None:
        text = f"{{'descr': '{self._dtype.str}', 'fortran_order': False, 'shape': ({self.count},), }}"
        magic = b"\x93NUMPY\x01\x00"
        room = _HEADER_BYTES - len(magic) - 2
        self._file.write(magic + room.to_bytes(2, "little") + text.encode().ljust(room - 1) + b"\n")


COLUMNS: Final = {"at_s": "<f8", "size_bytes": "<i8", "time_us": "<f4"}


class IterationFile:
    """Every iteration in a folder of COLUMNS: seconds since the start, size in bytes, time in microseconds."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._columns = {name: ColumnFile(folder / f"{name}.npy", dtype) for name, dtype in COLUMNS.items()}

    def append(self, at_s: float, size_bytes: int, times_us: NDArray[np.float64]) -> None:
        """Add the iterations of a batch of one size that began at `at_s`; each begins when the one before ends."""
        begins = at_s + np.concatenate(([0.0], np.cumsum(times_us[:-1]))) / 1e6
        self._columns["at_s"].append(begins)
        self._columns["size_bytes"].append(np.full(len(times_us), size_bytes))
        self._columns["time_us"].append(times_us)

    def close(self) -> None:
        """Close the columns."""
        for column in self._columns.values():
            column.close()


@dataclass(frozen=True, kw_only=True, slots=True)
class LevelChange:
    """A step of the level: seconds since the start, and the level in microseconds before and after it."""

    at_s: float
    before_us: float
    after_us: float


@dataclass(slots=True)
class _Window:
    """Median time of a stretch of the run, in microseconds; `batches` were joined in it."""

    at_s: float
    level_us: float
    batches: int = 1


@dataclass(slots=True)
class Soak:
    """The statistics of one size: a histogram of all its times, and the level of at most MOST_WINDOWS windows."""

    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(PER_OCTAVE * OCTAVES, dtype=np.int64))
    longest_us: float = 0.0
    _told: NDArray[np.int64] = field(default_factory=lambda: np.zeros(PER_OCTAVE * OCTAVES, dtype=np.int64))
    _windows: list[_Window] = field(default_factory=list)
    _width: int = 1

    def add(self, at_s: float, times_us: NDArray[np.float64]) -> None:
        """Take the times of a batch, microseconds, shape (n,), that began at `at_s` seconds."""
        bins = np.clip(np.log2(np.maximum(times_us, 1e-9)) * PER_OCTAVE, 0, len(self.counts) - 1).astype(np.int64)
        self.counts += np.bincount(bins, minlength=len(self.counts))
        self.longest_us = max(self.longest_us, float(times_us.max()))
        level = float(np.median(times_us))
        last = self._windows[-1] if self._windows else None
        if last is not None and last.batches < self._width:
            last.level_us = (last.level_us * last.batches + level) / (last.batches + 1)
            last.batches += 1
            return
        self._windows.append(_Window(at_s, level))
        if len(self._windows) > MOST_WINDOWS:
            self._width *= 2
            self._windows = [_joined(self._windows[begin : begin + 2]) for begin in range(0, len(self._windows), 2)]

    def news(self) -> list[list[float]]:
        """The histogram of the iterations since the last call: [lower end in microseconds, iterations] of each bin."""
        new, self._told = self.counts - self._told, self.counts.copy()
        return [[round(2.0 ** (k / PER_OCTAVE), 3), int(count)] for k, count in enumerate(new) if count]

    def changes(self) -> list[LevelChange]:
        """The steps of the level, in order of time."""
        return change_points([each.at_s for each in self._windows], [each.level_us for each in self._windows])


def _joined(windows: Sequence[_Window]) -> _Window:
    batches = sum(each.batches for each in windows)
    level = sum(each.level_us * each.batches for each in windows) / batches
    return _Window(windows[0].at_s, level, batches)


def change_points(at_s: Sequence[float], levels_us: Sequence[float]) -> list[LevelChange]:
    """Steps in a series of levels (microseconds) at times (seconds), by binary segmentation of their logarithms.

    The noise is that of differences between neighbours, which a step hardly changes: 1.4826 * their MAD / sqrt(2).

    Source: Scott and Knott, "A cluster analysis method for grouping means in the analysis of variance" (1974).
    """
    logs = np.log(np.maximum(np.asarray(levels_us, dtype=np.float64), 1e-9))
    if len(logs) < 2 * _SHORTEST:
        return []
    noise = MAD * median(np.abs(np.diff(logs)).tolist()) / math.sqrt(2)
    # A running median of five takes single spikes out and leaves steps where they are.
    calm = np.median(np.lib.stride_tricks.sliding_window_view(np.pad(logs, 2, mode="edge"), 5), axis=1)
    edges = sorted(_splits(calm, 0, len(logs), max(noise, 1e-6)))
    ends = [0, *edges, len(logs)]
    means = [math.exp(float(np.median(logs[begin:end]))) for begin, end in pairwise(ends)]
    return [
        LevelChange(at_s=at_s[edge], before_us=before, after_us=after)
        for edge, (before, after) in zip(edges, pairwise(means), strict=True)
    ]


def _splits(logs: NDArray[np.float64], begin: int, end: int, noise: float) -> list[int]:
    """The places between `begin` and `end` where a new level begins."""
    count = end - begin
    if count < 2 * _SHORTEST:
        return []
    part = logs[begin:end]
    left = np.arange(_SHORTEST, count - _SHORTEST + 1)
    sums = np.cumsum(part)
    steps = np.abs((sums[-1] - sums[left - 1]) / (count - left) - sums[left - 1] / left)
    scores = steps / np.sqrt(1 / left + 1 / (count - left))
    best = int(np.argmax(scores))
    if scores[best] < _DEVIATIONS * noise or steps[best] < math.log1p(_LEAST_SHARE):
        return []
    place = begin + int(left[best])
    return [*_splits(logs, begin, place, noise), place, *_splits(logs, place, end, noise)]


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
