"""Assembles a rank's run: stream, process groups, one arena, and the steps of each epoch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch

from training.benchmarks.aicb.pytorch.running.computing import Computation
from training.benchmarks.aicb.pytorch.running.execution import EpochSteps, Step
from training.benchmarks.aicb.pytorch.running.operations import BoundCall, Issue, batch
from training.benchmarks.aicb.pytorch.work import agreement, arena, splits
from training.benchmarks.aicb.pytorch.work.agreement import GroupKey
from training.benchmarks.aicb.pytorch.work.calls import RankCall
from training.benchmarks.aicb.pytorch.work.footprint import footprint
from training.benchmarks.aicb.pytorch.work.stream import Epoch, Stream
from training.benchmarks.driver.workload.accelerator import accelerators, is_accelerator
from training.benchmarks.driver.workload.memory import smallest_available_bytes
from training.benchmarks.driver.workload.process_group import ProcessGroup
from training.benchmarks.driver.workload.team import Team
from training.benchmarks.driver.workload.usage import UnusableSettingsError


@dataclass(frozen=True, slots=True)
class Assembled:
    """Everything that a run needs: the arena's bytes stay allocated until the end. in_batches: see StepMaker."""

    stream: Stream
    teams: dict[GroupKey, Team]
    buffer: torch.Tensor
    places: arena.Arena
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
    stream = splits.with_received(stream, teams)
    rank = group.placement.rank
    totals = [0 if call is None else footprint(call, rank).total for call in stream.calls]
    places = arena.plan(stream, totals)
    needs = group.gathered(places.bytes + (0 if compute is None else compute.bytes))
    free = smallest_available_bytes(group)
    if rank == 0:
        print(f"aicb: one buffer per rank: {max(needs):,} bytes (largest rank), {free:,} bytes are free", flush=True)
    if max(needs) > free:
        largest = max(needs)
        raise UnusableSettingsError(
            f"the workload needs {largest / 1e9:.1f} GB on rank {needs.index(largest)}, {free / 1e9:.1f} GB a rank"
            f" are free; --set scale={arena.fitting_scale(scale, largest, free)} fits"
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


def _key(call: RankCall) -> object:
    return call.group, call.ranks, call.kind.name if call.peer is not None else "", call.peer
