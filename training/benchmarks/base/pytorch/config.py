"""Settings of the device tests. Needs no torch: the controller validates case configs with it."""

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from protocol.case_config import CaseConfig

ENTRY_MODULE = "training.benchmarks.base"

Test = Literal[
    "matmul_fp64", "matmul_fp32", "matmul_tf32", "matmul_bf16", "matmul_fp16", "matmul_fp8", "matmul_int8",
    "matmul_sustained", "memory", "memory_capacity", "host_to_device", "host_to_device_numa", "device_to_host", "peer",
    "peers", "training", "host_matmul", "host_memory", "disk_write", "disk_read", "data_write", "data_read",
]  # fmt: skip
DATA_TESTS = ("data_write", "data_read")
DISK_TESTS = ("disk_write", "disk_read", *DATA_TESTS)
HOST_TESTS = ("host_matmul", "host_memory")
"""Of the host's processors and memory beside accelerators."""


class Config(CaseConfig):
    """The measurements on every device, their length, and what makes a device a bad one."""

    tests: list[Test] = Field(
        ["matmul_fp32", "matmul_bf16", "memory", "host_to_device", "device_to_host"],
        min_length=1,
        description="products of square matrices by type; the device's memory, its size; copies from and to the host's,"
        " by NUMA node, to the next device, to every other device; a short training with digests; the host's"
        " processors, memory, and disk: the folder of the results, and that of the data",
    )
    matmul_size: int = Field(8192, ge=16, description="rows and columns of the matrices")
    copy_bytes: int = Field(1 << 30, ge=8, multiple_of=8, description="bytes that one copy moves")
    capacity_bytes: int | None = Field(
        None, ge=32 << 20, description="bytes that memory_capacity takes at most; None: all, of a CPU's 256 MiB"
    )
    disk_bytes: int = Field(256 << 20, ge=8 << 20, description="bytes that a rank writes to or reads from a disk")
    warmup_iterations: int = Field(5, ge=1, description="untimed iterations of each test")
    iterations: int = Field(20, ge=1, description="timed iterations of each test")
    sustained_seconds: float = Field(10.0, gt=0, le=3600, description="length of matmul_sustained, bf16 at full power")
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

    @model_validator(mode="after")
    def _sizes_fit_narrow_types(self) -> Self:
        narrow = [test for test in self.tests if test in ("matmul_fp8", "matmul_int8")]
        if narrow and (self.matmul_size % 16 or self.matmul_size < 32):
            raise ValueError(f"matmul_size = {self.matmul_size}; allowed with {narrow[0]}: multiples of 16 from 32 on")
        if self.capacity_bytes is not None and "memory_capacity" not in self.tests:
            raise ValueError("capacity_bytes has no effect without memory_capacity in tests")
        return self

    @model_validator(mode="after")
    def _capacity_comes_before_peers(self) -> Self:
        tests = self.tests
        for peer in ("peer", "peers"):
            if {"memory_capacity", peer} <= set(tests) and tests.index(peer) < tests.index("memory_capacity"):
                raise ValueError(
                    f"tests: {peer} takes memory of other devices until the run ends; put memory_capacity before it"
                )
        return self

    @model_validator(mode="after")
    def _limits_are_of_tests(self) -> Self:
        absent = [test for test in self.min_percent if test not in self.tests]
        if absent:
            raise ValueError(
                f"min_percent has {', '.join(absent)}, which tests has not: no limit without its test; a config that"
                " runs fewer tests than the one it extends sets min_percent, too"
            )
        return self

    def data_refusal(self, *, has_folder: bool) -> str | None:
        reading = [test for test in self.tests if test in DATA_TESTS]
        if reading and not has_folder:
            return f"{reading[0]} of tests needs a folder: set it and data_dir_container"
        return "a folder has no effect without data_write or data_read in tests" if has_folder and not reading else None

    @field_validator("datasheet", "min_percent")
    @classmethod
    def _values_are_positive(cls, value: dict[Test, float] | None) -> dict[Test, float] | None:
        for test, number in (value or {}).items():
            if not number > 0:
                raise ValueError(f"{test}: {number}; allowed: above 0")
        return value
