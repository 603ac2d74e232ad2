"""Runs the tests on every device of a run, on all ranks at once: figures, percent of the datasheet, bad devices."""

import itertools
import statistics
import time
from typing import Any

import torch
import torch.distributed as dist

from training.benchmarks.base.pytorch import operations
from training.benchmarks.base.pytorch.config import Config
from training.benchmarks.base.pytorch.operations import Operation
from training.benchmarks.base.pytorch.verdict import bad_ranks, promised
from training.benchmarks.driver.protocol.datasheet import Datasheet, datasheet
from training.benchmarks.driver.protocol.perflog import Event
from training.benchmarks.driver.workload.process_group import ProcessGroup
from training.benchmarks.driver.workload.run_context import WorkloadContext, open_run
from training.benchmarks.driver.workload.usage import UnusableSettingsError


def main() -> None:
    """Entry of every rank. Exits with code 1 if a device is bad, 2 for settings that cannot be judged here."""
    begin = time.perf_counter()
    with open_run("base", "pytorch", Config) as run:
        sheet = datasheet(torch.cuda.get_device_name(run.group.device)) if run.group.device.type == "cuda" else None
        _refuse_limits_without_datasheet(run.config, sheet)
        run.logger.log(Event.INIT_END)
        results = _measure(run, sheet)
        run.logger.log(Event.FINISHED, {"e2e_time": time.perf_counter() - begin, **_summary(results)})
    bad = [f"{each['test']}: rank {rank}: {why}" for each in results for rank, why in each["bad_ranks"].items()]
    if bad:
        raise SystemExit("base: " + ". ".join(bad))


def _refuse_limits_without_datasheet(config: Config, sheet: Datasheet | None) -> None:
    for test in config.min_percent:
        if test not in config.tests:
            raise UnusableSettingsError(f"min_percent: {test} is not in tests")
        if promised(test, config, sheet) is None:
            raise UnusableSettingsError(f"min_percent: no datasheet for {test} on this device; give it in `datasheet`")


def _measure(run: WorkloadContext[Config], sheet: Datasheet | None) -> list[dict[str, Any]]:
    config, logger, group = run.config, run.logger, run.group
    total = len(config.tests)
    logger.log(Event.TRAIN_START, {"total_steps": total})
    results = []
    for step, test in enumerate(config.tests, start=1):
        place = {"step": step, "total_steps": total, "test": test}
        logger.log(Event.STEP_BEGIN, place)
        operation = operations.create(test, config, group.device)
        seconds = _times(operation, config, group)
        value = operation.work / statistics.median(seconds) / operation.scale
        values, correct = _of_every_rank(value, operation.is_correct(), group)
        promise = promised(test, config, sheet)
        bad = bad_ranks(test, config, values, correct, promise)
        result = {
            "test": test,
            "unit": operation.unit,
            "value": value,
            "slowest": operation.work / max(seconds) / operation.scale,
            "values_of_ranks": values,
            "datasheet": promise,
            "percent_of_datasheet": None if promise is None else 100 * value / promise,
            "correct": "pass" if all(correct) else "fail",
            "bad_ranks": {str(rank): why for rank, why in bad.items()},
        }
        logger.log(Event.STEP_END, place | result)
        results.append(result)
    logger.log(Event.TRAIN_END)
    return results


def _times(operation: Operation, config: Config, group: ProcessGroup) -> list[float]:
    """Seconds of each timed iteration on this rank; all ranks run at the same time, as in a training."""
    for _ in range(config.warmup_iterations):
        operation.run()
    dist.barrier()
    if group.device.type != "cuda":
        times = []
        for _ in range(config.iterations):
            begin = time.perf_counter()
            operation.run()
            times.append(time.perf_counter() - begin)
        return times
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(config.iterations + 1)]  # type: ignore[no-untyped-call]
    torch.cuda.synchronize(group.device)
    marks[0].record()
    for mark in marks[1:]:
        operation.run()
        mark.record()
    torch.cuda.synchronize(group.device)
    return [before.elapsed_time(after) / 1e3 for before, after in itertools.pairwise(marks)]


def _of_every_rank(value: float, correct: bool, group: ProcessGroup) -> tuple[list[float], list[bool]]:
    mine = torch.tensor([value, float(correct)], dtype=torch.float64, device=group.device)
    found = [torch.zeros_like(mine) for _ in range(group.placement.world_size)]
    dist.all_gather(found, mine)
    return [float(pair[0]) for pair in found], [bool(pair[1]) for pair in found]


def _summary(results: list[dict[str, Any]]) -> dict[str, Any]:
    """For each test the worst device's figure, in the test's unit, and its percentage of the datasheet."""
    summary: dict[str, Any] = {}
    for result in results:
        unit = str(result["unit"]).replace("/s", "ps")
        worst = min(result["values_of_ranks"])
        summary[f"{result['test']}_{unit}"] = worst
        if result["datasheet"] is not None:
            summary[f"{result['test']}_percent"] = 100 * worst / result["datasheet"]
    bad = sorted({int(rank) for result in results for rank in result["bad_ranks"]})
    correct = all(result["correct"] == "pass" for result in results)
    return summary | {"correct": "pass" if correct else "fail", "bad_ranks": bad}
