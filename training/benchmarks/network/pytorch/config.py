"""Settings of the network benchmark. Imports no torch: the controller validates case configs with it."""

from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from training.benchmarks.driver.config import CaseConfig
from training.benchmarks.network.sizes import parse_sizes

ENTRY_MODULE = "training.benchmarks.network"

DType = Literal["float64", "float32", "float16", "bfloat16", "int64", "int32", "int8", "uint8"]
ELEMENT_BYTES: dict[str, int] = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "int8": 1,
    "uint8": 1,
}


class Config(CaseConfig):
    """One sweep of one collective over message sizes."""

    collective: Literal["all_reduce"] = Field("all_reduce", description="the collective that is measured")
    dtype: DType = Field("float32", description="element type of the buffers")
    sizes: str = Field(
        "8..64M x2",
        description="message sizes (S of nccl-tests): 1M, 8..256M x2, 1M..8M +1M or a comma list; K, M, G are binary",
    )
    in_place: bool = Field(True, description="whether the result replaces the input")
    warmup_iterations: int = Field(5, ge=0, description="untimed iterations before each size")
    iterations: int = Field(20, ge=1, description="timed iterations of each size")
    check: bool = Field(True, description="whether received data is compared with what must arrive, for every size")

    @field_validator("sizes", mode="before")
    @classmethod
    def _number_is_a_size(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @field_validator("sizes")
    @classmethod
    def _sizes_parse(cls, value: str, info: ValidationInfo) -> str:
        dtype = info.data.get("dtype")  # absent when dtype itself is wrong
        for size in parse_sizes(value):
            if dtype is not None and size % ELEMENT_BYTES[dtype]:
                raise ValueError(
                    f"{size} bytes are not a whole number of {dtype} elements of {ELEMENT_BYTES[dtype]} bytes"
                )
        return value

    @field_validator("in_place")
    @classmethod
    def _form_exists(cls, value: bool, info: ValidationInfo) -> bool:
        if not value and info.data.get("collective") == "all_reduce":
            raise ValueError("torch.distributed.all_reduce works in place only; allowed: True")
        return value

    @property
    def size_list(self) -> tuple[int, ...]:
        """The sizes in bytes, in the order of the sweep."""
        return parse_sizes(self.sizes)
