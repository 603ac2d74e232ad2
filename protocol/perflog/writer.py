"""Writes the PerfLog lines of a rank: values as JSON, each line whole."""

import io
import json
import math
import os
import sys
import threading
import time
from collections.abc import Mapping
from typing import TextIO

from pydantic import JsonValue

from protocol.perflog.record import PREFIX, Event, PerfLogError, PerfLogRecord
from protocol.pulse import note_event
from protocol.safe_json import non_finite_name

_ENCODER = json.JSONEncoder(allow_nan=False)


class PerfLogger:
    """Writes the PerfLog lines of one rank; safe to use from several threads."""

    def __init__(self, rank: int, stream: TextIO | None = None) -> None:
        """`rank` is the global rank; without `stream` the lines go to sys.stdout as it is at each call."""
        self.rank = rank
        self._stream = stream
        self._lock = threading.Lock()
        self._last_ms = 0

    def log(self, event: Event, value: object = None, *, step: int | None = None, other: str | None = None) -> None:
        """Write one line, whole and at once, stamped with the caller's file and line.

        `step` (from 1) and `other` stand beside the value, where FlagPerf's logs have them. While a clock that was set
        back is behind the line before, lines have the time of that one.

        Raises:
            PerfLogError: `value` is no JSON; nothing is written then.
        """
        caller = sys._getframe(1)
        with self._lock:
            time_ms = max(self._last_ms, time.time_ns() // 1_000_000)
            metadata = {
                "file": caller.f_code.co_filename,
                "lineno": caller.f_lineno,
                "time_ms": time_ms,
                "rank": self.rank,
            }
            line = _format(event, value, {"step": step, "other": other}, metadata) + "\n"
            self._last_ms = time_ms
            write_line(self._stream or sys.stdout, line)
            note_event(event.value)


def write_line(stream: TextIO, line: str) -> None:
    """One write(2) of lines that end in a newline: those of other processes or threads never land inside them.

    print writes the newline by itself where Python is unbuffered, as torchrun starts it.
    """
    stream.flush()
    try:
        descriptor = stream.fileno()
    except io.UnsupportedOperation:
        stream.write(line)
        stream.flush()
        return
    data = line.encode()
    while data:
        data = data[os.write(descriptor, data) :]


def format_record(record: PerfLogRecord) -> str:
    """The line of one record, with the prefix and without a line end; non-finite numbers become strings.

    Raises:
        PerfLogError: a value is no JSON; the message names its place.
    """
    more = {name: getattr(record, name) for name in ("step", "other", *(record.model_extra or {}))}
    return _format(record.event, record.value, more, record.metadata.model_dump())


def _format(event: Event, value: object, more: Mapping[str, object], metadata: Mapping[str, object]) -> str:
    fields: dict[str, object] = {"event": event.value}
    if value is not None:
        fields["value"] = json_value(value, f"value of {event}")
    fields |= {name: json_value(extra, name) for name, extra in more.items() if extra is not None}
    fields["metadata"] = metadata
    return PREFIX + _ENCODER.encode(fields)


def json_value(value: object, where: str) -> JsonValue:
    """`value` as JSON: tuples become lists, non-finite floats the strings that `PerfLogRecord` names.

    Raises:
        PerfLogError: JSON cannot hold the value; `where` names the place in the message.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else non_finite_name(value)
    if isinstance(value, Mapping):
        keys = [key for key in value if not isinstance(key, str)]
        if keys:
            raise PerfLogError(f"{where}: the key {keys[0]!r} is a {type(keys[0]).__name__}; allowed: strings")
        return {key: json_value(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item, f"{where}[{index}]") for index, item in enumerate(value)]
    raise PerfLogError(f"{where}: {value!r} is a {type(value).__name__}, which JSON cannot hold")
