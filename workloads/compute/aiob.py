"""Reads AIOB description files strictly: measured times of a model's parts.

AICB's file is a line `train_iter:N`, then sections `name:` each with the indented lines `time_gpu_max: x`,
`time_gpu_min: x` and `time_gpu_avg: x`, all in microseconds. `aiob`'s JSON has a time for each matrix product, too.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from workloads.compute import aiob_json
from workloads.job.errors import CompFileError
from workloads.job.parameters import WorkloadArgs
from workloads.rows.ops import Gemm

STATISTICS = ("time_gpu_max", "time_gpu_min", "time_gpu_avg")
COMMON = ("Emb", "layernorm", "layernorm2", "mlp_linear_1", "mlp_gelu", "mlp_linear_2", "layernorm_post", "logit_time",
          "param_time")  # fmt: skip
ATTENTION = ("atten_qkv", "atten_linear")
FLASH = ("atten_flash",)
CORE = ("atten_core_qk", "atten_core_softmax", "atten_core_contex")
DEEPSEEK = ("attention_linear_q_lora", "attention_q_column", "attention_linear_kv_lora", "attention_kv_column",
            "attention_o_row")  # fmt: skip
KNOWN = (*COMMON, *ATTENTION, *FLASH, *CORE, *DEEPSEEK)
MOST_DIGITS = 15


@dataclass(frozen=True, slots=True)
class Statistics:
    """Times in microseconds."""

    maximum: float
    minimum: float
    average: float


@dataclass(frozen=True)
class CompFile:
    """The sections of one file by name. gemms: ns of each matrix product, None where a file has sections alone.

    shaping: the parameters that were measured, of those that shape a layer; empty where the file does not say.
    """

    path: Path
    train_iter: int
    sections: dict[str, Statistics]
    gemms: Mapping[Gemm, float] | None = None
    shaping: Mapping[str, object] = field(default_factory=dict)

    def average_ns(self, name: str) -> int:
        """The average of a section in ns, 0 if the file has no such section."""
        return self._sum_ns([name] if name in self.sections else [])

    def minimum_ns(self, name: str) -> int:
        """The minimum of a section in ns, 0 if the file has no such section."""
        return round(self.sections[name].minimum * 1000)

    def attention_ns(self, *, recompute: bool = False) -> int:
        """Time in ns of an attention block with its layer norm; recompute counts flash attention twice, as AICB."""
        names = [name for name in self.sections if "atten" in name]
        again = [name for name in names if "flash" in name] if recompute else []
        return self._sum_ns([*names, *again, "layernorm"])

    def mlp_ns(self) -> int:
        """Time, in ns, of an MLP block and its layer norm."""
        return self._sum_ns([*(name for name in self.sections if "mlp" in name), "layernorm2"])

    def other_shapes(self, args: WorkloadArgs) -> str | None:
        """A sentence about parameters that shape a layer and differ from those that were measured, None without any."""
        differ = [
            f"{name} {measured} (here {getattr(args, name)})"
            for name, measured in self.shaping.items()
            if getattr(args, name) != measured
        ]
        return f"{self.path} was measured with {', '.join(differ)}" if differ else None

    def _sum_ns(self, names: list[str]) -> int:
        return round(math.fsum(self.sections[name].average for name in names) * 1000)

    def missing(self, *, deepseek: bool) -> list[str]:
        """Sections that a model needs and the file lacks. Attention is measured as flash or as its three core steps."""
        needed = [*COMMON, *(DEEPSEEK if deepseek else ATTENTION)]
        if not deepseek and FLASH[0] not in self.sections:
            needed += CORE if any(name in self.sections for name in CORE) else FLASH
        return [name for name in needed if name not in self.sections]


def read(path: Path) -> CompFile:
    """Reads a description file.

    Raises:
        CompFileError: a line is wrong; the message names file, line and what is allowed there.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise CompFileError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CompFileError(f"{path}: is not a text file") from None
    if text.lstrip().startswith("{"):
        return _from_json(path, text)
    lines = text.splitlines()
    iterations = _train_iter(path, lines[0] if lines else "")
    found: dict[str, dict[str, float]] = {}
    section = None
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip():
            continue
        key, colon, value = line.strip().partition(":")
        if not colon:
            raise CompFileError(f"{path}, line {number}: {line.strip()!r} is neither 'section:' nor 'statistic: value'")
        if line[0].isspace():
            if section is None:
                raise CompFileError(f"{path}, line {number}: {key!r} stands before the first section")
            _add(path, number, found[section], key, value.strip())
        else:
            section = _section(path, number, key, value, found)
            found[section] = {}
    return CompFile(path, iterations, {name: _complete(path, name, values) for name, values in found.items()})


def _from_json(path: Path, text: str) -> CompFile:
    record = aiob_json.read(path, text)
    sections = {name: Statistics(*(value / 1000 for value in times)) for name, times in record.sections.items()}
    unknown = sorted(set(sections) - set(KNOWN))
    if unknown:
        raise CompFileError(f"{path}: unknown section {unknown[0]!r}; known are {', '.join(KNOWN)}")
    return CompFile(path, record.iterations, sections, record.gemms, record.shaping)


def _train_iter(path: Path, line: str) -> int:
    key, _, value = line.partition(":")
    if key.strip() != "train_iter" or not value.strip().isdecimal() or len(value) > MOST_DIGITS:
        said = repr(line[:40])
        raise CompFileError(f"{path}, line 1: {said} is not 'train_iter:' with the number of measured iterations")
    return int(value)


def _section(path: Path, number: int, name: str, value: str, found: dict[str, dict[str, float]]) -> str:
    if value.strip():
        raise CompFileError(f"{path}, line {number}: {name!r} has a value; statistics are indented below their section")
    if name not in KNOWN:
        near = get_close_matches(name, KNOWN, 1)
        hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(KNOWN)}"
        raise CompFileError(f"{path}, line {number}: unknown section {name!r}{hint}")
    if name in found:
        raise CompFileError(f"{path}, line {number}: section {name!r} is there twice")
    return name


def _add(path: Path, number: int, values: dict[str, float], key: str, text: str) -> None:
    if key not in STATISTICS or key in values:
        what = "is there twice" if key in values else f"is none of {', '.join(STATISTICS)}"
        raise CompFileError(f"{path}, line {number}: {key!r} {what}")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise CompFileError(f"{path}, line {number}: {key} is {text!r}; expected a time in microseconds, 0 or more")
    values[key] = value


def _complete(path: Path, name: str, values: dict[str, float]) -> Statistics:
    lacking = [key for key in STATISTICS if key not in values]
    if lacking:
        raise CompFileError(f"{path}: section {name!r} lacks {', '.join(lacking)}")
    return Statistics(*(values[key] for key in STATISTICS))
