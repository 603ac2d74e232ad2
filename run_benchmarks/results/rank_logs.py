"""Reads the log of one rank as a stream: the PerfLog records that a round needs, mistakes in them, and its end."""

import os
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from common.reading import open_regular
from protocol.perflog import (
    MAX_TOLD,
    Event,
    FoundLine,
    LineFinder,
    PerfLogError,
    PerfLogRecord,
    SequenceCheck,
    find_lines,
    parse_line,
)
from run_benchmarks.errors import tail
from run_benchmarks.results.step_curves import StepBuckets

# Limits for rank 0's STEP_END: the number of records kept, and the memory of their values at this many bytes each.
MAX_STEPS = 50_000
MAX_STEP_MEMORY = 256 << 20
_MEMORY_PER_VALUE = 64
MAX_STEP_LINES = 500_000  # of which number and times are kept, 12 MiB
MAX_BAD = 10_000  # lines that are no record, which cost more time than others: a log with more is read no further
MAX_NUMBER = (1 << 63) - 1
TAIL_BYTES = 64 << 10
SHOWN_CHARACTERS = 200  # of a line that is too long


class StepLines:
    """Number, begin and end (epoch ms) of each STEP_END in the order of the log; without a number (0) or STEP_BEGIN
    (the time of its end) where these are not there.
    """

    def __init__(self) -> None:
        self._numbers = array("q")
        self._begin_ms: int | None = None

    def __len__(self) -> int:
        return len(self._numbers) // 3

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        numbers = iter(self._numbers)
        return zip(numbers, numbers, numbers, strict=True)

    def add(self, record: PerfLogRecord) -> None:
        """Take the next record of the log, of any event."""
        if record.event is Event.STEP_BEGIN:
            self._begin_ms = record.metadata.time_ms
        if record.event is not Event.STEP_END:
            return
        number = record.value.get("step") if isinstance(record.value, dict) else None
        if not isinstance(number, int) or isinstance(number, bool) or not 0 < number <= MAX_NUMBER:
            number = 0
        end_ms = min(record.metadata.time_ms, MAX_NUMBER)
        begin_ms, self._begin_ms = min(self._begin_ms or end_ms, MAX_NUMBER), None
        self._numbers.extend((number, begin_ms, end_ms))


@dataclass(frozen=True, kw_only=True)
class RankLog:
    """One rank's log.

    latest: the last record of each event, in the order of the log. steps: the values of STEP_END that are objects, if
    asked for. step_lines: number and times of each STEP_END, if asked for; None if there are too many. buckets: the
    steps, aggregated. counts: number of records of each event. problems: violated rules. cut: what was left out, in
    words. torn: the text of a last line that was cut off, which is no problem. tail: the last lines. is_cut: a limit of
    the collection left its beginning and end, so that an event which is not there may have been logged.
    """

    rank: int
    latest: dict[Event, PerfLogRecord] = field(default_factory=dict)
    steps: list[dict[str, Any]] = field(default_factory=list)
    step_lines: StepLines | None = None
    buckets: StepBuckets = field(default_factory=StepBuckets)
    counts: Counter[Event] = field(default_factory=Counter)
    problems: tuple[str, ...] = ()
    cut: tuple[str, ...] = ()
    torn: str | None = None
    tail: str = ""
    is_cut: bool = False

    def value(self, event: Event) -> dict[str, Any] | None:
        """The value of the last record of that event, if it is an object."""
        record = self.latest.get(event)
        return dict(record.value) if record is not None and isinstance(record.value, dict) else None


def rank_log_name(rank: int) -> str:
    """The log file of a global rank, with FlagPerf's name."""
    return f"rank{rank}.out.log"


def read_rank_log(directory: Path, rank: int, *, with_steps: bool = True, is_cut: bool = False) -> RankLog:
    """Read one rank's log; a missing file and bad lines are problems, never exceptions.

    The file is read in pieces: memory is bounded by that of the steps, and time is linear in its size.
    """
    try:
        with _open(directory, rank) as file:
            return _Reader(rank, with_steps, is_cut).read(file)
    except OSError as error:
        return RankLog(rank=rank, problems=(f"no log: {error}",))


