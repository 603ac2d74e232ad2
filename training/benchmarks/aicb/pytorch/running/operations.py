"""Binds a call to its buffers: one function that issues it, with everything it needs at hand."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.distributed as dist

from training.benchmarks.aicb.pytorch.work.footprint import GATHERING, SCATTERING, footprint, lines
from training.benchmarks.driver.workload.team import Team, renamed
from workloads.rows.calls import SIZES, Call
from workloads.rows.ops import EXCHANGES, SHARED, CommType

Issue = Callable[[], dist.Work | None]
_AS_BYTES = frozenset({"bool", "float8_e4m3fn", "float8_e5m2"})
"""Types that gloo does not carry: their bytes are sent, and reduced, as uint8."""


def element_type(call: Call) -> torch.dtype:
    """torch's type of the call's elements."""
    found: torch.dtype = getattr(torch, "uint8" if call.dtype in _AS_BYTES else call.dtype)
    return found


class BoundCall:
    """A call on its buffers in the arena. `output` and `input` are flat; in place both are the same."""

    def __init__(self, call: Call, team: Team, arena: torch.Tensor, offset: int) -> None:
        self.call, self.team = call, team
        size = footprint(call, team.ranks[team.rank])
        dtype = element_type(call)
        self.output = arena[offset : offset + size.output].view(dtype)
        begin = offset + lines(size.output)
        in_place = not size.input and call.comm_type not in SHARED
        self.input = self.output if in_place else arena[begin : begin + size.input].view(dtype)
        self.width = SIZES[call.dtype]

    def issue(self, *, is_async: bool) -> Issue:
        """The function that issues the call. is_async: it returns a Work to wait for; else it returns when done."""
        call, group = self.call, self.team.handle
        if call.comm_type is CommType.isend or call.comm_type is CommType.irecv:
            move = dist.isend if call.comm_type is CommType.isend else dist.irecv
            moving: Issue = partial(move, self.output, call.peer, group)
            return moving if is_async else partial(_finish, moving)
        made = self._collective()
        return partial(made, group=group, async_op=is_async)

    def exchange(self) -> dist.P2POp:
        """A send or receive as a part of a batch."""
        move = dist.isend if self.call.comm_type is CommType.isend else dist.irecv
        return dist.P2POp(move, self.output, self.call.peer, self.team.handle)

    def _collective(self) -> Callable[..., dist.Work | None]:
        call, output, given = self.call, self.output, self.input
        kind, peer = call.comm_type, call.peer
        if kind is CommType.all_reduce:
            return partial(dist.all_reduce, output)
        if kind is CommType.broadcast:
            return partial(dist.broadcast, output, peer)
        if kind is CommType.reduce:
            return partial(dist.reduce, output, peer)
        if kind is CommType.barrier:
            return dist.barrier
        if kind is CommType.gather:
            return partial(dist.gather, given, self.chunks(output) if self.is_root else None, peer)
        if kind is CommType.scatter:
            return partial(dist.scatter, output, self.chunks(given) if self.is_root else None, peer)
        if kind in GATHERING:
            if kind is CommType.all_gather:
                return partial(dist.all_gather, self.chunks(output), given)
            return partial(_named("all_gather_single", "all_gather_into_tensor"), output, given)
        if kind in SCATTERING:
            if kind is CommType.reduce_scatter:
                return partial(dist.reduce_scatter, output, self.chunks(given))
            return partial(_named("reduce_scatter_single", "reduce_scatter_tensor"), output, given)
        assert kind in EXCHANGES, kind
        out_splits, in_splits = self.splits()
        return partial(dist.all_to_all_single, output, given, out_splits, in_splits)

    @property
    def is_root(self) -> bool:
        """Whether this rank is the root of the call."""
        return self.team.ranks[self.team.rank] == self.call.peer

    def splits(self) -> tuple[list[int] | None, list[int] | None]:
        """Elements from, and for, each rank of an uneven exchange; None, None for equal shares."""
        if self.call.in_splits is None or self.call.out_splits is None:
            return None, None
        return [each // self.width for each in self.call.out_splits], [
            each // self.width for each in self.call.in_splits
        ]

    def chunks(self, buffer: torch.Tensor) -> list[torch.Tensor]:
        """The buffer's equal parts, one a rank of the group."""
        part = buffer.numel() // self.team.size
        return [buffer[place * part : (place + 1) * part] for place in range(self.team.size)]


def batch(calls: Sequence[BoundCall]) -> Issue:
    """Sends and receives as one call that a device executes at once: issues it and waits for its end."""
    moves = [call.exchange() for call in calls]

    def run() -> None:
        for work in dist.batch_isend_irecv(moves):
            work.wait()

    return run


def _finish(issue: Issue) -> None:
    work = issue()
    if work is not None:
        work.wait()


def _named(name: str, former: str) -> Callable[..., dist.Work | None]:
    found: Callable[..., dist.Work | None] = renamed(name, former)  # type: ignore[assignment] # by torch's version
    return found
