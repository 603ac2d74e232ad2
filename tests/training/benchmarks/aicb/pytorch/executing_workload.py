"""Executes many workloads one after the other on the same ranks, and counts what each sends.

Arguments: a JSON file with the settings of each workload, how many ranks. Each writes what it found to rank<k>.json
beside the file.
"""

import json
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from protocol.perflog import Event
from tests.training.benchmarks.driver.training.ranks import start
from training.benchmarks.aicb.pytorch.config import Config
from training.benchmarks.aicb.pytorch.running import iterating
from training.benchmarks.aicb.pytorch.running.assembly import Assembled
from training.benchmarks.aicb.pytorch.running.checking import DataCheck
from training.benchmarks.aicb.pytorch.running.device_runner import DeviceRunner, DeviceTimeline
from training.benchmarks.aicb.pytorch.running.execution import HostRunner
from training.benchmarks.aicb.pytorch.running.iterating import executed
from training.benchmarks.aicb.pytorch.running.operations import BoundCall
from training.benchmarks.aicb.pytorch.running.rehearsal import rehearse
from training.benchmarks.aicb.pytorch.suite import ClockOffset, facts_of, prepared
from training.benchmarks.aicb.pytorch.work.classes import OpClasses
from training.benchmarks.driver.workload.device_events import EventPool
from training.benchmarks.driver.workload.placement import Placement
from training.benchmarks.driver.workload.process_group import init
from training.benchmarks.driver.workload.run_context import WorkloadContext
from training.benchmarks.driver.workload.usage import UnusableSettingsError
from workloads.oplog.recorder import WAITED, OpRecorder
from workloads.rows.ops import CommType, LogItem
from workloads.trace.recorder import READERS

SAME = {
    "all_gather_into_tensor": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "all_to_all_single": "all_to_all",
}


class Counter(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch's own class is untyped
    """Notes kind, bytes and ranks of each call that reaches a process group, and lets it run."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[str, int, tuple[int, ...]]] = []

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func._schema.name.rpartition("::")[2]
        if func.namespace == "c10d" and name in READERS:
            names = [argument.name for argument in func._schema.arguments]
            given = {**dict(zip(names, args, strict=False)), **(kwargs or {})}
            group = dist.ProcessGroup.unbox(given["process_group"])
            if name in ("gather_", "scatter_"):  # what the root has in lists the others have as one share
                share = given["input_tensors" if name == "gather_" else "output_tensors"][0]
                kind, size = name.rstrip("_"), share.numel() * share.element_size() * group.size()
            else:
                kind, _, size, _ = READERS[name](given, group)
            self.calls.append((SAME.get(kind, kind), size, tuple(dist.get_process_group_ranks(group))))
        return func(*args, **(kwargs or {}))


@dataclass
class Quiet:
    """A PerfLog that only counts."""

    events: list[str] = field(default_factory=list)

    def log(self, event: Event, value: object = None) -> None:
        """Keep the name of the event."""
        self.events.append(str(event))


def expected(item: LogItem, ranks: int) -> tuple[str, int]:
    """Kind and bytes of a row as the workload has them, a share rounded up to whole bytes."""
    kind = SAME.get(item.comm_type.name, item.comm_type.name)
    shared = kind in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
    parts = ranks if shared and item.in_splits is None else 1
    size = 0 if item.comm_type is CommType.barrier else ceil(item.comm_bytes / parts) * parts
    return kind, size


class OtherData(DataCheck):
    """Rank 1 sends one element of another value, in whatever call."""

    def write(self, bound: BoundCall) -> None:
        """Write the data, one element of rank 1 wrong."""
        super().write(bound)
        if dist.get_rank() == 1 and bound.input.numel():
            bound.input[-1] += 1


class HostEvent:
    """A moment of the host, for the runner of a device: without overlapping calls gloo's program is the host."""

    def record(self) -> None:
        self._at_ns = time.monotonic_ns()

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end_event: "HostEvent") -> float:
        return (end_event._at_ns - self._at_ns) / 1e6


def device_runner(log: OpRecorder) -> DeviceRunner:
    """The runner of NCCL, over gloo."""
    return DeviceRunner(log, DeviceTimeline(EventPool(HostEvent), nullcontext, lambda: None))


