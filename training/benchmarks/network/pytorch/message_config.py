"""Settings of the messages of the network benchmark: the operation, its sizes and form, and how it is timed."""

import re
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from common.bandwidth import Op
from common.units import parse_sizes
from protocol.case_config import CaseConfig
from training.benchmarks.network.hosts.nccl_tests import PROGRAMS
from training.benchmarks.network.pytorch import choices

Form = bool | Literal["both"] | None


_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def seconds_of(duration: str) -> float:
    """Seconds of a duration such as 30s, 10m or 6h.

    Raises:
        ValueError: the text has another form, or is no time.
    """
    match = re.fullmatch(r"([0-9]+(?:[.][0-9]+)?)([smh])", duration)
    if match is None or not float(match[1]):
        raise ValueError(f"{duration!r} is no duration; allowed: a number above 0 and s, m or h, such as 30s, 10m, 6h")
    return float(match[1]) * _SECONDS[match[2]]


class MessageConfig(CaseConfig):
    """The messages that are sent, and how their time is taken."""

    tool: choices.Tool = Field(
        "sweep", description="what runs: the sweep, or a tool of ml-engineering or of nccl-tests"
    )
    collective: choices.CollectiveName = Field("all_reduce", description="the collective that is measured")
    dtype: choices.DType = Field("float32", description="element type of the buffers")
    sizes: str = Field(
        choices.DEFAULT_SIZES,
        description="message sizes (S of nccl-tests): 1M, 8..256M x2, 1M..8M +1M or a comma list; K, M, G are binary",
    )
    in_place: Form = Field(
        None, description="whether the result replaces the input, or both; None: in place if torch has no other form"
    )
    op: Op = Field("sum", description="how all_reduce, reduce and reduce_scatter reduce")
    root: Annotated[int, Field(ge=0)] | Literal["all"] = Field(
        0, description="the root's place in its group, for reduce, broadcast, gather and scatter; or all, one by one"
    )
    warmup_iterations: int = Field(5, ge=0, description="untimed iterations before each size")
    iterations: int = Field(20, ge=1, description="timed iterations of each size")
    check: bool = Field(True, description="whether received data is compared with what must arrive, for every size")
    check_interval: int = Field(
        0, ge=0, description="after how many timed iterations one more is made and compared; 0: only after the last"
    )
    cuda_graph: bool = Field(False, description="whether the operation is replayed from a device's graph")
    aggregate: int = Field(1, ge=1, description="operations in a row that are timed as one, as nccl-tests' -m")
    duration: str = Field("10m", description="how long the tool soak measures: 30s, 10m, 6h")
    timing: Literal["each", "nccl-tests"] = Field(
        "each", description="nccl-tests: also its time, the mean of operations back to back, over all ranks"
    )
    after_compute_ms: list[Annotated[float, Field(gt=0, le=60_000)]] = Field(
        [], description="also time each size after matrix products that take the fastest rank so many milliseconds"
    )

    @field_validator("sizes", mode="before")
    @classmethod
    def _numbers_are_sizes(cls, value: Any) -> Any:
        """Read numbers as if they were written in a string: `--set sizes=1024,4096` arrives here as numbers."""
        parts = value if isinstance(value, list | tuple) else [value] if isinstance(value, int) else None
        if not parts or any(isinstance(part, bool) or not isinstance(part, int | str) for part in parts):
            return value
        return ",".join(map(str, parts))

    @field_validator("sizes")
    @classmethod
    def _sizes_parse(cls, value: str, info: ValidationInfo) -> str:
        dtype = info.data.get("dtype")  # absent when dtype itself is wrong
        sizes = parse_sizes(value)
        for size in sizes:
            if dtype is not None and size % choices.ELEMENT_BYTES[dtype]:
                raise ValueError(
                    f"{size} bytes are not a whole number of {dtype} elements of {choices.ELEMENT_BYTES[dtype]} bytes"
                )
        if value == choices.DEFAULT_SIZES:
            return value
        if info.data.get("collective") == "barrier":
            raise ValueError("a barrier sends nothing and has no sizes; leave sizes out")
        tool = info.data.get("tool", "sweep")
        if tool.startswith("all_gather_object"):
            raise ValueError(f"tool {tool!r} sends a flag of one element; leave sizes out")
        if tool == "all_reduce_latency_comp" and (
            len(sizes) != 1 or sizes[0] < choices.PARTS * choices.ELEMENT_BYTES[dtype or "float64"]
        ):
            raise ValueError(
                f"tool {tool!r} sends one size, once whole and once in {choices.PARTS} parts of an element or more"
            )
        return value

    @field_validator("collective")
    @classmethod
    def _tool_has_its_own(cls, value: str, info: ValidationInfo) -> str:
        tool = info.data.get("tool", "sweep")
        if tool == "nccl_tests" and value not in PROGRAMS:
            raise ValueError(f"nccl-tests has no program like {value}; allowed: {', '.join(PROGRAMS)}")
        if tool not in choices.OWN_COLLECTIVE and value != "all_reduce":
            raise ValueError(f"tool {tool!r} measures its own collectives; leave collective out, or set tool = 'sweep'")
        return value

    @field_validator("dtype")
    @classmethod
    def _flags_are_integers(cls, value: str, info: ValidationInfo) -> str:
        tool = info.data.get("tool", "sweep")
        if tool.startswith("all_gather_object") and value != "float32":
            raise ValueError(f"tool {tool!r} sends an int32 flag; leave dtype out")
        if info.data.get("collective") == "barrier" and value != "float32":
            raise ValueError("a barrier sends nothing and has no element type; leave dtype out")
        return value

    @field_validator("in_place")
    @classmethod
    def _form_exists(cls, value: Form, info: ValidationInfo) -> Form:
        name = info.data.get("collective")
        if value is False and name in choices.IN_PLACE_ONLY:
            raise ValueError(f"torch.distributed.{name} works in place only; allowed: True")
        if value is True and name in choices.TWO_BUFFERS:
            raise ValueError(f"{name} needs an input and an output; allowed: False")
        if value == "both" and info.data.get("tool", "sweep") not in choices.SWEEPS:
            raise ValueError(f"tool {info.data['tool']!r} measures one form; set True or False")
        if value == "both" and name not in choices.EITHER_WAY:
            raise ValueError(f"torch knows one form of {name}; 'both' is for {' and '.join(choices.EITHER_WAY)}")
        if value is not None and name == "barrier":
            raise ValueError("a barrier has no buffers; leave in_place out")
        tool = info.data.get("tool", "sweep")
        if value is not None and tool.startswith("all_gather_object"):
            raise ValueError(f"tool {tool!r} has its own buffers; leave in_place out")
        return value

    @field_validator("check_interval")
    @classmethod
    def _something_is_checked(cls, value: int, info: ValidationInfo) -> int:
        if value and info.data.get("check") is False:
            raise ValueError("check = False compares nothing; leave check_interval out")
        if value and info.data.get("tool", "sweep") not in choices.SWEEPS:
            raise ValueError(f"tool {info.data['tool']!r} measures in its own way; leave check_interval out")
        return value

    @field_validator("cuda_graph")
    @classmethod
    def _can_be_captured(cls, value: bool, info: ValidationInfo) -> bool:
        if value and (info.data.get("collective") == "barrier" or info.data.get("tool") not in choices.SWEEPS):
            raise ValueError("a barrier and the object tools wait on the host, which no graph of a device can hold")
        return value

    @field_validator("duration")
    @classmethod
    def _is_a_duration(cls, value: str, info: ValidationInfo) -> str:
        seconds_of(value)
        if value != cls.model_fields["duration"].default and info.data.get("tool") != "soak":
            raise ValueError("only the tool soak has a duration; leave it out, or set tool = 'soak'")
        return value

    @property
    def duration_s(self) -> float:
        """`duration` in seconds."""
        return seconds_of(self.duration)

    @field_validator("after_compute_ms", mode="before")
    @classmethod
    def _one_or_several(cls, value: Any) -> Any:
        """Take a number for a list of one: `--set after_compute_ms=1,10` arrives as a tuple, `=1` as a number."""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return [value] if is_number else list(value) if isinstance(value, tuple) else value

    @field_validator("op")
    @classmethod
    def _reduces(cls, value: str, info: ValidationInfo) -> str:
        if value != "sum" and info.data.get("collective") not in choices.REDUCING:
            raise ValueError(f"only {', '.join(choices.REDUCING)} reduce; leave op out")
        if value != "sum" and info.data.get("tool", "sweep") not in choices.OWN_COLLECTIVE:
            raise ValueError(f"only the tools {', '.join(choices.OWN_COLLECTIVE)} choose it; leave op out")
        return value

    @field_validator("root")
    @classmethod
    def _has_a_root(cls, value: int | str, info: ValidationInfo) -> int | str:
        if value != 0 and info.data.get("collective") not in choices.ROOTED:
            raise ValueError(f"only {', '.join(choices.ROOTED)} have a root; leave root out")
        if value == "all" and info.data.get("tool", "sweep") not in choices.SWEEPS:
            raise ValueError(f"tool {info.data['tool']!r} measures one root; set its place")
        return value

    @field_validator("aggregate", "timing", "after_compute_ms")
    @classmethod
    def _is_swept(cls, value: Any, info: ValidationInfo) -> Any:
        if value == cls.model_fields[str(info.field_name)].default:
            return value
        if info.data.get("tool", "sweep") not in choices.SWEEPS:
            raise ValueError(f"tool {info.data['tool']!r} measures in its own way; leave {info.field_name} out")
        if info.data.get("collective") == "barrier" and info.field_name != "after_compute_ms":
            raise ValueError(f"a barrier is waited for on the host; leave {info.field_name} out")
        return value

    @property
    def size_list(self) -> tuple[int, ...]:
        """The sizes in bytes, in the order of the sweep; a barrier has one of 0 bytes."""
        return (0,) if self.collective == "barrier" else parse_sizes(self.sizes)

    @property
    def forms(self) -> tuple[bool, ...]:
        """Whether each form that is measured works in place, out of place first."""
        if self.in_place == "both":
            return (False, True)
        return (self.collective in choices.IN_PLACE_ONLY if self.in_place is None else self.in_place,)

    def roots_of(self, world_size: int) -> tuple[int, ...]:
        """The places of the roots that are measured, in groups of so many ranks."""
        return tuple(range(world_size)) if self.root == "all" else (self.root,)
