"""The collectives that can be measured: what each sends, how large its buffers are, and what must arrive."""

from typing import Protocol

import torch
import torch.distributed as dist

from training.benchmarks.driver.process_group import ProcessGroup
from training.benchmarks.network.pytorch import pattern

# Elements compared at a time: the comparison's memory stays at 16 MiB, and each step is long against its overhead.
_CHECK_CHUNK_ELEMENTS = 1 << 24


class Collective(Protocol):
    """One collective on one process group: `prepare` a size, `refill`, `run`, and look for `wrong_elements`.

    `runs_per_refill` is the number of runs after which the data must be sent anew to stay within the type's range.
    """

    runs_per_refill: int

    def memory_bytes(self, size_bytes: int) -> int:
        """Device memory that one rank needs to measure and check messages of `size_bytes`."""
        ...

    def prepare(self, size_bytes: int) -> None:
        """Allocate the buffers for messages of `size_bytes` (S of nccl-tests); those of the size before are freed."""
        ...

    def refill(self) -> None:
        """Write into the buffers what this rank sends."""
        ...

    def run(self) -> None:
        """The one operation that is timed; on CUDA it is queued on the current stream."""
        ...

    def wrong_elements(self) -> torch.Tensor:
        """How many elements differ from what the first run after `refill` must deliver: 0-d int64 on the device."""
        ...


class AllReduce:
    """all_reduce (sum) in place: S is the size of one rank's buffer."""

    def __init__(self, group: ProcessGroup, dtype: torch.dtype, seed: int) -> None:
        world_size, device = group.placement.world_size, group.device
        self._sent = pattern.sent(group.placement.rank, world_size, dtype, seed).to(device)
        self._expected = pattern.summed(world_size, dtype, seed).to(device)
        self._buffer = torch.empty(0, dtype=dtype, device=device)
        self.runs_per_refill = pattern.repeatable_sums(world_size, dtype, seed)

    def memory_bytes(self, size_bytes: int) -> int:
        """The buffer and the comparison's one byte an element."""
        return size_bytes + min(size_bytes // self._buffer.element_size(), _CHECK_CHUNK_ELEMENTS)

    def prepare(self, size_bytes: int) -> None:
        """See Collective."""
        count = size_bytes // self._buffer.element_size()
        self._buffer = torch.empty(0, dtype=self._buffer.dtype, device=self._buffer.device)
        self._buffer = torch.empty(count, dtype=self._buffer.dtype, device=self._buffer.device)

    def refill(self) -> None:
        """See Collective."""
        pattern.fill(self._buffer, self._sent)

    def run(self) -> None:
        """See Collective."""
        dist.all_reduce(self._buffer)

    def wrong_elements(self) -> torch.Tensor:
        """See Collective."""
        return pattern.count_wrong(self._buffer, self._expected, _CHECK_CHUNK_ELEMENTS)


COLLECTIVES: dict[str, type[AllReduce]] = {"all_reduce": AllReduce}


def create(name: str, group: ProcessGroup, dtype: torch.dtype, seed: int) -> Collective:
    """The collective of that name on `group`; the config has checked the name."""
    return COLLECTIVES[name](group, dtype, seed)
