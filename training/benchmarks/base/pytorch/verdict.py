"""Finds bad devices: wrong results, too far below the datasheet, or too far below the best of the run."""

from collections.abc import Mapping, Sequence
from typing import Any

from training.benchmarks.base.pytorch.config import DISK_TESTS, HOST_TESTS, Config
from vendors.datasheets import Datasheet


def promised(test: str, config: Config, sheet: Datasheet | None) -> float | None:
    """Expected figure of the device, in the unit of `test`: the config's, else the datasheet's, else None."""
    if config.datasheet is not None:
        return next((value for name, value in config.datasheet.items() if name == test), None)
    if sheet is None or test in ("training", *HOST_TESTS, *DISK_TESTS):
        return None
    if test == "matmul_sustained":
        return sheet.tflops.get("bf16")
    if test.startswith("matmul_"):
        return sheet.tflops.get(test.removeprefix("matmul_"))
    if test == "memory_capacity":
        return sheet.memory_bytes / 1e9
    if test in ("peer", "peers"):
        return sheet.peer_link_GBps
    return sheet.memory_GBps if test == "memory" else sheet.host_link_GBps


def bad_ranks(
    test: str, config: Config, values: Sequence[float], correct: Sequence[bool], promise: float | None
) -> dict[int, str]:
    """Each bad device's fault by rank, as `correct` and `values` (TFLOPS, TOPS, GB or GB/s, as `promise`)."""
    minimum = next((value for name, value in config.min_percent.items() if name == test), None)
    best = max(values)
    found = {}
    for rank, (value, is_correct) in enumerate(zip(values, correct, strict=True)):
        reasons = []
        if not is_correct:
            reasons.append("wrong result")
        if minimum is not None and promise is not None and 100 * value / promise < minimum:
            reasons.append(f"{100 * value / promise:.1f} % of the datasheet, {minimum:g} % wanted")
        below = 100 * (1 - value / best)
        if config.max_percent_below_best is not None and below > config.max_percent_below_best:
            reasons.append(f"{below:.1f} % below the best rank, {config.max_percent_below_best:g} % allowed")
        if reasons:
            found[rank] = "; ".join(reasons)
    return found


def summary(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """For each test that was run the worst device's figure, in the test's unit, and its percentage of the datasheet."""
    found: dict[str, Any] = {}
    results = [result for result in results if "not_run" not in result]
    for result in results:
        unit = str(result["unit"]).replace("/s", "ps")
        worst = min(result["values_of_ranks"])
        found[f"{result['test']}_{unit}"] = worst
        if "farthest_of_ranks" in result:
            found[f"{result['test']}_farthest_{unit}"] = min(result["farthest_of_ranks"])
        if result["datasheet"] is not None:
            found[f"{result['test']}_percent"] = 100 * worst / result["datasheet"]
    bad = sorted({int(rank) for result in results for rank in result["bad_ranks"]})
    correct = all(result["correct"] == "pass" for result in results)
    return found | {"correct": "pass" if correct else "fail", "bad_ranks": bad}
