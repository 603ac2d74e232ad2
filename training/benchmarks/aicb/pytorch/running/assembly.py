"""Assembles a rank's run: stream, process groups, one arena, and the steps of each epoch.

Without overlapping calls the arena is as large as the largest call's input and output together.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from training.benchmarks.aicb.pytorch.running.computing import Computation
from training.benchmarks.aicb.pytorch.running.execution import EpochSteps, Step
from training.benchmarks.aicb.pytorch.running.operations import BoundCall, Issue, batch
from training.benchmarks.aicb.pytorch.work import agreement
from training.benchmarks.aicb.pytorch.work.agreement import GroupKey, key_of
from training.benchmarks.aicb.pytorch.work.footprint import footprint
from training.benchmarks.aicb.pytorch.work.stream import Epoch, Stream
from training.benchmarks.driver.workload.accelerator import accelerators, is_accelerator
from training.benchmarks.driver.workload.memory import smallest_available_bytes
from training.benchmarks.driver.workload.process_group import ProcessGroup
from training.benchmarks.driver.workload.team import Team
from training.benchmarks.driver.workload.usage import UnusableSettingsError
from workloads.oplog.file import Numbers
from workloads.rows.calls import Call

_MOST_DIVISOR = 1 << 40


@dataclass(frozen=True, slots=True)
class Arena:
    """`offsets` has for each epoch the byte at which each row's buffers begin, shape (rows,)."""

    bytes: int
    offsets: list[NDArray[np.int64]]


def plan(stream: Stream, totals: list[int]) -> Arena:
    """The places of all calls; `totals`: bytes of each of the stream's items.

    Each call takes the lowest place that is free from its issue until it is waited for.
    """
    known: dict[tuple[bytes, bytes], tuple[int, NDArray[np.int64]]] = {}
    offsets, most = [], 0
    for epoch in stream.epochs:
        key = epoch.items.tobytes(), epoch.until.tobytes()
        if key not in known:
            known[key] = _placed(epoch, totals)
        size, places = known[key]
        most = max(most, size)
        offsets.append(places)
    return Arena(most, offsets)


def _placed(epoch: Epoch, totals: list[int]) -> tuple[int, NDArray[np.int64]]:
    places = np.zeros(len(epoch.items), np.int64)
    held: list[tuple[int, int, int]] = []  # (offset, end, waited for after this row)
    most = 0
    for index, (item, until) in enumerate(zip(epoch.items.tolist(), epoch.until.tolist(), strict=True)):
        size = totals[item]
        held = [each for each in held if each[2] >= index]
        offset = 0
        for begin, end, _ in held:
            if offset + size <= begin:
                break
            offset = max(offset, end)
        most = max(most, offset + size)
        places[index] = offset
        if until > index and size:
            held = sorted([*held, (offset, offset + size, until)])
    return most, places


def fitting_scale(scale: Fraction, need: int, free: int) -> str:
    """The largest scale 1/2**k below `scale` with which `need` bytes at `scale` shrink to `free` bytes at most."""
    divisor = 1
    while divisor < _MOST_DIVISOR and (Fraction(1, divisor) >= scale or need / scale / divisor > free):
        divisor *= 2
    return f"1/{divisor}"


def with_received(stream: Stream, teams: dict[GroupKey, Team]) -> Stream:
    """The stream with the received bytes of its uneven exchanges. All ranks of a group call it.

    Each rank learns by one exchange of numbers a group. An equal row with other bytes at another place is another item.
    """
    uneven = {place: call for place, call in enumerate(stream.calls) if call is not None and call.in_splits is not None}
    if not uneven:
        return stream
    items, calls = list(stream.items), list(stream.calls)
    epochs = [epoch.items.copy() for epoch in stream.epochs]
    by_group: dict[GroupKey, list[int]] = {}
    for place, call in uneven.items():
        by_group.setdefault(key_of(call), []).append(place)
    for key, own in sorted(by_group.items()):
        where = [
            (number, index) for number, order in enumerate(epochs) for index in np.flatnonzero(np.isin(order, own))
        ]
        sent = [uneven[int(epochs[number][index])].in_splits or () for number, index in where]
        known: dict[tuple[int, tuple[int, ...]], int] = {}
        for (number, index), received in zip(where, _exchanged(sent, teams[key]), strict=True):
            place = int(epochs[number][index])
            if (place, received) not in known:
                known[place, received] = len(calls)
                items.append(items[place])
                calls.append(replace(uneven[place], out_splits=received))
            epochs[number][index] = known[place, received]
    return Stream(items, _without(calls, uneven), list(map(_ordered, stream.epochs, epochs)))


def _ordered(epoch: Epoch, items: Numbers) -> Epoch:
    return Epoch(epoch.first, epoch.end, items, epoch.until, epoch.batches)


def _without(calls: list[Call | None], replaced: dict[int, Call]) -> list[Call | None]:
    """The calls, None where others took their place."""
    return [None if place in replaced else call for place, call in enumerate(calls)]


def _exchanged(sent: list[tuple[int, ...]], team: Team) -> list[tuple[int, ...]]:
    """For each row the bytes from each rank, where `sent` has those for each rank."""
    given = torch.tensor(sent, dtype=torch.int64, device=team.device).t().contiguous()
    received = torch.empty_like(given)
    dist.all_to_all_single(received, given, group=team.handle)
    return [tuple(row) for row in received.t().tolist()]


