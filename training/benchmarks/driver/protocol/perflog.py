"""PerfLog: the lines by which a rank tells what happens, `[PerfLog] {"event": ..., "value": ..., "metadata": {...}}`.

Written by every rank on its hosts and read on the head node with the same models; needs pydantic only.
"""

import io
import json
import math
import os
import sys
import threading
import time
from collections.abc import Mapping
from enum import StrEnum
from typing import TextIO

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from training.benchmarks.driver.protocol import safe_json
from training.benchmarks.driver.protocol.pulse import note_event

PREFIX = "[PerfLog] "
SCHEMA_VERSION = 1


class Event(StrEnum):
    """What a line reports; the names are FlagPerf's."""

    SUBMIT_INFO = "SUBMIT_INFO"
    LAUNCH_TRAINING = "LAUNCH_TRAINING"
    INIT_START = "INIT_START"
    INIT_END = "INIT_END"
    INIT_EVALUATION = "INIT_EVALUATION"
    TRAIN_START = "TRAIN_START"
    EPOCH_BEGIN = "EPOCH_BEGIN"
    STEP_BEGIN = "STEP_BEGIN"
    STEP_END = "STEP_END"
    EVALUATE = "EVALUATE"
    EPOCH_END = "EPOCH_END"
    TRAIN_END = "TRAIN_END"
    FINISHED = "FINISHED"


_ENCODER = json.JSONEncoder(allow_nan=False)
_SHOWN_CHARACTERS = 200  # of a line that is wrong


class PerfLogError(ValueError):
    """A line that starts like a PerfLog line and is none, or a value that JSON cannot hold."""


class Metadata(BaseModel):
    """Where and when a record was written: source file and line, epoch milliseconds, global rank."""

    model_config = ConfigDict(frozen=True)

    file: str
    lineno: int = Field(ge=0)
    time_ms: int = Field(ge=0)
    rank: int = Field(ge=0)


class PerfLogRecord(BaseModel):
    """One line. `value` is any JSON; `step` and `other` stand only in FlagPerf's own logs. Further keys are kept.

    JSON has no NaN and no infinities: such numbers stand as the strings "NaN", "Infinity" and "-Infinity", which
    float() turns back into numbers.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    event: Event
    value: JsonValue = None
    metadata: Metadata
    step: int | None = None
    other: str | None = None


class SubmitInfo(BaseModel):
    """The value of SUBMIT_INFO: what runs, with which settings, where. `config` is the whole resolved case config."""

    model_config = ConfigDict(frozen=True, extra="allow")

    schema_version: int = SCHEMA_VERSION
    vendor: str | None
    model: str
    framework: str
    case: str | None
    config: dict[str, JsonValue]
    world_size: int = Field(ge=1)
    nnodes: int = Field(ge=1)
    torch: str
    backend: str


def parse_line(line: str) -> PerfLogRecord | None:
    """The record of one line of a rank's log, or None for ordinary output.

    A progress bar or another thread may have left text before the prefix on the same line; that is no mistake. The JSON
    is read by safe_json.

    Raises:
        PerfLogError: the prefix is there and no valid record follows; the message holds the line's beginning.
    """
    start = 0 if line.startswith(PREFIX) else line.find(PREFIX + "{")
    if start < 0:
        return None
    text = line[start + len(PREFIX) :].strip()
    try:
        return PerfLogRecord.model_validate(safe_json.load(text))
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'line'}: {e['msg']}" for e in error.errors())
        raise PerfLogError(f"not a PerfLog record: {wrong}: {text[:_SHOWN_CHARACTERS]!r}") from error
    except safe_json.UnsafeJsonError as error:
        raise PerfLogError(f"not a PerfLog record: {error}: {text[:_SHOWN_CHARACTERS]!r}") from error


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
        return value if math.isfinite(value) else _non_finite_name(value)
    if isinstance(value, Mapping):
        keys = [key for key in value if not isinstance(key, str)]
        if keys:
            raise PerfLogError(f"{where}: the key {keys[0]!r} is a {type(keys[0]).__name__}; allowed: strings")
        return {key: json_value(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item, f"{where}[{index}]") for index, item in enumerate(value)]
    raise PerfLogError(f"{where}: {value!r} is a {type(value).__name__}, which JSON cannot hold")


class PerfLogger:
    """Writes the PerfLog lines of one rank; safe to use from several threads."""

    def __init__(self, rank: int, stream: TextIO | None = None) -> None:
        """`rank` is the global rank; without `stream` the lines go to sys.stdout as it is at each call."""
        self.rank = rank
        self._stream = stream
        self._lock = threading.Lock()

    def log(self, event: Event, value: object = None) -> None:
        """Write one line, whole and at once, stamped with the caller's file and line.

        Raises:
            PerfLogError: `value` is no JSON; nothing is written then.
        """
        caller = sys._getframe(1)
        metadata = {
            "file": caller.f_code.co_filename,
            "lineno": caller.f_lineno,
            "time_ms": time.time_ns() // 1_000_000,
            "rank": self.rank,
        }
        line = _format(event, value, {}, metadata) + "\n"
        with self._lock:
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


def _non_finite_name(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
