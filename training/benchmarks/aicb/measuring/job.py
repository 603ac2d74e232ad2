"""Describes a measurement to the measuring process: parameters, device, type and limits, as one line of JSON."""

from dataclasses import asdict, dataclass, fields
from typing import Any

from workloads.job.parameters import WorkloadArgs

PRECISIONS = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
"""The database's names of torch's types."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AiobJob:
    """One measurement. warm_up: most calls before a part's samples, for `seconds`. threads: of a CPU, None: torch's.

    device: "auto" (an accelerator if there is one), "cpu" or torch's name, as "xpu:1"; attention: "auto" or a name.
    """

    args: WorkloadArgs
    precision: str = "bf16"
    device: str = "auto"
    attention: str = "auto"
    iterations: int = 10
    warm_up: int = 50
    seconds: float = 20.0
    threads: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {**asdict(self), "args": self.args.to_dict()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "AiobJob":
        """The inverse of `to_dict`."""
        known = {field.name: values[field.name] for field in fields(cls)}
        return cls(**{**known, "args": WorkloadArgs.from_dict(values["args"])})
