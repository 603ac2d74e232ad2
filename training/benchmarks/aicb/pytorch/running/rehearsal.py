"""Runs every kind of call once with data that is checked, before anything is timed; it also opens the connections."""

from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
import torch.distributed as dist

from training.benchmarks.aicb.pytorch.running.assembly import Assembled
from training.benchmarks.aicb.pytorch.running.checking import DataCheck
from training.benchmarks.aicb.pytorch.running.operations import BoundCall, batch
from training.benchmarks.aicb.pytorch.work.agreement import key_of
from workloads.rows.calls import Call

UNEVEN_CHECKS = 8
"""Uneven exchanges of a group that are checked: each may have other shares on each rank."""
_Begun = tuple[int, dist.Work | None, BoundCall]
"""After which index a call is waited for, the call under way, and on which buffers."""


def rehearse(run: Assembled, check: DataCheck) -> list[str]:
    """Execute the first of each equal calls in the stream's order; what was received wrong, in words.

    All ranks call it. The members of a group have equal calls at equal places, so that they choose the same ones.
    """
    found: list[str] = []
    seen: set[Call] = set()
    uneven: Counter[object] = Counter()
    for number, epoch in enumerate(run.stream.epochs):
        pending: list[_Begun] = []
        for members in _together(run, number, _chosen(run, number, seen, uneven)):
            pending = _finished(pending, members[0], check, found)
            calls = []
            for index in members:
                bound = run.bound(number, index)
                assert bound is not None
                check.write(bound)
                calls.append(bound)
            if run.in_batches and epoch.batches[members[0]] >= 0:
                batch(calls)()
                works: list[dist.Work | None] = [None] * len(calls)
            else:
                works = [bound.issue(is_async=True)() for bound in calls]
            until = int(epoch.until[members[0]])
            pending += [(until, work, bound) for work, bound in zip(works, calls, strict=True)]
            if until == members[-1]:
                pending = _finished(pending, until + 1, check, found)
        _finished(pending, len(epoch.items) + 1, check, found)
    return found


def _together(run: Assembled, number: int, chosen: Iterable[int]) -> Iterator[list[int]]:
    """The chosen indices, those of a batch together where batches are one call."""
    batches = run.stream.epochs[number].batches
    held: list[int] = []
    for index in chosen:
        if held and not (run.in_batches and 0 <= batches[index] == batches[held[0]]):
            yield held
            held = []
        held.append(index)
    if held:
        yield held


def _chosen(run: Assembled, number: int, seen: set[Call], uneven: Counter[object]) -> Iterator[int]:
    """Indices in the epoch of calls that were not executed yet."""
    epoch, calls = run.stream.epochs[number], run.stream.calls
    items, first = np.unique(epoch.items, return_index=True)
    shares = [item for item in items if (call := calls[item]) is not None and call.in_splits is not None]
    places = np.union1d(first, np.flatnonzero(np.isin(epoch.items, shares)))
    for index in places.tolist():
        call = calls[int(epoch.items[index])]
        if call is None:
            continue
        if call.in_splits is not None:
            uneven[key_of(call)] += 1
            if uneven[key_of(call)] <= UNEVEN_CHECKS:
                yield index
        elif call not in seen:
            seen.add(call)
            yield index


def _finished(pending: list[_Begun], before: int, check: DataCheck, found: list[str]) -> list[_Begun]:
    """Wait for the calls that are waited for before this index, and compare; the others stay pending."""
    left = []
    for until, work, bound in pending:
        if until >= before:
            left.append((until, work, bound))
            continue
        if work is not None:
            work.wait()
        wrong = check.wrong(bound)
        if wrong:
            found.append(f"{bound.call.words()}, {bound.call.bytes} bytes: {wrong} of {bound.output.numel()} elements")
    return left
