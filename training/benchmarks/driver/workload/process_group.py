"""Opens and closes torch.distributed's process group for every workload."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from common.garbage import modules_are_loaded
from protocol import pulse
from training.benchmarks.driver.launch.rank_watch import stamp
from training.benchmarks.driver.workload.accelerator import accelerators, is_accelerator
from training.benchmarks.driver.workload.placement import Placement, ProcessGroupError


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessGroup:
    """The open default group: the placement, the device and the backend's name."""

    placement: Placement
    device: torch.device
    backend: str

    def gathered(self, value: Any) -> list[Any]:
        """The value of every rank, by rank."""
        every: list[Any] = [None] * self.placement.world_size
        dist.all_gather_object(every, value)
        return every

    def all_true(self, value: bool) -> bool:
        """Whether the value of every rank is true."""
        found = torch.tensor(int(value), device=self.device)
        dist.all_reduce(found, op=dist.ReduceOp.MIN)
        return bool(found)


def device_for(backend: str, local_rank: int) -> torch.device:
    """The CPU for a backend that carries its tensors, else device number `local_rank` of the type that it carries.

    Raises:
        ProcessGroupError: this torch lacks the backend, or there is no device of its type for this rank.
    """
    if not dist.is_backend_available(backend):
        raise ProcessGroupError(f"backend {backend!r}: torch {torch.__version__} is built without it")
    kinds = dist.Backend.backend_capability[backend]
    if "cpu" in kinds:
        return torch.device("cpu")
    count = accelerators(torch.device(kinds[0])).count()
    if not count:
        raise ProcessGroupError(
            f"backend {backend!r} needs a device of type {kinds[0]}, and torch {torch.__version__} finds none here"
        )
    if local_rank >= count:
        raise ProcessGroupError(
            f"local rank {local_rank} has no {kinds[0]} device, this node shows {count}: start fewer ranks"
        )
    return torch.device(kinds[0], local_rank)


@contextlib.contextmanager
def init(
    backend: str, *, timeout_s: float, device: torch.device | None = None, placement: Placement | None = None
) -> Iterator[ProcessGroup]:
    """Open the default process group, and close it at the end of the block: write results before that.

    Collectives that hang longer than `timeout_s` fail. `device` and `placement`: else of backend and environment.

    Raises:
        ProcessGroupError: as for `device_for` and `Placement.from_environment`.
    """
    modules_are_loaded()
    place = placement or Placement.from_environment()
    target = device or device_for(backend, place.local_rank)
    devices = accelerators(target) if is_accelerator(target) else None
    if devices is not None:
        devices.take(target)
    dist.init_process_group(
        backend,
        rank=place.rank,
        world_size=place.world_size,
        timeout=timedelta(seconds=timeout_s),
        # With a device torch divides groups by splitting them (init_device_mesh), which not every library can.
        device_id=target if devices is not None and devices.splits else None,
    )
    group = ProcessGroup(placement=place, device=target, backend=backend)
    try:
        yield group
    except BaseException as error:
        # Before the peers notice.
        stamp(error)
        pulse.leave(pulse.exit_code_of(error))
        # gloo of torch 2.13 aborts the process at exit unless its group is destroyed.
        if devices is None or not devices.leaves_open:
            dist.destroy_process_group()
        raise
    pulse.leave(0)
    _leave_store(place, timedelta(seconds=timeout_s))
    dist.destroy_process_group()


def _leave_store(place: Placement, timeout: timedelta) -> None:
    """Keep rank 0, whose process may serve the job's store, until the others need it no more.

    What rank 0 stored last would else be lost: a value is stored without an answer, and read later.
    """
    store = dist.distributed_c10d._get_default_store()
    if place.rank != 0:
        store.set(f"left/{place.rank}", "")
        return
    # A rank that failed never says so: its launcher ends this one.
    with contextlib.suppress(dist.DistStoreError):
        store.wait([f"left/{rank}" for rank in range(1, place.world_size)], timeout)