@dataclass(frozen=True, slots=True)
class Assembled:
    """Everything that a run needs: the arena's bytes stay allocated until the end. in_batches: see StepMaker."""

    stream: Stream
    teams: dict[GroupKey, Team]
    buffer: torch.Tensor
    places: Arena
    rank: int
    compute: Computation | None = None
    in_batches: bool = False

    def bound(self, number: int, index: int) -> BoundCall | None:
        """The call of a row of an epoch on its buffers; None for a computation."""
        epoch = self.stream.epochs[number]
        call = self.stream.calls[int(epoch.items[index])]
        if call is None:
            return None
        return BoundCall(call, self.teams[agreement.key_of(call)], self.buffer, int(self.places.offsets[number][index]))


def assemble(
    stream: Stream,
    plans: Sequence[agreement.RankPlan],
    group: ProcessGroup,
    scale: Fraction,
    compute: Computation | None = None,
) -> Assembled:
    """Open the groups, and take the memory once every rank has said what it needs.

    Raises:
        UnusableSettingsError: some rank has too little memory; the message has the largest scale that fits.
    """
    teams = agreement.open_teams(plans, group)
    stream = with_received(stream, teams)
    rank = group.placement.rank
    totals = [0 if call is None else footprint(call, rank).total for call in stream.calls]
    places = plan(stream, totals)
    needs = group.gathered(places.bytes + (0 if compute is None else compute.bytes))
    free = smallest_available_bytes(group)
    if rank == 0:
        print(f"aicb: one buffer per rank: {max(needs):,} bytes (largest rank), {free:,} bytes are free", flush=True)
    if max(needs) > free:
        largest = max(needs)
        raise UnusableSettingsError(
            f"the workload needs {largest / 1e9:.1f} GB on rank {needs.index(largest)}, {free / 1e9:.1f} GB a rank"
            f" are free; --set scale={fitting_scale(scale, largest, free)} fits"
        )
    buffer = torch.zeros(places.bytes, dtype=torch.uint8, device=group.device)
    if compute is not None:
        compute.allocate()
    # Over a library with group calls, such as NCCL, a send alone would wait for its receiver, which sends alone.
    in_batches = is_accelerator(group.device) and accelerators(group.device).groups
    return Assembled(stream, teams, buffer, places, rank, compute, in_batches=in_batches)


class StepMaker:
    """Makes the steps of epochs; equal epochs share them but for their positions.

    wrap: what becomes of a blocking call; in_batches: sends and receives of a batch are one step, as NCCL needs it.
    """

    def __init__(
        self, assembled: Assembled, wrap: Callable[[Issue], Issue] | None = None, *, in_batches: bool = False
    ) -> None:
        self._run, self._wrap, self._in_batches = assembled, wrap, in_batches
        self._issues: dict[tuple[object, ...], Issue] = {}

    def epoch(self, number: int) -> EpochSteps:
        """The steps of an epoch of the stream; without a replay, computations are left out."""
        epoch = self._run.stream.epochs[number]
        offsets = self._run.places.offsets[number].tolist()
        batches = epoch.batches.tolist() if self._in_batches else [-1] * len(offsets)
        waiting = _waited_after(epoch)
        steps: list[Step] = []
        places: dict[int, int] = {}
        due: list[int] = []
        for index, (item, until) in enumerate(zip(epoch.items.tolist(), epoch.until.tolist(), strict=True)):
            call = self._run.stream.calls[item]
            due += [places[each] for each in waiting.get(index, ()) if each in places]
            if call is None:
                work = None if self._run.compute is None else self._run.compute.issue(item)
                if work is not None:
                    steps.append(Step(epoch.first + index, work, True, None))
            elif batches[index] >= 0:
                if batches[index] == index:
                    members = range(index, 1 + until)
                    others = tuple(epoch.first + each for each in members[1:])
                    steps.append(Step(epoch.first + index, self._batch(number, members), True, None, (), others))
            else:
                is_blocking = until == index
                places[index] = len(steps)
                issue = self._issue(number, index, item, offsets[index], is_async=not is_blocking)
                steps.append(Step(epoch.first + index, issue, is_blocking, _key(call)))
            if due and steps:
                steps[-1].waits = (*steps[-1].waits, *due)
                due = []
        return EpochSteps(steps, epoch.end)

    def _issue(self, number: int, index: int, item: int, offset: int, *, is_async: bool) -> Issue:
        key = item, offset, is_async
        found = self._issues.get(key)
        if found is None:
            bound = self._run.bound(number, index)
            assert bound is not None
            found = bound.issue(is_async=is_async)
            if self._wrap is not None and not is_async:
                found = self._wrap(found)
            self._issues[key] = found
        return found

    def _batch(self, number: int, members: range) -> Issue:
        epoch, offsets = self._run.stream.epochs[number], self._run.places.offsets[number]
        key = tuple((int(epoch.items[index]), int(offsets[index])) for index in members)
        found = self._issues.get(key)
        if found is None:
            bound = [self._run.bound(number, index) for index in members]
            found = batch([each for each in bound if each is not None])
            found = self._issues[key] = found if self._wrap is None else self._wrap(found)
        return found


def _waited_after(epoch: Epoch) -> dict[int, list[int]]:
    """By index of a row, the rows that are waited for after its issue; blocking rows wait for themselves."""
    found: dict[int, list[int]] = {}
    for index, until in enumerate(epoch.until.tolist()):
        if until > index:
            found.setdefault(until, []).append(index)
    return found


def _key(call: Call) -> object:
    return call.group, call.ranks, call.comm_type.name if call.peer is not None else "", call.peer
