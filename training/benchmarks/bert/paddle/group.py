"""Opens Paddle's process group from the environment that the launcher gives a rank, and gathers values over it."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import paddle
import paddle.distributed as dist

from protocol import pulse
from training.benchmarks.driver.launch.rank_watch import stamp
from training.benchmarks.driver.workload.placement import Placement, ProcessGroupError


@dataclass(frozen=True, kw_only=True, slots=True)
class PaddleGroup:
    """The open group, which gathers the values of all ranks. `device` is Paddle's name of the device of this rank."""

    placement: Placement
    device: str
    backend: str

    @property
    def is_gpu(self) -> bool:
        """Whether the device is a GPU."""
        return self.device.startswith("gpu")

    def gathered(self, value: Any) -> list[Any]:
        """The value of every rank, by rank."""
        if self.placement.world_size == 1:
            return [value]
        every: list[Any] = []
        dist.all_gather_object(every, value)
        return every

    def all_true(self, value: bool) -> bool:
        """Whether the value of every rank is true."""
        return all(self.gathered(value))


def device_of(backend: str, local_rank: int) -> str:
    """The device of a rank.

    Raises:
        ProcessGroupError: nccl has no GPU for this rank.
    """
    if backend != "nccl":
        return "cpu"
    count = paddle.device.cuda.device_count() if paddle.is_compiled_with_cuda() else 0
    if local_rank >= count:
        raise ProcessGroupError(
            f"backend 'nccl': local rank {local_rank} has no GPU, Paddle {paddle.__version__} finds {count} here"
        )
    return f"gpu:{local_rank}"


def variables(placement: Placement, backend: str, master: str) -> Mapping[str, str]:
    """Paddle's names for what the launcher says; `master` is host:port of rank 0's store.

    Paddle counts ranks and nodes by the endpoints of all ranks but connects to none of them: the store at the master
    tells every rank the addresses of the others.
    """
    of_node = placement.local_world_size
    address, _, port = master.rpartition(":")
    endpoints = [
        f"{address if rank < of_node else f'node{rank // of_node}'}:{int(port) + 1 + rank % of_node}"
        for rank in range(placement.world_size)
    ]
    return {
        "PADDLE_TRAINERS_NUM": str(placement.world_size),
        "PADDLE_TRAINER_ID": str(placement.rank),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
        "PADDLE_CURRENT_ENDPOINT": endpoints[placement.rank],
        "PADDLE_MASTER": master,
        "PADDLE_DISTRI_BACKEND": backend,
        "FLAGS_selected_gpus": str(placement.local_rank),
    }


@contextlib.contextmanager
def open_group(backend: str, placement: Placement) -> Iterator[PaddleGroup]:
    """Open the default group, and close it at the end of the block.

    Raises:
        ProcessGroupError: as for `device_of`, or no master is given.
    """
    device = device_of(backend, placement.local_rank)
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise ProcessGroupError(f"{', '.join(missing)} is not set: start the workload with driver.launch")
    master = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    os.environ.update(variables(placement, backend, master))
    paddle.device.set_device(device)
    if placement.world_size > 1:
        dist.init_parallel_env()
    try:
        yield PaddleGroup(placement=placement, device=device, backend=backend)
    except BaseException as error:
        # Before the peers notice.
        stamp(error)
        pulse.leave(pulse.exit_code_of(error))
        raise
    pulse.leave(0)
    if placement.world_size > 1:
        dist.barrier()
        dist.destroy_process_group()
