"""Settings of the device tests. Needs no torch: the controller validates case configs with it."""

from typing import Literal

from pydantic import Field, field_validator

from training.benchmarks.driver.protocol.case_config import CaseConfig

ENTRY_MODULE = "training.benchmarks.base"

Test = Literal[
    "matmul_fp64", "matmul_fp32", "matmul_tf32", "matmul_bf16", "matmul_fp16", "memory", "host_to_device",
    "device_to_host",
]  # fmt: skip


class Config(CaseConfig):
    """What is measured on every device, how long, and what makes a device a bad one."""

    tests: list[Test] = Field(
        ["matmul_fp32", "matmul_bf16", "memory", "host_to_device", "device_to_host"],
        min_length=1,
        description="products of square matrices by type, copies in the device's memory, from and to the host's",
    )
    matmul_size: int = Field(8192, ge=16, description="rows and columns of the matrices")
    copy_bytes: int = Field(1 << 30, ge=8, multiple_of=8, description="bytes that one copy moves")
    warmup_iterations: int = Field(5, ge=1, description="untimed iterations of each test")
    iterations: int = Field(20, ge=1, description="timed iterations of each test")
    datasheet: dict[Test, float] | None = Field(
        None, description="what each test should reach, TFLOPS or GB/s; None: the datasheet of the device, where known"
    )
    min_percent: dict[Test, float] = Field(
        {}, description="percent of the datasheet below which a device is bad, by test"
    )
    max_percent_below_best: float | None = Field(
        None, gt=0, lt=100, description="percent that a device may fall short of the best of the run; None: any"
    )

    @field_validator("tests")
    @classmethod
    def _tests_differ(cls, value: list[Test]) -> list[Test]:
        twice = sorted({test for test in value if value.count(test) > 1})
        if twice:
            raise ValueError(f"{', '.join(twice)} stands there twice")
        return value

    @field_validator("datasheet", "min_percent")
    @classmethod
    def _values_are_positive(cls, value: dict[Test, float] | None) -> dict[Test, float] | None:
        for test, number in (value or {}).items():
            if not number > 0:
                raise ValueError(f"{test}: {number}; allowed: above 0")
        return value
