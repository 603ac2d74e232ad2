"""docs/data/performance.csv, which docs/reference/performance.md shows: one table for each measurement."""

import csv
import datetime
import io
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import psutil

from tests.performance.rows import Row

COLUMNS = ("measurement", "date", "machine", "what", "measured", "baseline", "ratio", "goal", "met")
Table = list[dict[str, str]]
"""The rows of one measurement, by column."""


def describe_machine() -> str:
    """CPU model, cores this process may use, memory and operating system, in one line."""
    cores = len(os.sched_getaffinity(0))
    gigabytes = psutil.virtual_memory().total / 1e9
    system = platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    return f"{_cpu_model()}, {cores} cores, {gigabytes:.0f} GB, {system}, Linux {platform.release()}"


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def tabulated(name: str, rows: Iterable[Row], machine: str, *, today: datetime.date | None = None) -> Table:
    """The table of one measurement."""
    date = today or datetime.datetime.now(tz=datetime.UTC).date()
    same = {"measurement": name, "date": date.isoformat(), "machine": machine}
    return [
        {
            **same,
            "what": row.what,
            "measured": row.measured,
            "baseline": row.baseline,
            "ratio": f"{row.ratio:.2f}",
            "goal": row.goal,
            "met": "yes" if row.met else "no",
        }
        for row in rows
    ]


def as_text(rows: Sequence[Mapping[str, str]]) -> str:
    """Rows as CSV, with the names of the columns."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def read_tables(file: Path) -> dict[str, Table]:
    """The tables of a file, by measurement.

    Raises:
        OSError: the file cannot be read.
        ValueError: it has other columns.
    """
    with file.open(encoding="utf-8", newline="") as lines:
        reader = csv.DictReader(lines)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise ValueError(f"expected the columns {', '.join(COLUMNS)}, found {reader.fieldnames}")
        found: dict[str, Table] = {}
        for row in reader:
            found.setdefault(row["measurement"], []).append(row)
    return found


def write_tables(file: Path, tables: Mapping[str, Table]) -> None:
    """Write a file of these tables, at once or not at all."""
    temporary = file.with_name(f"{file.name}.new")
    temporary.write_text(as_text([row for table in tables.values() for row in table]), encoding="utf-8")
    temporary.replace(file)
