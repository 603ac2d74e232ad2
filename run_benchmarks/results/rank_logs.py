"""The logs of one node's ranks: their PerfLog records, and what is wrong with them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from run_benchmarks.errors import tail
from training.benchmarks.driver.perflog import PREFIX, Event, PerfLogError, PerfLogRecord, check_sequence, parse_line


@dataclass(frozen=True, kw_only=True)
class RankLog:
    """One rank's log. `problems` are broken rules; `torn`, which is none, the text of a last line cut off."""

    rank: int
    records: tuple[PerfLogRecord, ...]
    problems: tuple[str, ...]
    torn: str | None
    tail: str

    def value(self, event: Event) -> dict[str, Any] | None:
        """The value of the last record of that event, where it is an object."""
        for record in reversed(self.records):
            if record.event is event and isinstance(record.value, dict):
                return dict(record.value)
        return None

    def values(self, event: Event) -> list[dict[str, Any]]:
        """The values of all records of that event."""
        return [dict(r.value) for r in self.records if r.event is event and isinstance(r.value, dict)]


def rank_log_name(rank: int) -> str:
    """The file of a global rank, the seed's name."""
    return f"rank{rank}.out.log"


def read_rank_log(directory: Path, rank: int) -> RankLog:
    """Read one rank's log; a missing file and bad lines are problems, never exceptions."""
    path = directory / rank_log_name(rank)
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return RankLog(rank=rank, records=(), problems=(f"no log: {error}",), torn=None, tail="")
    lines = text.split("\n")
    last = lines.pop()
    records, problems = [], []
    for line in lines:
        try:
            record = parse_line(line)
        except PerfLogError as error:
            problems.append(str(error))
            continue
        if record is not None:
            records.append(record)
    torn = last if PREFIX.strip() in last else None
    problems += check_sequence(records)
    return RankLog(rank=rank, records=tuple(records), problems=tuple(problems), torn=torn, tail=tail(text))
