"""Reads the products of the device tests (`base`) from the folder of a run: square ones, by the rates of all ranks."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import median

from pydantic import BaseModel, Field, JsonValue

from common.errors import InputProblems, input_problem
from common.run_folder import read_record, rounds
from workloads.compute.measurement import ComputeDataError, ComputeTime, checked
from workloads.compute.operators import shape_text

SUSTAINED = "matmul_sustained"
# Operator, type and call of each test: A B with both as they lie, of 8 bits B column by column, as a layer's weights.
_TESTS = {
    **{f"matmul_{dtype}": ("gemm_dgrad", dtype, "torch.mm") for dtype in ("fp64", "fp32", "tf32", "bf16", "fp16")},
    SUSTAINED: ("gemm_dgrad", "bf16", "torch.mm"),
    "matmul_fp8": ("gemm", "fp8", "torch._scaled_mm"),
    "matmul_int8": ("gemm", "int8", "torch._int_mm"),
}


@dataclass(frozen=True, slots=True)
class SquareProducts:
    """One test of a round: products of `side` x `side` elements, and ns of one on each rank, all at the same time.

    count: products that each rank timed; seconds: how long it did; watts: the lowest power limit of the devices, None
    where the run does not tell it.
    """

    device: str
    test: str
    side: int
    ns: tuple[float, ...]
    count: int
    seconds: float
    watts: float | None
    versions: str
    source: str

    @property
    def dtype(self) -> str:
        """The type of the elements, as the database has it."""
        return _TESTS[self.test][1]


class _Settings(BaseModel):
    """The fields that are read of a case's settings."""

    matmul_size: int = Field(ge=1, le=1 << 24)
    iterations: int = Field(ge=1, le=1 << 40)
    sustained_seconds: float = Field(gt=0, le=1e6)


class _Case(BaseModel):
    config: _Settings


class _Round(BaseModel):
    """The fields that are read of round.json."""

    run_id: str = ""
    verdict: str
    devices: list[str] = []
    steps: list[dict[str, JsonValue]] = []


class _Device(BaseModel):
    power_limit_w: float | None = None


class _Accelerators(BaseModel):
    devices: list[_Device] = []


class _Host(BaseModel):
    """The fields that are read of sys_info.json."""

    accelerator: _Accelerators | None = None
    packages: dict[str, str | None] = {}


def products(folder: Path, flag: str) -> Iterator[SquareProducts]:
    """Those of the rounds that passed, whose results were right; none in runs of other benchmarks.

    Raises:
        InputProblems: the folder that the option `flag` names is no run's, or a round had devices of several types.
    """
    for path in rounds(folder, flag):
        record = read_record(path, _Round)
        steps = [step for step in record.steps if str(step.get("test")) in _TESTS and step.get("correct") == "pass"]
        if record.verdict not in ("pass", "degraded") or not steps:
            continue
        if len(record.devices) != 1:
            raise input_problem(str(path), None, f"its products ran on {' and '.join(record.devices) or 'no device'}")
        case = read_record(folder / "cases" / f"{path.parent.parent.name}.json", _Case).config
        watts, versions = _hosts(path.parent)
        for step in steps:
            ns = _ns(step.get("values_of_ranks"), case.matmul_size)
            if ns:
                test, one = str(step["test"]), median(ns) / 1e9
                seconds = case.sustained_seconds if test == SUSTAINED else case.iterations * one
                yield SquareProducts(
                    record.devices[0], test, case.matmul_size, ns, max(1, round(seconds / one)), seconds, watts,
                    versions, f"base, {record.run_id}",
                )  # fmt: skip


def _hosts(folder: Path) -> tuple[float | None, str]:
    """The lowest power limit of the devices of a round's hosts, and the software's versions."""
    hosts = [read_record(each, _Host) for each in sorted(folder.glob("*_noderank*/sys_info.json"))]
    limits = [its.power_limit_w for host in hosts if host.accelerator for its in host.accelerator.devices]
    versions = {f"torch {host.packages['torch']}" for host in hosts if host.packages.get("torch")}
    return min((each for each in limits if each and 0 < each < inf), default=None), ", ".join(
        sorted(versions)
    ) or "torch"


def _ns(values: JsonValue, side: int) -> tuple[float, ...]:
    """ns of one product by the 1e12 operations a second of each rank; none where a rank has no possible one."""
    found = values if isinstance(values, list) else []
    rates = [each for each in found if isinstance(each, int | float) and 1e-9 < each < 1e9]
    return tuple(2e-3 * side**3 / each for each in rates) if len(rates) == len(found) else ()


def times(folder: Path) -> list[ComputeTime]:
    """Rows for the database of compute times: what ran for a burst, as its other rows did.

    Raises:
        ComputeDataError: the folder is no run's, or has no such products.
    """
    try:
        found = [each for each in products(folder, "FILE") if each.test != SUSTAINED]
    except InputProblems as error:
        raise ComputeDataError(str(error)) from None
    if not found:
        raise ComputeDataError(f"{folder}: no round of base that passed timed a product")
    return checked(folder, map(_row, found))


def _row(each: SquareProducts) -> tuple[str | float, ...]:
    op, dtype, kernel = _TESTS[each.test]
    mean = sum(each.ns) / len(each.ns)
    spread = (max(each.ns) - min(each.ns)) / 2 / mean
    shape = shape_text(op, dict.fromkeys("mkn", each.side))
    count = each.count * len(each.ns)
    return each.device, op, shape, dtype, kernel, each.versions, mean, spread, count, each.source
