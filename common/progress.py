"""Progress on stderr, of work that takes longer than two seconds."""

import sys
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TextIO, TypeVar

SILENT_S = 2.0
ON_TERMINAL_S = 0.2
IN_FILE_S = 10.0


Item = TypeVar("Item")
STEP = 1 << 14


def watched(what: str, total: int, items: Iterable[Item], step: int = STEP) -> Iterator[Item]:
    """The items, with progress of how many of about `total` were taken; `step` are between two looks at the clock."""
    with StepProgress(what, total) as progress:
        for number, item in enumerate(items, 1):
            yield item
            if not number % step:
                progress.advance(step)


class StepProgress:
    """Counts steps of `total`; after SILENT_S it shows them: on a terminal in one line, elsewhere a line every 10 s."""

    def __init__(self, what: str, total: int, stream: TextIO | None = None) -> None:
        self._what, self._total, self._done = what, total, 0
        self._stream = sys.stderr if stream is None else stream
        self._next = time.monotonic() + SILENT_S
        self._shown = False

    def __enter__(self) -> "StepProgress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown and self._stream.isatty():
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def advance(self, steps: int = 1) -> None:
        """Count steps, and show them if it is time to."""
        self._done += steps
        now = time.monotonic()
        if now < self._next:
            return
        terminal = self._stream.isatty()
        self._next = now + (ON_TERMINAL_S if terminal else IN_FILE_S)
        percent = 100 * self._done / self._total if self._total else 100
        line = f"{self._what}: {self._done} of {self._total} ({percent:.0f} %)"
        self._stream.write(f"\r\x1b[K{line}" if terminal else f"{line}\n")
        self._stream.flush()
        self._shown = True
