"""Writes the files of one monitor: text logs in FlagPerf's form for people, monitor.jsonl for programs."""

import errno
import json
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

SCHEMA_VERSION = 1
JSONL = "monitor.jsonl"
READINGS, BOTH_CLOCKS_S = 5, 0.001


class Stamp(NamedTuple):
    """One moment on both clocks: epoch milliseconds (comparable with PerfLog) and monotonic seconds (no steps)."""

    t_ms: int
    monotonic_s: float


def now() -> Stamp:
    """The present time on both clocks, read without a pause between them that would look like a clock step."""
    for _ in range(READINGS):
        before = time.monotonic()
        epoch_ns = time.time_ns()
        after = time.monotonic()
        if after - before < BOTH_CLOCKS_S:
            break
    return Stamp(epoch_ns // 1_000_000, after)


class SampleSink:
    """Writes into one folder, each line with one call: a killed monitor loses at most the last line.

    Raises:
        FileExistsError: another monitor has written there; every round has a folder of its own.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._logs: dict[str, _Lines] = {}
        self._jsonl = _Lines(directory / JSONL)

    def record(self, stamp: Stamp, source: str, **fields: Any) -> None:
        """Adds {"schema", "t_ms", "monotonic_s", "source", **fields} to monitor.jsonl."""
        line = {"schema": SCHEMA_VERSION, "t_ms": stamp.t_ms, "monotonic_s": round(stamp.monotonic_s, 6)}
        self._jsonl.write(json.dumps(line | {"source": source} | fields, separators=(",", ":")))

    def header(self, log: str, columns: Sequence[str]) -> None:
        """Opens a text log, once, with a comment that names its columns."""
        if log and log not in self._logs:
            self._logs[log] = _Lines(self._directory / log)
            self._logs[log].write("\t".join(["# time", *columns]))

    def rows(self, stamp: Stamp, log: str, rows: Iterable[Sequence[Any]]) -> None:
        """Adds `time<TAB>value<TAB>...` lines; a value that a device does not have reads n/a."""
        if not log:
            return
        moment = datetime.fromtimestamp(stamp.t_ms / 1000).astimezone().isoformat(timespec="milliseconds")
        for row in rows:
            cells = ("n/a" if value is None else str(value) for value in row)
            self._logs[log].write("\t".join([moment, *cells]))

    def comment(self, log: str, text: str) -> None:
        """Adds a `# text` line to a text log."""
        if log:
            self._logs[log].write(f"# {text}")

    def close(self) -> None:
        """Closes every file."""
        for lines in [*self._logs.values(), self._jsonl]:
            lines.close()


class _Lines:
    """A new file that takes whole lines, each with one system call and no buffer that could be lost or fail later."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("xb", buffering=0)

    def write(self, line: str) -> None:
        data = f"{line}\n".encode()
        if self._file.write(data) != len(data):
            raise OSError(errno.ENOSPC, "written in part", str(self._path))

    def close(self) -> None:
        self._file.close()
