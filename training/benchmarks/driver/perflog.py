"""PerfLog: the lines by which a rank tells what happens, `[PerfLog] {"event": ..., "value": ..., "metadata": {...}}`.

Written by every rank on its hosts and read on the head node with the same models; needs pydantic only.
"""

import io
import itertools
import json
import math
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TextIO

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from training.benchmarks.driver.pulse import note_event

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


# Each exactly once and in this order.
_PHASES = (Event.INIT_START, Event.INIT_END, Event.TRAIN_START, Event.TRAIN_END, Event.FINISHED)
_ENCODER = json.JSONEncoder(allow_nan=False)
_TRAINING = (Event.EPOCH_BEGIN, Event.EPOCH_END, Event.STEP_BEGIN, Event.STEP_END, Event.EVALUATE)


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

    A progress bar or another thread may have left text before the prefix on the same line; that is no mistake.
    Raises PerfLogError, with the line's beginning, when the prefix is there and what follows is no valid record.
    """
    start = 0 if line.startswith(PREFIX) else line.find(PREFIX + "{")
    if start < 0:
        return None
    text = line[start + len(PREFIX) :].strip()
    try:
        fields = json.loads(text, parse_constant=_constant_name)
        return PerfLogRecord.model_validate(fields)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'line'}: {e['msg']}" for e in error.errors())
        raise PerfLogError(f"not a PerfLog record: {wrong}: {text[:200]!r}") from error
    except ValueError as error:
        raise PerfLogError(f"not a PerfLog record: {error}: {text[:200]!r}") from error


def format_record(record: PerfLogRecord) -> str:
    """The line of one record, with the prefix and without a line end; non-finite numbers become strings.

    Raises PerfLogError for a value that is no JSON, naming the place in it.
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

    Raises PerfLogError for anything else that JSON cannot hold; `where` names the place in the message.
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

        Raises PerfLogError when `value` is no JSON (nothing is written then).
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


def check_sequence(records: Sequence[PerfLogRecord], *, strict: bool = True) -> list[str]:
    """The broken rules of one rank's log in words; empty when all hold.

    Rules: SUBMIT_INFO exactly once, first, and with a known schema version; INIT_START, INIT_END, TRAIN_START,
    TRAIN_END and FINISHED exactly once each, in this order, FINISHED last; epochs and steps begin and end in turn,
    steps inside epochs where there are epochs, and these and EVALUATE inside the training; one rank; time never goes
    backwards.

    `strict=False` is for FlagPerf's own logs: they may lack SUBMIT_INFO or its value, and FINISHED on every rank but
    the first of each node; every other rule holds for them too.
    """
    if not records:
        return ["there are no PerfLog records"]
    broken = _check_submit_info(records, strict)
    broken += _check_phases(records, strict)
    broken += _check_pairs(records, Event.EPOCH_BEGIN, Event.EPOCH_END)
    broken += _check_pairs(records, Event.STEP_BEGIN, Event.STEP_END)
    broken += _check_nesting(records)
    broken += _check_metadata(records)
    return broken


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


def _constant_name(name: str) -> str:
    return name


def _non_finite_name(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _check_submit_info(records: Sequence[PerfLogRecord], strict: bool) -> list[str]:
    found = [record for record in records if record.event is Event.SUBMIT_INFO]
    if len(found) > 1 or (strict and not found):
        return [f"SUBMIT_INFO must stand exactly once, found {len(found)}"]
    if not found:
        return []
    broken = []
    if records[0] is not found[0]:
        broken.append(f"SUBMIT_INFO must be the first record, found {records[0].event}")
    value = found[0].value
    version = value.get("schema_version") if isinstance(value, dict) else None
    if strict and version != SCHEMA_VERSION:
        broken.append(f"SUBMIT_INFO must carry schema_version {SCHEMA_VERSION}, found {version!r}")
    return broken


def _check_phases(records: Sequence[PerfLogRecord], strict: bool) -> list[str]:
    counts = Counter(record.event for record in records)
    required = _PHASES if strict else _PHASES[:-1]
    broken = [
        f"{event} must stand exactly once, found {counts[event]}"
        for event in _PHASES
        if counts[event] > 1 or (event in required and not counts[event])
    ]
    present = [record.event for record in records if record.event in _PHASES]
    for before, after in itertools.pairwise(present):
        if _PHASES.index(after) < _PHASES.index(before):
            broken.append(f"{after} must come before {before}")
    if counts[Event.FINISHED] and records[-1].event is not Event.FINISHED:
        broken.append(f"FINISHED must be the last record, found {records[-1].event} after it")
    return broken


def _check_pairs(records: Sequence[PerfLogRecord], begin: Event, end: Event) -> list[str]:
    broken, is_open = [], False
    for position, record in enumerate(records):
        if record.event is begin:
            if is_open:
                broken.append(f"record {position}: {begin} follows a {begin} that has no {end}")
            is_open = True
        elif record.event is end:
            if not is_open:
                broken.append(f"record {position}: {end} has no {begin} before it")
            is_open = False
    if is_open:
        broken.append(f"the last {begin} has no {end}")
    return broken


def _check_nesting(records: Sequence[PerfLogRecord]) -> list[str]:
    broken, training, epoch = [], False, False
    has_epochs = any(record.event is Event.EPOCH_BEGIN for record in records)
    for position, record in enumerate(records):
        event = record.event
        if event in (Event.TRAIN_START, Event.TRAIN_END):
            training = event is Event.TRAIN_START
        elif event in _TRAINING and not training:
            broken.append(f"record {position}: {event} must stand between TRAIN_START and TRAIN_END")
        elif event in (Event.EPOCH_BEGIN, Event.EPOCH_END):
            epoch = event is Event.EPOCH_BEGIN
        elif has_epochs and not epoch and event in (Event.STEP_BEGIN, Event.STEP_END):
            broken.append(f"record {position}: {event} must stand between EPOCH_BEGIN and EPOCH_END")
        elif event is Event.LAUNCH_TRAINING and any(r.event is Event.INIT_START for r in records[:position]):
            broken.append(f"record {position}: LAUNCH_TRAINING must come before INIT_START")
    return broken


def _check_metadata(records: Sequence[PerfLogRecord]) -> list[str]:
    broken = []
    ranks = sorted({record.metadata.rank for record in records})
    if len(ranks) > 1:
        broken.append(f"one log must hold one rank, found {', '.join(map(str, ranks))}")
    for position, (before, after) in enumerate(itertools.pairwise(records), start=1):
        backwards_ms = before.metadata.time_ms - after.metadata.time_ms
        if backwards_ms > 0:
            broken.append(
                f"record {position}: {after.event} is {backwards_ms} ms earlier than {before.event} before it"
            )
    return broken