def problems(run: WorkloadContext[Config], *, spoilt: bool, in_batches: bool) -> dict[str, Any]:
    """Execute the workload; what was sent otherwise than it says, and what was received wrong."""
    stage, assembled = prepared(run)
    assembled = replace(assembled, in_batches=in_batches)
    wrong = rehearse(assembled, (OtherData if spoilt else DataCheck)(1, run.group.device))
    if spoilt:
        return {"wrong": wrong}
    made = device_runner if in_batches else HostRunner
    with Counter() as counter, mock.patch.object(iterating, "HostRunner", made):
        classes = OpClasses.of(assembled.stream, facts_of(run, stage, assembled, ClockOffset(0, 0)))
        recorder, times = executed(run, assembled, classes)
    rows = [item for item in stage.workload if item.is_communication]
    found = []
    if in_batches and not assembled.stream.epochs[1].batches.max() >= 0:
        found.append("there are no batches")
    if len(rows) != len(counter.calls):
        found.append(f"{len(counter.calls)} calls, {len(rows)} rows")
    for number, (item, (kind, size, ranks)) in enumerate(zip(rows, counter.calls, strict=False)):
        if expected(item, len(ranks)) != (kind, size):
            found.append(f"row {number} {expected(item, len(ranks))}: sent {kind}, {size} bytes")
        if item.ranks is not None and stage.own == run.group.placement.rank and tuple(item.ranks) != ranks:
            found.append(f"row {number}: ranks {ranks}, not {item.ranks}")
    kinds = [item.comm_type for item in stage.workload]
    left_out = None if run.config.timing == "replay" else CommType.computation
    positions = [place for place, kind in enumerate(kinds) if kind is not left_out]
    if recorder.op[: recorder.count].tolist() != positions:
        found.append("the log has other positions than the workload")
    columns = (recorder.op, recorder.issue_ns, recorder.done_ns, recorder.exposed_ns)
    records = list(zip(*(column[: recorder.count] for column in columns), strict=True))
    return {
        "wrong": wrong,
        "found": found[:5],
        "calls": len(counter.calls),
        "bytes": sum(size for _, size, _ in counter.calls),
        "arena": assembled.places.bytes,
        "largest": max(largest(item, assembled) for item in rows),
        "epochs": len(times),
        "recorded": recorder.count,
        "computed_ns": [done - issue for op, issue, done, _ in records if kinds[op] is CommType.computation],
        "part": all(exposed == WAITED or 0 <= exposed <= done - issue for _, issue, done, exposed in records),
    }


def largest(item: LogItem, assembled: Assembled) -> int:
    """Bytes of input and output of a row of the form without uneven shares, each in lines of 16 bytes."""
    number = assembled.stream.items.index(item)
    call = assembled.stream.calls[number]
    ranks = 1 if call is None else len(call.ranks)
    kind, size = expected(item, ranks)
    parts = {"all_gather": [size, size // ranks], "reduce_scatter": [size, size // ranks], "all_to_all": [size, size]}
    return sum(-(-part // 16) * 16 for part in parts.get(kind, [size]))


def execute(rank: int, ranks: int, path: Path) -> None:
    """Run all of them as one of `ranks` ranks; a refusal is told as `refused`."""
    results: dict[str, Any] = {}
    placement = Placement(rank=rank, world_size=ranks, local_rank=rank, local_world_size=ranks, nnodes=1)
    with init("gloo", timeout_s=60, placement=placement) as group:
        for name, settings in json.loads(path.read_text()).items():
            marks = {name: bool(settings.pop(name, False)) for name in ("spoilt", "in_batches")}
            config = Config.model_validate({"backend": "gloo", **settings})
            run = WorkloadContext(config=config, logger=Quiet(), group=group, data_dir=path.parent)  # type: ignore[arg-type]
            try:
                results[name] = problems(run, **marks)
            except UnusableSettingsError as error:
                results[name] = {"refused": str(error)}
        torch.distributed.barrier()
        (path.parent / f"rank{rank}.json").write_text(json.dumps(results))


if __name__ == "__main__":
    start(execute, int(sys.argv[2]), int(sys.argv[2]), Path(sys.argv[1]))
