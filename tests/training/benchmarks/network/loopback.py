"""torch.distributed among threads of this process, in every element type: each rank is a thread, and data is copied."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import Queue
from typing import Any

import pytest
import torch
import torch.distributed as dist

from common.bandwidth import Op
from tests.training.benchmarks.driver.workload.test_operands import reduced
from tests.training.benchmarks.network.mutations import RANK

SECONDS = 60.0
Tensors = Sequence[torch.Tensor]


def _named(op: Any) -> Op:
    name = str(op).rpartition(".")[2].lower()
    return "prod" if name == "product" else name  # type: ignore[return-value]


class _Done:
    """A transfer that has ended."""

    def wait(self) -> None:
        """Return at once."""


@dataclass
class Loopback:
    """`ranks` threads. `op`, where it is set, is what all reductions use instead of their own."""

    ranks: int
    op: Op | None = None

    def __post_init__(self) -> None:
        self._pool = ThreadPoolExecutor(self.ranks)
        self._meeting = threading.Barrier(self.ranks)
        self._slots: list[Any] = [None] * self.ranks
        self._mail: dict[tuple[int, int], Queue[torch.Tensor]] = {
            (source, destination): Queue() for source in range(self.ranks) for destination in range(self.ranks)
        }

    def run(self, functions: Sequence[Callable[[], object]]) -> None:
        """Call one function on each rank, all at once."""

        def call(rank: int) -> None:
            RANK.set(rank)
            try:
                functions[rank]()
            except BaseException:
                self._meeting.abort()
                raise

        for future in [self._pool.submit(call, rank) for rank in range(self.ranks)]:
            future.result(SECONDS)

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()

    def _together(self, mine: Any, act: Callable[[list[Any]], None]) -> None:
        self._slots[RANK.get()] = mine
        if self._meeting.wait(SECONDS) == 0:
            act(self._slots)
        self._meeting.wait(SECONDS)

    def _reduced(self, inputs: Tensors, op: Any) -> torch.Tensor:
        return reduced([each.clone() for each in inputs], self.op or _named(op), inputs[0].dtype)

    def all_reduce(self, tensor: torch.Tensor, op: Any = dist.ReduceOp.SUM, **_: Any) -> None:
        def act(all_: list[Any]) -> None:
            result = self._reduced(all_, op)
            for each in all_:
                each.copy_(result)

        self._together(tensor, act)

    def reduce(self, tensor: torch.Tensor, dst: int, op: Any = dist.ReduceOp.SUM, **_: Any) -> None:
        self._together(tensor, lambda all_: all_[dst].copy_(self._reduced(all_, op)))

    def reduce_scatter_tensor(
        self, output: torch.Tensor, input: torch.Tensor, op: Any = dist.ReduceOp.SUM, **_: Any
    ) -> None:
        def act(all_: list[Any]) -> None:
            result = self._reduced([each[1] for each in all_], op)
            for (out, _in), part in zip(all_, result.view(self.ranks, -1), strict=True):
                out.copy_(part)

        self._together((output, input), act)

    def all_gather_into_tensor(self, output: torch.Tensor, input: torch.Tensor, **_: Any) -> None:
        def act(all_: list[Any]) -> None:
            result = torch.cat([each[1].clone() for each in all_])
            for out, _in in all_:
                out.copy_(result)

        self._together((output, input), act)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        outs: list[int] | None = None,
        ins: list[int] | None = None,
        **_: Any,
    ) -> None:
        def parts(tensor: torch.Tensor, sizes: list[int] | None) -> Tensors:
            return torch.split(tensor, sizes or tensor.numel() // self.ranks)

        def act(all_: list[Any]) -> None:
            for destination, (out, _in) in enumerate(all_):
                for source, part in enumerate(out):
                    part.copy_(all_[source][1][destination])

        self._together((parts(output, outs), parts(input, ins)), act)

    def broadcast(self, tensor: torch.Tensor, src: int, **_: Any) -> None:
        def act(all_: list[Any]) -> None:
            for each in all_:
                each.copy_(all_[src].clone())

        self._together(tensor, act)

    def gather(self, tensor: torch.Tensor, received: list[torch.Tensor] | None, dst: int, **_: Any) -> None:
        def act(all_: list[Any]) -> None:
            for source, part in enumerate(all_[dst][1]):
                part.copy_(all_[source][0])

        self._together((tensor, received), act)

    def scatter(self, tensor: torch.Tensor, sent: list[torch.Tensor] | None, src: int, **_: Any) -> None:
        def act(all_: list[Any]) -> None:
            for destination, part in enumerate(all_[src][1]):
                all_[destination][0].copy_(part)

        self._together((tensor, sent), act)

    def send(self, tensor: torch.Tensor, dst: int, *_: Any, **__: Any) -> _Done:
        self._mail[RANK.get(), dst].put(tensor.clone())
        return _Done()

    def recv(self, tensor: torch.Tensor, src: int, *_: Any, **__: Any) -> _Done:
        tensor.copy_(self._mail[src, RANK.get()].get(timeout=SECONDS))
        return _Done()

    def batch_isend_irecv(self, operations: list[tuple[Any, torch.Tensor, int]]) -> list[_Done]:
        for operation, tensor, peer in sorted(operations, key=lambda each: each[0] == self.recv):
            operation(tensor, peer)
        return [_Done()]

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Put these functions in the place of torch.distributed's."""
        for name in (
            "all_reduce",
            "reduce",
            "all_to_all_single",
            "broadcast",
            "gather",
            "scatter",
            "batch_isend_irecv",
        ):
            patch.setattr(dist, name, getattr(self, name))
        for name, former in (
            ("reduce_scatter_single", "reduce_scatter_tensor"),
            ("all_gather_single", "all_gather_into_tensor"),
        ):
            for each in (name, former):
                patch.setattr(dist, each, getattr(self, former), raising=False)
        for name, function in (("send", self.send), ("isend", self.send), ("recv", self.recv), ("irecv", self.recv)):
            patch.setattr(dist, name, function)
        patch.setattr(dist, "P2POp", lambda operation, tensor, peer, group=None: (operation, tensor, peer))
