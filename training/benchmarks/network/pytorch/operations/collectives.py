"""Defines the protocol of a measured operation, the code that its kinds share, and the list of operations by name."""

from collections.abc import Callable
from importlib import import_module
from typing import Protocol

import torch
import torch.distributed as dist

from common.bandwidth import Op
from training.benchmarks.driver.workload import pattern
from training.benchmarks.driver.workload.team import Team
from training.benchmarks.network.pytorch.choices import ROOTED

# Chunks are whole multiples of it, so that every rank's begins at such an address.
LINE_BYTES = 16
UNSIGNED = {torch.uint32: torch.int32, torch.uint64: torch.int64}


class Collective(Protocol):
    """One operation of one team: `prepare` a size, `refill`, `run`, and count `wrong_elements`."""

    def memory_bytes(self, size_bytes: int) -> int:
        """Device memory, in bytes, that one rank needs to measure and check messages of `size_bytes`."""
        ...

    def prepare(self, size_bytes: int) -> int:
        """Allocate buffers for messages of about `size_bytes` (S of nccl-tests), once those of the last size are freed.

        Returns the exact S in bytes: a collective of chunks rounds it down to lines of 16 bytes per rank.
        """
        ...

    def refill(self) -> None:
        """Write what this rank sends into its buffers, other data than at the last call, and zeros where it receives.

        All ranks of the team call it equally often.
        """
        ...

    def run(self) -> None:
        """Run the operation that is timed, once; on an accelerator it is queued on the current stream."""
        ...

    def wrong_elements(self) -> torch.Tensor | None:
        """Number of elements that differ from the correct result of the first run after `refill`: 0-d on the device.

        None if nothing is delivered.
        """
        ...


class Buffered(Collective):
    """State that the collectives share: team, element type, seed, and flat buffers that hold one size at a time.

    `iteration` counts the refills: with the seed and the count it determines the data.
    """

    # Whether S consists of one equal chunk per rank; how many buffers of S a rank has, and whether out of place it has
    # one of its own chunk, too.
    chunked = False
    buffers = 1
    has_own_chunk = False
    carriers = UNSIGNED | {torch.float8_e4m3fn: torch.uint8, torch.float8_e5m2: torch.uint8}

    def __init__(self, team: Team, dtype: torch.dtype, seed: int, *, in_place: bool = False, root: int = 0) -> None:
        self.team, self.dtype, self.seed, self.in_place, self.root = team, dtype, seed, in_place, root
        self.count = self.iteration = 0
        self._messages: pattern.Messages | None = None
        self._carrier = self.carriers.get(dtype)

    def elements(self, size_bytes: int) -> int:
        """Number of elements of S, at least one; of chunks the same number for each rank, in whole lines of 16 bytes.

        A chunk below a line is not empty, as nccl-tests has it, but of whole elements.

        Source: nccl-tests, src/all_gather.cu and its like.
        """
        count = size_bytes // self.dtype.itemsize
        if not self.chunked:
            return max(1, count)
        each, line = count // self.team.size, LINE_BYTES // self.dtype.itemsize
        return (each // line * line or max(1, each)) * self.team.size

    def memory_bytes(self, size_bytes: int) -> int:
        """Bytes of the buffers and of the comparison; see Collective."""
        count = self.elements(size_bytes)
        buffers = self.buffers + (1 / self.team.size if self.has_own_chunk and not self.in_place else 0)
        return int(buffers * count * self.dtype.itemsize) + pattern.scratch_bytes(count)

    def prepare(self, size_bytes: int) -> int:
        self.release()
        self.count = self.elements(size_bytes)
        self._messages = None
        self.allocate()
        return self.count * self.dtype.itemsize

    def refill(self) -> None:
        self.iteration += 1
        self.write()

    def write(self) -> None:
        """Write this iteration's data into the buffers that are sent, and zeros into those that are received."""
        raise NotImplementedError

    def release(self) -> None:
        """Drop the buffers, so that the memory is free for those of the next size."""
        self.count = 0
        self.allocate()

    def allocate(self) -> None:
        """Make the buffers for `count` elements of S, which may be none."""
        raise NotImplementedError

    @property
    def chunk(self) -> int:
        """Elements of one rank's chunk of S."""
        return self.count // self.team.size

    @property
    def is_root(self) -> bool:
        """Whether this rank is the root."""
        return self.team.rank == self.root

    def empty(self, count: int) -> torch.Tensor:
        """A flat buffer of `count` elements."""
        return torch.empty(count, dtype=self.dtype, device=self.team.device)

    def message(self, source: int, destination: int = 0) -> pattern.Data:
        """The message of `source` to `destination` in this iteration; destination 0 where all receive the same."""
        if self._messages is None:
            self._messages = pattern.Messages(self.dtype, self.team.device, seed=self.seed, count=self.count)
        return self._messages.between(source, destination, self.iteration)

    def wire(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same memory, a tensor of `dtype`, in a type that the backends of torch carry.

        They know no unsigned integers of 32 and 64 bits, whose sums, products and, below half of the range, order are
        those of signed ones; and gloo moves no 8-bit floating point. Reducing collectives override `carriers`.
        """
        return tensor if self._carrier is None else tensor.view(self._carrier)

    def exchange(self, sent: torch.Tensor, to: int, received: torch.Tensor, source: int) -> None:
        """Send to the rank at place `to` and receive from the one at place `source`, at once."""
        ranks, handle = self.team.ranks, self.team.handle
        moves = [
            dist.P2POp(dist.isend, self.wire(sent), ranks[to], handle),
            dist.P2POp(dist.irecv, self.wire(received), ranks[source], handle),
        ]
        for work in dist.batch_isend_irecv(moves):
            work.wait()

    def wrong_chunks(self, buffer: torch.Tensor) -> torch.Tensor:
        """Number of elements of the flat `buffer`, 0-d, that differ from the messages of all ranks, one a chunk."""
        wrong = self.none_wrong()
        for source, chunk in enumerate(buffer.view(self.team.size, -1)):
            wrong += pattern.count_wrong(chunk, self.message(source))
        return wrong

    def none_wrong(self) -> torch.Tensor:
        """The count, 0-d, of a rank that receives nothing."""
        return torch.zeros((), dtype=torch.int64, device=self.team.device)


_PACKAGE = "training.benchmarks.network.pytorch.operations"
# Name in a config: module and class. Imported when asked for.
_OF_MODULE = {
    "reductions": ("all_reduce", "reduce", "reduce_scatter"),
    "exchanges": ("all_gather", "all_to_all", "all_to_all_uneven", "all_to_all_v"),
    "steps": ("hypercube", "send_recv_ring"),
    "rooted": ("broadcast", "gather", "scatter"),
    "point_to_point": ("send_recv", "send_recv_two_way", "barrier"),
}
WHERE = {name: (module, name.title().replace("_", "")) for module, names in _OF_MODULE.items() for name in names}


def create(
    name: str, team: Team, dtype: torch.dtype, seed: int, *, in_place: bool, op: Op = "sum", root: int = 0
) -> Collective:
    """The collective of that name on `team`, one that reduces by `op`, with the root at place `root` of the team.

    The config has checked the name.

    Raises:
        KeyError: there is no such operation.
    """
    module, kind = WHERE[name]
    make: Callable[..., Collective] = getattr(import_module(f"{_PACKAGE}.{module}"), kind)
    choices: dict[str, object] = {"op": op} if module == "reductions" else {}
    return make(team, dtype, seed, in_place=in_place, **choices, **({"root": root} if name in ROOTED else {}))