def rank_log_end(directory: Path, rank: int, size: int) -> str:
    """The last `size` bytes of a rank's log, or "" without one."""
    try:
        with _open(directory, rank) as file:
            return _end(file, size)
    except OSError:
        return ""


def _open(directory: Path, rank: int) -> BinaryIO:
    return open_regular(directory / rank_log_name(rank))


def _end(file: BinaryIO, size: int) -> str:
    file.seek(0, os.SEEK_END)
    file.seek(max(0, file.tell() - size))
    return file.read(size).decode("utf-8", errors="replace")


class _Reader:
    """Reads one log; use once."""

    def __init__(self, rank: int, with_steps: bool, is_cut: bool) -> None:
        self._rank, self._with_steps, self._is_cut = rank, with_steps, is_cut
        self._check = SequenceCheck()
        self._counts: Counter[Event] = Counter()
        self._latest: dict[Event, PerfLogRecord] = {}
        self._steps: list[dict[str, Any]] = []
        self._lines: StepLines | None = StepLines() if with_steps else None
        self._buckets = StepBuckets()
        self._step_memory = self._steps_left_out = 0
        self._bad: list[str] = []
        self._bad_left_out = 0

    def read(self, file: BinaryIO) -> RankLog:
        finder = LineFinder()
        for line in find_lines(file, finder):
            self._take_line(line)
            if self._bad_left_out >= MAX_BAD:
                break
        rest = finder.rest() if self._bad_left_out < MAX_BAD else None
        return RankLog(
            rank=self._rank,
            latest=self._latest,
            steps=self._steps,
            step_lines=self._lines,
            buckets=self._buckets,
            counts=self._counts,
            problems=tuple(self._problems()),
            cut=tuple(self._cut()),
            torn=None if rest is None else rest.text,
            tail=tail(_end(file, TAIL_BYTES)),
            is_cut=self._is_cut,
        )

    def _take_line(self, line: FoundLine) -> None:
        try:
            if line.cut_bytes:
                size, beginning = len(line.data) + line.cut_bytes, line.text[:SHOWN_CHARACTERS]
                raise PerfLogError(f"a PerfLog line of {size} bytes; allowed: {len(line.data)}: {beginning!r}")
            record = parse_line(line.text)
        except PerfLogError as error:
            if len(self._bad) < MAX_TOLD:
                self._bad.append(str(error))
            else:
                self._bad_left_out += 1
            return
        if record is not None:
            self._take(record, line)

    def _take(self, record: PerfLogRecord, line: FoundLine) -> None:
        self._check.add(record)
        self._counts[record.event] += 1
        self._latest.pop(record.event, None)
        self._latest[record.event] = record
        self._buckets.add(record)
        if self._lines is not None:
            self._lines.add(record)
            self._lines = self._lines if len(self._lines) <= MAX_STEP_LINES else None
        if record.event is not Event.STEP_END or not self._with_steps or not isinstance(record.value, dict):
            return
        values = sum(map(line.data.count, (b"[", b"{", b",")))
        self._step_memory += len(line.data) + values * _MEMORY_PER_VALUE
        if len(self._steps) < MAX_STEPS and self._step_memory <= MAX_STEP_MEMORY:
            self._steps.append(record.value)
        else:
            self._steps_left_out += 1

    def _problems(self) -> list[str]:
        more = [f"and {self._bad_left_out} more lines that are no record"] if self._bad_left_out else []
        return [*self._bad, *more, *([] if self._is_cut else self._check.broken())]

    def _cut(self) -> list[str]:
        gap = ["its beginning and end were collected: what was logged between them is missing"] if self._is_cut else []
        unread = [] if self._bad_left_out < MAX_BAD else [f"nothing is read after {MAX_BAD} lines that are no record"]
        if not self._steps_left_out:
            return [*gap, *unread]
        return [
            *gap,
            *unread,
            f"{self._steps_left_out} of {len(self._steps) + self._steps_left_out} steps are not in this record, which"
            f" holds {MAX_STEPS} and {MAX_STEP_MEMORY >> 20} MiB of them at most: the log has all",
        ]
