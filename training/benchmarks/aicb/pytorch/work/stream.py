"""Lays a stage's rows out as the stream of one rank: which call comes when, and after which it is waited for. No torch.

A row with an overlap is waited for after so many more rows; a row without one at once. Sends and receives that follow
one another are a batch, as Megatron hands them to the network together: those that state an overlap, by it; others, a
send and the receive from the same rank directly after it; in an interleaved schedule, those in Megatron's order. All
of a batch are issued before the first is waited for. Rows of AICB's form, which state no peer, are no batch.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from training.benchmarks.aicb.pytorch.work.calls import Caller
from training.benchmarks.aicb.pytorch.work.stage import StageWorkload
from workloads.job.errors import AicbError
from workloads.rows.blocks import NOTHING
from workloads.rows.calls import POINT_TO_POINT, Call
from workloads.rows.ops import NEVER, CommType, LogItem

MOST_ROWS = 1 << 24
Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Epoch:
    """The rows of one epoch without its end; all arrays have shape (rows,).

    first: position of its first row in the workload; end: that of its epoch end; items: index into `Stream.items`;
    until: index in the epoch of the row after whose issue this one is waited for, its own for a blocking one;
    batches: index of the first row of its batch for sends and receives that are in one, also alone in it, else -1.
    """

    first: int
    end: int
    items: Numbers
    until: Numbers
    batches: Numbers


@dataclass(frozen=True, slots=True)
class Stream:
    """All epochs of a rank; `items` are the distinct rows, `calls` what each is for this rank, None for a GEMM."""

    items: list[LogItem]
    calls: list[Call | None]
    epochs: list[Epoch]

    def at(self, epoch: Epoch, index: int) -> tuple[LogItem, Call | None]:
        """The row and call at an index of the epoch."""
        item = int(epoch.items[index])
        return self.items[item], self.calls[item]


def stream_of(stage: StageWorkload, caller: Caller, *, blocking: bool) -> Stream:
    """The stream of a rank. blocking: each call is waited for at once, or with its batch.

    Raises:
        AicbError: the workload has no epochs, too many rows, or a row that cannot be called; all mistakes at once.
    """
    if len(stage.workload) > MOST_ROWS:
        raise AicbError(f"{stage.name}: has {len(stage.workload)} rows; at most {MOST_ROWS} can be run and logged")
    items, order = _distinct(stage)
    calls: list[Call | None] = []
    known: dict[Call, Call] = {}
    problems: list[str] = []
    for item in items:
        try:
            made = caller.call(item) if item.is_communication else None
            calls.append(None if made is None else known.setdefault(made, made))
        except AicbError as error:
            problems.append(str(error))
    if problems:
        raise AicbError("\n".join(dict.fromkeys(problems)))
    interleaved = stage.workload.args is not None and stage.workload.args.virtual_pipeline > 1
    ends = [place for place, item in enumerate(items) if item.comm_type is CommType.epoch_end]
    borders = np.flatnonzero(np.isin(order, ends))
    if not len(borders):
        raise AicbError(f"{stage.name}: has no epoch_end rows, which close the set-up and each iteration")
    epochs, first = [], 0
    known_epochs: dict[bytes, tuple[Numbers, Numbers]] = {}
    for border in map(int, borders):
        own = order[first:border]
        waits = known_epochs.get(own.tobytes())
        if waits is None:
            waits = known_epochs[own.tobytes()] = _waits(items, own, blocking=blocking, interleaved=interleaved)
        epochs.append(Epoch(first, border, own, *waits))
        first = border + 1
    return Stream(items, calls, epochs)


def _distinct(stage: StageWorkload) -> tuple[list[LogItem], Numbers]:
    """The distinct rows, and for each row of the workload, shape (rows,), which of them it is."""
    items: list[LogItem] = []
    places: dict[LogItem, int] = {}
    by_object: dict[tuple[int, tuple[int, int]], int] = {}
    order = np.empty(len(stage.workload), np.int64)
    for number, (row, offset) in enumerate(stage.workload.rows.placed()):
        key = id(row), offset
        place = by_object.get(key)
        if place is None:
            item = row if offset == NOTHING else row.shifted(offset)
            place = by_object[key] = places.setdefault(item, len(items))
            if place == len(items):
                items.append(item)
        order[number] = place
    return items, order


def _waits(items: list[LogItem], own: Numbers, *, blocking: bool, interleaved: bool) -> tuple[Numbers, Numbers]:
    """`until` and `batches` of an epoch."""
    until, batches = np.arange(len(own)), np.full(len(own), -1, np.int64)
    communication = [index for index, item in enumerate(own) if items[item].is_communication]
    for place, index in enumerate(communication):
        item = items[own[index]]
        if item.overlap is not None and (not blocking or item.comm_type in POINT_TO_POINT):
            last = len(communication) - 1 if item.overlap == NEVER else place + item.overlap
            until[index] = communication[min(last, len(communication) - 1)]
    for start, stop in _runs(items, own):
        if blocking:
            # A run is waited for as a whole at the latest: what follows it in the program is synchronised.
            until[start:stop] = np.minimum(until[start:stop], stop - 1)
        for first, last in _batches([items[item] for item in own[start:stop]], interleaved=interleaved):
            until[start + first : start + last] = np.maximum(until[start + first : start + last], start + last - 1)
            batches[start + first : start + last] = start + first
    return until, batches


def _runs(items: list[LogItem], own: Numbers) -> Iterator[tuple[int, int]]:
    """Where sends and receives follow one another, start and stop."""
    start = None
    for index, item in enumerate([*own, None]):
        moves = item is not None and items[item].comm_type in POINT_TO_POINT
        if moves and start is None:
            start = index
        elif not moves and start is not None:
            yield start, index
            start = None


def _batches(run: list[LogItem], *, interleaved: bool) -> Iterator[tuple[int, int]]:
    """The batches of a run whose rows state a peer and no overlap, start and stop."""
    start = 0
    for index in range(1, len(run) + 1):
        if index == len(run) or not _joined(run[index - 1], run[index], interleaved=interleaved):
            if run[start].peer is not None and run[start].overlap is None:
                yield start, index
            start = index


def _joined(before: LogItem, item: LogItem, *, interleaved: bool) -> bool:
    if item.peer is None or item.overlap is not None:
        return False
    if interleaved:
        return _way(before) < _way(item)
    return before.comm_type is CommType.isend and item.comm_type is CommType.irecv and before.peer == item.peer


def _way(item: LogItem) -> int:
    """The place in Megatron's order: send to the stage before, receive from it, send to the next, receive from it."""
    before = (item.comm_type is CommType.isend) == (item.phase == "backward")
    return 2 * (not before) + (item.comm_type is CommType.irecv)
