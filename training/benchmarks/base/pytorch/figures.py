"""Measures one test on this rank's device while all other ranks do the same."""

import contextlib
import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from pydantic import JsonValue

from training.benchmarks.base.pytorch import disks, operations
from training.benchmarks.base.pytorch.capacity import Capacity, limit_of
from training.benchmarks.base.pytorch.config import DATA_TESTS, DISK_TESTS, HOST_TESTS, Config
from training.benchmarks.base.pytorch.operations import Copy, Operation
from training.benchmarks.base.pytorch.products import SUSTAINED, MatMul
from training.benchmarks.base.pytorch.twins import signed
from training.benchmarks.driver.launch.numa_nodes import numa_nodes, pinned_to
from training.benchmarks.driver.workload.accelerator import accelerators, is_accelerator
from training.benchmarks.driver.workload.device_events import elapsed_ns, timed_event
from training.benchmarks.driver.workload.process_group import ProcessGroup
from training.benchmarks.driver.workload.usage import UnusableSettingsError


@contextlib.contextmanager
def copy_from_node(cpus: frozenset[int], config: Config, device: torch.device) -> Iterator[Copy | None]:
    """A copy to the device of memory that a thread on the processors `cpus` has touched first, and runs there; None
    where this process may not use any of them.

    The memory is locked where it lies, if the device's vendor can: torch's own pinned memory comes from a cache, so it
    may lie on another node. numpy fills it, in this thread alone.
    """
    with pinned_to(cpus) as is_there:
        if not is_there:
            yield None
            return
        count = config.copy_bytes // 8
        source = torch.from_numpy(np.arange(config.seed, config.seed + count, dtype=np.int64))
        target = torch.zeros(count, dtype=torch.int64, device=device)
        with accelerators(device).page_locked(source) if is_accelerator(device) else contextlib.nullcontext():
            yield Copy(source, target, accesses=1)


PART_SECONDS = 0.1
"""Of sustained products between two marks: an hour of the smallest ones has 36,000 of them, not a billion."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceFigure:
    """A device's figure in one test, in `unit`: of the median iteration, and of the slowest one.

    `farthest` is that of the worst NUMA node or other device, in a test that has one for each; `value` is that of the
    best; `of_peers`: by device, None for this one. `digests`: see Operation.
    """

    unit: str
    value: float
    slowest: float
    is_correct: bool
    farthest: float | None = None
    details: dict[str, JsonValue] = field(default_factory=dict)
    digests: dict[str, int] = field(default_factory=dict)
    of_peers: list[float | None] | None = None


def measure(test: str, config: Config, group: ProcessGroup, data_dir: Path | None = None) -> DeviceFigure:
    """The figure of this rank's device, or of its host's processors, memory and disk; all ranks call it.

    Raises:
        UnusableSettingsError: the device cannot do it; the message says why.
        NotHereError: a host lacks what the test needs; raised on all ranks.
    """
    if test == "memory_capacity":
        return _capacity(config, group)
    if test == "host_to_device_numa":
        return _by_numa_node(config, group)
    if test == "peers":
        return _to_every_device(config, group)
    if test in DISK_TESTS:
        return _disk(test, config, group, data_dir)
    operation = operations.create(test, config, device_of(test, group))
    if test == SUSTAINED:
        return _sustained(operation, config, group)
    figure = _figure(operation, _times(operation, config, group, device_of(test, group)))
    assert figure is not None
    return figure


def device_of(test: str, group: ProcessGroup) -> torch.device:
    """The device of a test: that of this rank, or its host's processors, which fill and read disks, too."""
    return torch.device("cpu") if test in (*HOST_TESTS, *DISK_TESTS) else group.device


def _disk(test: str, config: Config, group: ProcessGroup, data_dir: Path | None) -> DeviceFigure:
    """All ranks of all hosts at once: a file system that they share shows what it has for all of them."""
    made: disks.Disk | disks.DataFiles | None = None
    try:
        made, lacks = disks.disk_test(test, config.disk_bytes, data_dir, group.placement), ""
    except disks.NotHereError as error:
        lacks = str(error)
    everyone = [each for each in group.gathered(lacks) if each]
    try:
        if made is None or everyone:
            raise disks.NotHereError(everyone[0])
        seconds = []
        for _ in range(disks.ITERATIONS):
            dist.barrier()
            begin = time.perf_counter()
            made.run()
            seconds.append(time.perf_counter() - begin)
        figure = _figure(made, seconds)
    finally:
        if made is not None:
            made.close()
    assert figure is not None
    folder = data_dir if test in DATA_TESTS and data_dir is not None else disks.log_folder()
    details: dict[str, JsonValue] = {"file_system": disks.file_system_of(folder), "past_the_page_cache": made.is_direct}
    return replace(figure, details=details | disks.by_model(group.gathered(disks.disk_models_of(folder))))


