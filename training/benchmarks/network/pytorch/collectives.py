"""Defines the protocol of a measured operation, the code that its kinds share, and the list of operations by name."""

from collections.abc import Callable
from importlib import import_module
from typing import Protocol

import torch
import torch.distributed as dist

from training.benchmarks.network.pytorch import pattern
from training.benchmarks.network.pytorch.team import Team

# Elements per comparison: its memory stays at 16 MiB, and a step takes long compared with its overhead.
CHECK_CHUNK_ELEMENTS = 1 << 24


class Collective(Protocol):
    """One operation of one team: `prepare` a size, `refill`, `run`, and count `wrong_elements`."""

    def memory_bytes(self, size_bytes: int) -> int:
        """Device memory, in bytes, that one rank needs to measure and check messages of `size_bytes`."""
        ...

    def prepare(self, size_bytes: int) -> int:
        """Allocate the buffers for messages of about `size_bytes` (S of nccl-tests), after those of the previous size
        are freed.

        Returns the exact S in bytes: a collective of chunks rounds to whole elements per rank, at least one.
        """
        ...

    def refill(self) -> None:
        """Write what this rank sends into its buffers, and other values where it receives."""
        ...

    def run(self) -> None:
        """Run the operation that is timed, once; on CUDA it is queued on the current stream."""
        ...

    def wrong_elements(self) -> torch.Tensor | None:
        """Number of elements that differ from the correct result of the first run after `refill`: 0-d int64 on the
        device.

        None if nothing is delivered.
        """
        ...


class Buffered:
    """State that the collectives share: team, element type, seed, and flat buffers that hold one size at a time."""

    # Whether S consists of one equal chunk per rank, and the size of one rank's buffers in multiples of S.
    chunked = False
    buffers = 1.0

    def __init__(self, team: Team, dtype: torch.dtype, seed: int, *, in_place: bool) -> None:
        self.team, self.dtype, self.seed, self.in_place = team, dtype, seed, in_place
        self.count = 0

    def elements(self, size_bytes: int) -> int:
        """Number of elements of S: integers, and for chunks the same number for each rank."""
        count = size_bytes // self.dtype.itemsize
        return max(1, count // self.team.size) * self.team.size if self.chunked else max(1, count)

    def memory_bytes(self, size_bytes: int) -> int:
        """Bytes of the buffers and of the comparison, one byte per element; see Collective."""
        count = self.elements(size_bytes)
        return int(self.buffers * count * self.dtype.itemsize) + min(count, CHECK_CHUNK_ELEMENTS)

    def prepare(self, size_bytes: int) -> int:
        """See Collective."""
        self.release()
        self.count = self.elements(size_bytes)
        self.allocate()
        return self.count * self.dtype.itemsize

    def release(self) -> None:
        """Drop the buffers, so that the memory is free for those of the next size."""
        raise NotImplementedError

    def allocate(self) -> None:
        """Make the buffers for `count` elements of S."""
        raise NotImplementedError

    def empty(self, count: int) -> torch.Tensor:
        """A flat buffer of `count` elements."""
        return torch.empty(count, dtype=self.dtype, device=self.team.device)

    def moved(self, source: int, destination: int) -> torch.Tensor:
        """One period of what `source` sends to `destination`, shape (PERIOD,), on the device."""
        return pattern.moved(source, destination, self.dtype, self.seed).to(self.team.device)

    def wrong_in(self, buffer: torch.Tensor, period: torch.Tensor) -> torch.Tensor:
        """Number of elements of the flat `buffer` that differ from the repeated `period`, 0-d int64."""
        return pattern.count_wrong(buffer, period, CHECK_CHUNK_ELEMENTS)

    def none_wrong(self) -> torch.Tensor:
        """The count, 0-d, of a rank that receives nothing."""
        return torch.zeros((), dtype=torch.int64, device=self.team.device)


def renamed(name: str, former: str) -> Callable[..., object]:
    """torch.distributed's function of that name or of its former one: torch renamed some in 2.13 and warns about
    those.
    """
    found: Callable[..., object] = getattr(dist, name, None) or getattr(dist, former)
    return found


_PACKAGE = "training.benchmarks.network.pytorch"
# Name in a config: module and class. Imported when asked for.
_WHERE = {
    "all_reduce": ("reductions", "AllReduce"),
    "reduce": ("reductions", "Reduce"),
    "reduce_scatter": ("reductions", "ReduceScatter"),
    "all_gather": ("exchanges", "AllGather"),
    "all_to_all": ("exchanges", "AllToAll"),
    "all_to_all_uneven": ("exchanges", "AllToAllUneven"),
    "broadcast": ("rooted", "Broadcast"),
    "gather": ("rooted", "Gather"),
    "scatter": ("rooted", "Scatter"),
    "send_recv": ("point_to_point", "SendRecv"),
    "send_recv_two_way": ("point_to_point", "SendRecvTwoWay"),
    "barrier": ("point_to_point", "Barrier"),
}


def create(name: str, team: Team, dtype: torch.dtype, seed: int, *, in_place: bool) -> Collective:
    """The collective of that name on `team`; the config has checked the name.

    Raises:
        KeyError: there is no such operation.
    """
    module, kind = _WHERE[name]
    make: Callable[..., Collective] = getattr(import_module(f"{_PACKAGE}.{module}"), kind)
    return make(team, dtype, seed, in_place=in_place)
