"""Measures messages between two ranks, one- and two-way, and the barrier."""

import time
import uuid

import torch
import torch.distributed as dist

from training.benchmarks.driver.workload import pattern
from training.benchmarks.driver.workload.accelerator import accelerators, is_accelerator
from training.benchmarks.driver.workload.team import Team
from training.benchmarks.network.pytorch.operations.collectives import Buffered, Collective


class SendRecv(Buffered):
    """Each rank of the team's first half sends to its counterpart in the second, all at once; S is one message.

    The ranks of two hosts thus use the wire between them. The last rank of an odd team rests.
    """

    def __init__(self, team: Team, dtype: torch.dtype, seed: int, *, in_place: bool = False) -> None:
        super().__init__(team, dtype, seed, in_place=in_place)
        half = team.size // 2
        self.sends, self.receives = team.rank < half, half <= team.rank < 2 * half
        other = team.rank + half if self.sends else team.rank - half
        self._peer = team.ranks[other] if self.sends or self.receives else None
        self._other = other

    def allocate(self) -> None:
        rests = self._peer is None
        self._sent = self.empty(self.count if self.sends and not rests else 0)
        self._received = self.empty(self.count if self.receives and not rests else 0)

    def write(self) -> None:
        self._received.zero_()
        pattern.fill(self._sent, self.message(self.team.rank, self._other))

    def run(self) -> None:
        if self._peer is None:
            return
        if self.sends:
            dist.send(self.wire(self._sent), dst=self._peer, group=self.team.handle)
        else:
            dist.recv(self.wire(self._received), src=self._peer, group=self.team.handle)

    def wrong_elements(self) -> torch.Tensor | None:
        return pattern.count_wrong(self._received, self.message(self._other, self.team.rank))


class SendRecvTwoWay(SendRecv):
    """The two ranks of a pair send to each other at once; S is one message in one of the two directions."""

    buffers = 2

    def __init__(self, team: Team, dtype: torch.dtype, seed: int, *, in_place: bool = False) -> None:
        super().__init__(team, dtype, seed, in_place=in_place)
        self.sends = self.receives = True

    def run(self) -> None:
        if self._peer is not None:
            self.exchange(self._sent, self._other, self._received, self._other)


class Barrier(Collective):
    """The team's barrier: nothing is sent; only its latency counts.

    Its check: every rank counts itself in the job's store and enters; a rank that leaves must find all of them counted.
    One rank, in turn, arrives late on purpose: if the barrier does not wait, the others find one too few.
    """

    _LATE_S = 0.02

    def __init__(self, team: Team, dtype: torch.dtype, seed: int, *, in_place: bool = False) -> None:
        self._team = team
        self._name = ""
        self._checks = 0

    def memory_bytes(self, size_bytes: int) -> int:
        """0 bytes: a barrier has no buffers."""
        return 0

    def prepare(self, size_bytes: int) -> int:
        """0 bytes: a barrier has no size."""
        return 0

    def refill(self) -> None:
        """Nothing to write."""

    def run(self) -> None:
        self._team.barrier()

    def wrong_elements(self) -> torch.Tensor | None:
        """Number of ranks, 0-d, that had not arrived when this one left another barrier; see the class."""
        team = self._team
        if not self._name:  # never used before, also by the same ranks in another round
            names = [uuid.uuid4().hex]
            dist.broadcast_object_list(names, src=team.ranks[0], group=team.handle)
            self._name = names[0]
        key, late = f"{self._name}/{self._checks}", self._checks % team.size
        self._checks += 1
        store = dist.distributed_c10d._get_default_store()
        if team.rank == late:
            time.sleep(self._LATE_S)
        store.add(key, 1)
        self.run()
        if is_accelerator(team.device):
            accelerators(team.device).synchronize()
        return torch.tensor(team.size - store.add(key, 0), dtype=torch.int64, device=team.device)
