"""The page of a run of 512 hosts with 8 devices each and an hour at 1 Hz: time and memory to write it, time to open it.

Ten cases; the samples are aggregated as when they are collected. The baseline parses the same files and draws nothing.
"""

import resource
import sys
import tempfile
import time
from pathlib import Path

from run_benchmarks.results.curves import CURVES_FILE
from tests.browser import PROGRAM, browser
from tests.performance.peak import run_sound
from tests.performance.rows import Row
from tests.run_benchmarks.report.sample import write_sample

ROOT = Path(__file__).resolve().parents[2]
HOSTS, SMOKE_HOSTS = 512, 3
GOAL_S, GOAL_MEGABYTES, GOAL_PAGE_MB, GOAL_OPEN_S = 30.0, 500.0, 8.0, 3.0
PARSE = "import json, pathlib, sys\nfor name in sys.argv[1:]: json.loads(pathlib.Path(name).read_bytes())"


def measure(*, smoke: bool = False) -> list[Row]:
    """A row for writing the page, and one for opening it where there is a Chromium."""
    hosts = SMOKE_HOSTS if smoke else HOSTS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = write_sample(folder, hosts=hosts, seconds=60 if smoke else 3600)
        curves = [str(path) for path in sorted(run.rglob(CURVES_FILE))]
        least = _cpu_seconds([sys.executable, "-c", PARSE, *curves])[0]
        page = folder / "page.html"
        argv = [sys.executable, str(ROOT / "run_benchmarks/run.py"), "report", str(run), "--output", str(page)]
        cpu, wall, megabytes = _cpu_seconds(argv)
        size = page.stat().st_size / 1e6
        what = f"page of {hosts} hosts with 8 devices, {len(curves)} cases, an hour at 1 Hz"
        written = Row(
            what=f"{what}: to write it",
            measured=f"{cpu:.1f} CPU s ({wall:.1f} s), {megabytes:.0f} MB, a page of {size:.2g} MB",
            baseline=f"{least:.1f} CPU s: its files parsed by json",
            ratio=cpu / least,
            goal=f"under {GOAL_S:g} s of a core, {GOAL_MEGABYTES:g} MB, a page under {GOAL_PAGE_MB:g} MB",
            met=cpu < GOAL_S and megabytes < GOAL_MEGABYTES and size < GOAL_PAGE_MB,
        )
        return [written, *([_opened(what, page)] if PROGRAM is not None else [])]


def _cpu_seconds(argv: list[str]) -> tuple[float, float, float]:
    """CPU seconds, wall seconds and peak megabytes of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    wall, megabytes, _ = run_sound(argv, ROOT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, wall, megabytes


def _opened(what: str, page: Path) -> Row:
    """Opening the page in a new Chromium until its first charts are drawn, beside an empty page."""
    empty = page.with_name("empty.html")
    empty.write_text("<!doctype html><title>empty</title>", encoding="utf-8")
    seconds = []
    for each in (empty, page):
        with browser() as fresh:
            begin = time.monotonic()
            fresh.open(each)
            if each == page:
                fresh.wait("document.querySelectorAll('figure.chart[data-drawn]').length > 0")
            seconds.append(time.monotonic() - begin)
    return Row(
        what=f"{what}: to open it in Chromium until charts are drawn",
        measured=f"{seconds[1]:.2f} s",
        baseline=f"{seconds[0]:.2f} s: an empty page",
        ratio=seconds[1] / seconds[0],
        goal=f"under {GOAL_OPEN_S:g} s",
        met=seconds[1] < GOAL_OPEN_S,
    )
