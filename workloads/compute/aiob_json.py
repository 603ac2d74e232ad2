"""Reads the JSON that `aiob` writes: sections, times of products, measured parameters, rows for the database."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from workloads.compute.measurement import ComputeDataError, ComputeTime, checked
from workloads.job.errors import CompFileError
from workloads.job.parameters import WorkloadArgs
from workloads.rows.ops import OPERATORS, Gemm

FORMAT, VERSION = "clusterdyno-aiob", 1
MOST_CHARACTERS = 16 << 20
_MISTAKES = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
SHAPING = (
    "tensor_model_parallel_size", "expert_model_parallel_size", "micro_batch", "hidden_size", "seq_length",
    "num_attention_heads", "ffn_hidden_size", "vocab_size", "swiglu", "enable_sequence_parallel", "moe_enable",
    "num_experts", "moe_router_topk", "num_query_groups", "kv_channels", "moe_ffn_hidden_size",
)  # fmt: skip
"""The parameters that shape a layer of one rank: times of other values are times of another layer."""


@dataclass(frozen=True, slots=True)
class AiobRecord:
    """sections: maximum, minimum and average in ns; gemms: ns; shaping: parameters by name, those of SHAPING."""

    iterations: int
    sections: Mapping[str, tuple[float, float, float]]
    gemms: Mapping[Gemm, float]
    shaping: Mapping[str, Any]


def read(path: Path, text: str) -> AiobRecord:
    """The record in `text`, the content of `path`.

    Raises:
        CompFileError: it is no such record; the message names the key.
    """
    try:
        return _record(_object(text))
    except _MISTAKES as error:
        what = f"lacks the key {error}" if isinstance(error, KeyError) else error
        raise CompFileError(f"{path}: is no record of aiob: {what}") from None


def times(path: Path) -> list[ComputeTime]:
    """The rows for the database of compute times in a record.

    Raises:
        ComputeDataError: it is no such record, or an older one without them.
    """
    try:
        rows = _object(path.read_text(encoding="utf-8"))["times"]
        return checked(path, [list(row) for row in rows])
    except _MISTAKES as error:
        what = f"lacks the key {error}" if isinstance(error, KeyError) else error
        raise ComputeDataError(f"{path}: is no record of aiob: {what}") from None


def _object(text: str) -> dict[str, Any]:
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"{len(text)} characters; at most {MOST_CHARACTERS} are read")
    found = json.loads(text)
    if not isinstance(found, dict) or (found.get("format"), found.get("version")) != (FORMAT, VERSION):
        raise ValueError(f"expected an object with format {FORMAT!r} and version {VERSION}")
    return found


def _record(found: dict[str, Any]) -> AiobRecord:
    sections = {
        str(name): (_time(times, "maximum"), _time(times, "minimum"), _time(times, "average"))
        for name, times in found["sections"].items()
    }
    job = found["job"]
    known = {field.name for field in fields(WorkloadArgs)}
    shaping = {name: job["args"][name] for name in SHAPING if name in known and name in job["args"]}
    gemms = {_gemm(each): _time(each, "average") for each in found["gemms"]}
    return AiobRecord(int(job["iterations"]), sections, gemms, shaping)


def _gemm(each: dict[str, Any]) -> Gemm:
    if each["op"] not in OPERATORS or not all(isinstance(each[axis], int) for axis in ("m", "k", "n")):
        raise ValueError(f"gemms: {str(each)[:80]} is no matrix product")
    return Gemm(each["op"], each["m"], each["k"], each["n"])


def _time(times: dict[str, Any], name: str) -> float:
    value = times[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} is {str(value)[:40]!r}; expected a time in ns, 0 or more")
    return float(value)
