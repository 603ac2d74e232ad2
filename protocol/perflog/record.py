"""Defines the PerfLog line `[PerfLog] {"event": ..., "value": ..., "metadata": {...}}` that every rank writes.

The head node reads it with the same models.
"""

from enum import StrEnum

from pydantic import BaseModel, Field, JsonValue

PREFIX = "[PerfLog] "
SCHEMA_VERSION = 1


class Event(StrEnum):
    """The kind of a line; the names are FlagPerf's."""

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


class PerfLogError(ValueError):
    """A line with the PerfLog prefix but no valid record, or a value that JSON cannot hold."""


class Metadata(BaseModel, frozen=True):
    """Source file and line, epoch milliseconds and global rank of a record."""

    file: str
    lineno: int = Field(ge=0)
    time_ms: int = Field(ge=0)
    rank: int = Field(ge=0)


class PerfLogRecord(BaseModel, frozen=True, extra="allow"):
    """One line. `value` is any JSON; as in FlagPerf's logs STEP_BEGIN of a training has `step`, INIT_END a sentence in
    `other`. Further keys are kept.

    JSON has no NaN and no infinities: they become the strings "NaN", "Infinity" and "-Infinity", which float() reads.
    """

    event: Event
    value: JsonValue = None
    metadata: Metadata
    step: int | None = None
    other: str | None = None


class SubmitInfo(BaseModel, frozen=True, extra="allow"):
    """The value of SUBMIT_INFO: what runs, with which settings, where. `config` is the whole resolved case config.

    `case_sha256` is that of the case.json that the settings were read from; None in a run by hand without one.
    """

    schema_version: int = SCHEMA_VERSION
    vendor: str | None
    model: str
    framework: str
    case: str | None
    case_sha256: str | None = None
    config: dict[str, JsonValue]
    world_size: int = Field(ge=1)
    nnodes: int = Field(ge=1)
    torch: str
    backend: str
