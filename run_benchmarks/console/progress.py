"""Shows live progress of a round from rank 0's PerfLog: case, round, step, loss or bandwidth, elapsed, time left."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any, TypeGuard

from rich.live import Live
from rich.text import Text

from protocol.perflog import Event, LineFinder, PerfLogError, PerfLogRecord, parse_line
from run_benchmarks.console.console import LOG, outliving
from run_benchmarks.console.terminal import CONSOLE

LOG_EVERY_SECONDS = 10.0
SHOWN = ("busbw_GBps", "loss", "tokens/s", "seq/s", "size_bytes")
STEP_KEYS = ("step", "global_steps")


class LiveProgress:
    """Follows a round: one line redrawn on a terminal; elsewhere, or beside it, a log line every LOG_EVERY_SECONDS."""

    _on_screen = threading.Lock()

    def __init__(self, case: str, round_index: int, rounds: int) -> None:
        self._title = f"{case} round {round_index}/{rounds}"
        self._started = time.monotonic()
        self._lock = threading.Lock()
        self._finder = LineFinder()
        self._total: int | None = None
        self._step = 0
        self._stepping_since: float | None = None
        self._phase = "starting"
        self._values: dict[str, Any] = {}
        self._logged = self._started
        self._is_live = False
        self._live = Live(get_renderable=self._render, console=CONSOLE, refresh_per_second=4, transient=True)

    def __enter__(self) -> LiveProgress:
        self._is_live = sys.stdout.isatty() and LiveProgress._on_screen.acquire(blocking=False)
        if self._is_live:
            with outliving():
                self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_live:
            self._is_live = False
            try:
                with outliving():
                    self._live.stop()
            finally:
                LiveProgress._on_screen.release()

    def feed(self, chunk: bytes) -> None:
        """Take a piece of rank 0's log, cut anywhere. One thread feeds; others may ask meanwhile."""
        for line in self._finder.feed(chunk):
            try:
                record = parse_line(line.text)
            except PerfLogError:
                continue  # reported when the round is judged
            if record is not None:
                with self._lock:
                    self._take(record)

    def _take(self, record: PerfLogRecord) -> None:
        value = record.value if isinstance(record.value, dict) else {}
        self._phase = {Event.INIT_START: "initialising", Event.FINISHED: "finished"}.get(record.event, self._phase)
        if record.event is Event.TRAIN_START:
            self._phase, self._stepping_since = "running", time.monotonic()
        total = value.get("total_steps")
        if _is_count(total):
            self._total = total
        if record.event is Event.STEP_END:
            counts = (value.get(key) for key in STEP_KEYS)
            self._step = next((count for count in counts if _is_count(count)), self._step + 1)
            self._values = {key: value[key] for key in SHOWN if isinstance(value.get(key), int | float)}

    def tick(self) -> None:
        """Update the display; call it periodically while the round runs."""
        now = time.monotonic()
        if not self._is_live and now - self._logged >= LOG_EVERY_SECONDS:
            self._logged = now
            LOG.info(self.line())

    def line(self) -> str:
        """The progress as one line of text."""
        with self._lock:
            now = time.monotonic()
            parts = [self._title, self._phase]
            if self._step:
                parts.append(f"step {self._step}" + (f"/{self._total}" if self._total else ""))
            parts += [f"{name} {value:.4g}" for name, value in self._values.items()]
            parts.append(f"elapsed {clock(now - self._started)}")
            if self._total and self._step and self._stepping_since is not None:
                left = (now - self._stepping_since) / self._step * max(0, self._total - self._step)
                parts.append(f"left about {clock(left)}")
            return " | ".join(parts)

    def _render(self) -> Text:
        return Text(self.line())


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def clock(seconds: float) -> str:
    """Seconds as 0:05 or 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