def _to_every_device(config: Config, group: ProcessGroup) -> DeviceFigure:
    """In round k every device copies to the k-th after it, so that no two send to one; all hosts at once."""
    count = accelerators(group.device).count() if is_accelerator(group.device) else 1
    if fewer := [number for number in group.gathered(count) if number < 2]:
        raise disks.NotHereError(
            f"{len(fewer)} of {group.placement.world_size} ranks see no other device beside their own"
        )
    most = max(group.gathered(count))
    found: dict[int, DeviceFigure] = {}
    for step in range(1, most):
        copy = operations.to_device_after(step, config, group.device) if step < count else None
        figure = _figure(copy, _times(copy, config, group, group.device))
        if figure is not None:
            found[(group.device.index + step) % count] = figure
    best = max(found.values(), key=lambda figure: figure.value)
    return replace(
        best,
        slowest=min(figure.slowest for figure in found.values()),
        is_correct=all(figure.is_correct for figure in found.values()),
        digests=_of_all(found.values()),
        farthest=min(figure.value for figure in found.values()),
        of_peers=[found[peer].value if peer in found else None for peer in range(count)],
    )


def _capacity(config: Config, group: ProcessGroup) -> DeviceFigure:
    capacity = Capacity(group.device, limit_of(config, group))
    try:
        usable = capacity.take()
        capacity.make_room()
        dist.barrier()
        is_correct, digests = capacity.is_correct(), capacity.digests()
    finally:
        capacity.release()
    dist.barrier()
    return DeviceFigure(
        unit="GB",
        value=usable / 1e9,
        slowest=usable / 1e9,
        is_correct=is_correct,
        details={"bytes": usable},
        digests=digests,
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
            figure = _figure(copy, _times(copy, config, group, group.device))
            if figure is not None:
                found[number] = figure
    if not found:
        raise UnusableSettingsError("tests: host_to_device_numa: this process may use no NUMA node's processors")
    best = max(found, key=lambda number: found[number].value)
    return replace(
        found[best],
        is_correct=all(figure.is_correct for figure in found.values()),
        digests=_of_all(found.values()),
        farthest=min(figure.value for figure in found.values()),
        details={
            "nearest_numa_node": best,
            "numa_nodes": {str(number): figure.value for number, figure in found.items()},
        },
    )


def _of_all(copies: Iterable[DeviceFigure]) -> dict[str, int]:
    """The digest that all copies of the same numbers have; of copies that differ another. Hosts may have other counts
    of devices and NUMA nodes.
    """
    return {"copy": signed(sum({each.digests["copy"] for each in copies}))}


def _figure(operation: Operation | disks.Disk | disks.DataFiles | None, seconds: list[float]) -> DeviceFigure | None:
    if operation is None:
        return None
    if isinstance(operation, MatMul):
        operation.run_checked()
    return DeviceFigure(
        unit=operation.unit,
        value=operation.work / statistics.median(seconds) / operation.scale,
        slowest=operation.work / max(seconds) / operation.scale,
        is_correct=operation.is_correct(),
        digests=operation.digests(),
    )


def _sustained(operation: Operation, config: Config, group: ProcessGroup) -> DeviceFigure:
    """Runs for `sustained_seconds`: the figure is that of the second half, in which power and heat limit the clock."""
    each = max(1, round(PART_SECONDS / statistics.median(_times(operation, config, group, group.device))))

    def part() -> None:
        for _ in range(each):
            operation.run()

    dist.barrier()
    seconds = _timed(part, math.ceil(config.sustained_seconds / PART_SECONDS), group.device)
    figure = _figure(operation, [of_part / each for of_part in seconds[len(seconds) // 2 :]])
    assert figure is not None
    return figure


def _times(operation: Operation | None, config: Config, group: ProcessGroup, device: torch.device) -> list[float]:
    """Seconds of each timed iteration on this rank's `device`; all ranks run at the same time, as in a training."""
    if operation is None:
        dist.barrier()
        return []
    for _ in range(config.warmup_iterations):
        operation.run()
    dist.barrier()
    return _timed(operation.run, config.iterations, device)


def _timed(run: Callable[[], None], count: int, device: torch.device) -> list[float]:
    """Seconds of each of `count` runs on the device, one right after the other."""
    if not is_accelerator(device):
        times = []
        for _ in range(count):
            begin = time.perf_counter()
            run()
            times.append(time.perf_counter() - begin)
        return times
    marks = [timed_event(device) for _ in range(count + 1)]
    accelerators(device).synchronize(device)
    marks[0].record()
    for mark in marks[1:]:
        run()
        mark.record()
    accelerators(device).synchronize(device)
    return [elapsed_ns(before, after) / 1e9 for before, after in itertools.pairwise(marks)]
