"""Measures one test on this rank's device while all other ranks do the same."""

import itertools
import statistics
import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from pydantic import JsonValue

from training.benchmarks.base.pytorch import operations
from training.benchmarks.base.pytorch.capacity import Capacity, limit_of
from training.benchmarks.base.pytorch.config import Config
from training.benchmarks.base.pytorch.numa_copies import copy_from_node
from training.benchmarks.base.pytorch.operations import Operation
from training.benchmarks.driver.launch.numa_nodes import numa_nodes
from training.benchmarks.driver.workload.accelerator import accelerators, is_accelerator
from training.benchmarks.driver.workload.device_events import elapsed_ns, timed_event
from training.benchmarks.driver.workload.process_group import ProcessGroup
from training.benchmarks.driver.workload.usage import UnusableSettingsError


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceFigure:
    """A device's figure in one test, in `unit`: of the median iteration, and of the slowest one.

    `farthest` is that of the worst NUMA node, in a test that has one for each; `value` is that of the best. `digests`:
    see Operation.
    """

    unit: str
    value: float
    slowest: float
    is_correct: bool
    farthest: float | None = None
    details: dict[str, JsonValue] = field(default_factory=dict)
    digests: dict[str, int] = field(default_factory=dict)


def measure(test: str, config: Config, group: ProcessGroup) -> DeviceFigure:
    """The figure of this rank's device; all ranks call it.

    Raises:
        UnusableSettingsError: the device cannot do it; the message says why.
    """
    if test == "memory_capacity":
        return _capacity(config, group)
    if test == "host_to_device_numa":
        return _by_numa_node(config, group)
    operation = operations.create(test, config, group.device)
    figure = _figure(operation, _times(operation, config, group))
    assert figure is not None
    return figure


def _capacity(config: Config, group: ProcessGroup) -> DeviceFigure:
    capacity = Capacity(group.device, limit_of(config, group))
    try:
        usable = capacity.take()
        capacity.make_room()
        dist.barrier()
        is_correct = capacity.is_correct()
    finally:
        capacity.release()
    dist.barrier()
    return DeviceFigure(
        unit="GB", value=usable / 1e9, slowest=usable / 1e9, is_correct=is_correct, details={"bytes": usable}
    )


def _by_numa_node(config: Config, group: ProcessGroup) -> DeviceFigure:
    """The hosts may have different numbers of nodes: the ranks of those with fewer wait for the others."""
    nodes = numa_nodes()
    most = torch.tensor(len(nodes), device=group.device)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    found: dict[int, DeviceFigure] = {}
    for number, cpus in itertools.islice(
        itertools.chain(nodes.items(), itertools.repeat((-1, frozenset[int]()))), int(most)
    ):
        with copy_from_node(cpus, config, group.device) as copy:
            figure = _figure(copy, _times(copy, config, group))
            if figure is not None:
                found[number] = figure
    if not found:
        raise UnusableSettingsError("tests: host_to_device_numa: this process may use no NUMA node's processors")
    best = max(found, key=lambda number: found[number].value)
    return DeviceFigure(
        unit=found[best].unit,
        value=found[best].value,
        slowest=found[best].slowest,
        is_correct=all(figure.is_correct for figure in found.values()),
        farthest=min(figure.value for figure in found.values()),
        details={
            "nearest_numa_node": best,
            "numa_nodes": {str(number): figure.value for number, figure in found.items()},
        },
    )


def _figure(operation: Operation | None, seconds: list[float]) -> DeviceFigure | None:
    if operation is None:
        return None
    return DeviceFigure(
        unit=operation.unit,
        value=operation.work / statistics.median(seconds) / operation.scale,
        slowest=operation.work / max(seconds) / operation.scale,
        is_correct=operation.is_correct(),
        digests=operation.digests(),
    )


def _times(operation: Operation | None, config: Config, group: ProcessGroup) -> list[float]:
    """Seconds of each timed iteration on this rank; all ranks run at the same time, as in a training."""
    if operation is None:
        dist.barrier()
        return []
    for _ in range(config.warmup_iterations):
        operation.run()
    dist.barrier()
    if not is_accelerator(group.device):
        times = []
        for _ in range(config.iterations):
            begin = time.perf_counter()
            operation.run()
            times.append(time.perf_counter() - begin)
        return times
    marks = [timed_event(group.device) for _ in range(config.iterations + 1)]
    accelerators(group.device).synchronize(group.device)
    marks[0].record()
    for mark in marks[1:]:
        operation.run()
        mark.record()
    accelerators(group.device).synchronize(group.device)
    return [elapsed_ns(before, after) / 1e9 for before, after in itertools.pairwise(marks)]
