"""Checks what each kind of call delivers, once for each size: every rank sends data that all others can compute."""

from collections.abc import Sequence
from functools import lru_cache

import torch

from training.benchmarks.aicb.pytorch.running.operations import BoundCall
from training.benchmarks.aicb.pytorch.work.footprint import GATHERING, SCATTERING
from training.benchmarks.driver.workload import pattern
from training.benchmarks.driver.workload.operands import Operands
from workloads.rows.ops import EXCHANGES, CommType

REDUCING = frozenset({CommType.all_reduce, CommType.reduce}) | SCATTERING
_KEPT = 64


class DataCheck:
    """Writes the data of a call and counts wrong elements. All ranks use the same seed."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self._seed, self._device = seed, device
        self._messages = lru_cache(_KEPT)(self._made)

    def write(self, bound: BoundCall) -> None:
        """Fill what the rank sends, and what it receives with other data."""
        call, team = bound.call, bound.team
        if call.comm_type is CommType.barrier:
            return
        if call.comm_type is CommType.isend:
            self._fill([bound.output], [(team.rank, 1 + team.ranks.index(call.peer or 0))])
            return
        bound.output.zero_()
        if call.comm_type in REDUCING:
            self._reduced(bound).contribute(bound)
        elif call.comm_type in EXCHANGES:
            self._fill(_parts(bound.input, bound.splits()[1], team.size), [(team.rank, 1 + to) for to in _all(bound)])
        elif call.comm_type in GATHERING or call.comm_type is CommType.gather:
            self._fill([bound.input], [(team.rank, 0)])
        elif call.comm_type is CommType.scatter and bound.is_root:
            self._fill(bound.chunks(bound.input), [(team.rank, 1 + to) for to in _all(bound)])
        elif call.comm_type is CommType.broadcast and bound.is_root:
            self._fill([bound.output], [(team.rank, 0)])

    def wrong(self, bound: BoundCall) -> int:
        """Wrong elements in what this rank received."""
        call, team = bound.call, bound.team
        own = 1 + team.rank
        if call.comm_type in (CommType.barrier, CommType.isend):
            return 0
        if call.comm_type in REDUCING:
            return self._reduced(bound).wrong(bound)
        if call.comm_type in EXCHANGES:
            return self._count(_parts(bound.output, bound.splits()[0], team.size), [(src, own) for src in _all(bound)])
        if call.comm_type in GATHERING or call.comm_type is CommType.gather:
            if call.comm_type is CommType.gather and not bound.is_root:
                return 0
            return self._count(bound.chunks(bound.output), [(source, 0) for source in _all(bound)])
        root = team.ranks.index(call.peer or 0)
        return self._count([bound.output], [(root, 0 if call.comm_type is CommType.broadcast else own)])

    def _made(self, dtype: torch.dtype, count: int) -> pattern.Messages:
        return pattern.Messages(dtype, self._device, seed=self._seed, count=count)

    def _fill(self, parts: Sequence[torch.Tensor], ways: Sequence[tuple[int, int]]) -> None:
        for part, (source, destination) in zip(parts, ways, strict=True):
            pattern.fill(part, self._messages(part.dtype, part.numel()).between(source, destination, 1))

    def _count(self, parts: Sequence[torch.Tensor], ways: Sequence[tuple[int, int]]) -> int:
        wrong = torch.zeros((), dtype=torch.int64, device=self._device)
        for part, (source, destination) in zip(parts, ways, strict=True):
            wrong += pattern.count_wrong(part, self._messages(part.dtype, part.numel()).between(source, destination, 1))
        return int(wrong)

    def _reduced(self, bound: BoundCall) -> "_Sum":
        return _Sum(bound, self._seed, self._device)


class _Sum:
    """The operands of a sum over the group, and its exact result."""

    def __init__(self, bound: BoundCall, seed: int, device: torch.device) -> None:
        given = bound.input
        self._operands = Operands(
            "sum", given.dtype, device, ranks=bound.team.size, seed=seed, count=max(1, given.numel())
        )

    def contribute(self, bound: BoundCall) -> None:
        pattern.fill(bound.input, self._operands.contribution(bound.team.rank, 1))

    def wrong(self, bound: BoundCall) -> int:
        if bound.call.comm_type is CommType.reduce and not bound.is_root:
            return 0
        begin = bound.team.rank * bound.output.numel() if bound.call.comm_type in SCATTERING else 0
        return int(pattern.count_wrong(bound.output, self._operands.result(1), begin, self._operands.tolerance))


def _all(bound: BoundCall) -> range:
    return range(bound.team.size)


def _parts(buffer: torch.Tensor, splits: list[int] | None, ranks: int) -> Sequence[torch.Tensor]:
    return torch.split(buffer, splits if splits is not None else [buffer.numel() // ranks] * ranks)
