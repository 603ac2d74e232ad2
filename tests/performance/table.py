"""The tables of docs/reference/performance.md: one block a measurement, between two markers, replaced one by one."""

from __future__ import annotations

import datetime
import os
import platform
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import psutil

from tests.performance.rows import Row

BEGIN = "<!-- performance:begin -->"
END = "<!-- performance:end -->"
BLOCK = re.compile(r"<!-- performance:(?P<name>\w+) -->\n.*?(?=\n*<!-- performance:|\Z)", re.DOTALL)
HEADING = re.compile(r"^(?P<date>\*\*\w+\*\*, [\d-]+)(?:, (?P<machine>.+))?$", re.MULTILINE)
COMMON = re.compile(r"\s*Measured on: (?P<machine>.+)\n")
COLUMNS = ("what", "measured", "baseline", "ratio", "goal", "met")


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


def render_block(name: str, rows: Sequence[Row], machine: str, *, today: datetime.date | None = None) -> str:
    """The marker, the line with date and machine, and the table of one measurement, in Markdown."""
    date = today or datetime.datetime.now(tz=datetime.UTC).date()
    cells = [
        (row.what, row.measured, row.baseline, f"{row.ratio:.2f}", row.goal, "yes" if row.met else "**no**")
        for row in rows
    ]
    lines = [_line(COLUMNS), _line("---" for _ in COLUMNS), *map(_line, cells)]
    return f"<!-- performance:{name} -->\n**{name}**, {date.isoformat()}, {machine}\n\n" + "\n".join(lines)


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _split(text: str) -> tuple[str, str, str]:
    """What stands before, between and after the markers.

    Raises:
        ValueError: a marker is missing, stands there twice, or they are the wrong way round.
    """
    for marker in (BEGIN, END):
        if text.count(marker) != 1:
            raise ValueError(f"needs the line {marker} once, it stands there {text.count(marker)} times")
    before, rest = text.split(BEGIN)
    if END not in rest:
        raise ValueError(f"{END} stands before {BEGIN}")
    between, after = rest.split(END)
    return before, between, after


def read_blocks(page: Path) -> dict[str, str]:
    """The blocks that stand in the file, by measurement.

    Raises:
        OSError: the file cannot be read.
        ValueError: its markers are missing or doubled.
    """
    _, between, _ = _split(page.read_text(encoding="utf-8"))
    common = COMMON.match(between)
    whole = HEADING.sub(lambda line: f"{line['date']}, {line['machine'] or (common or line)['machine']}", between)
    return {match["name"]: match[0].rstrip() for match in BLOCK.finditer(whole)}


def replace_blocks(page: Path, blocks: Mapping[str, str]) -> None:
    """Write the blocks between the markers, at once or not at all; the rest of the file stays as it is.

    The machine of most blocks stands once, before them.
    """
    before, _, after = _split(page.read_text(encoding="utf-8"))
    body = "\n\n".join(blocks.values())
    machines = Counter(match["machine"] for match in HEADING.finditer(body))
    if machines:
        [(common, _)] = machines.most_common(1)
        body = f"Measured on: {common}\n\n" + HEADING.sub(
            lambda line: line["date"] if line["machine"] == common else line[0], body
        )
    temporary = page.with_name(f"{page.name}.new")
    temporary.write_text(f"{before}{BEGIN}\n{body}\n{END}{after}", encoding="utf-8")
    temporary.replace(page)
