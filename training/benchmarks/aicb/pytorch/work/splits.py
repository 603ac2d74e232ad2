"""Gives each rank what it receives in uneven exchanges: what a rank sends is in its workload, what comes is not."""

from dataclasses import replace

import numpy as np
import torch
import torch.distributed as dist

from training.benchmarks.aicb.pytorch.work.agreement import GroupKey, key_of
from training.benchmarks.aicb.pytorch.work.calls import RankCall
from training.benchmarks.aicb.pytorch.work.stream import Epoch, Stream
from training.benchmarks.driver.workload.team import Team
from workloads.oplog.file import Numbers


def with_received(stream: Stream, teams: dict[GroupKey, Team]) -> Stream:
    """The stream with the received bytes of its uneven exchanges. All ranks of a group call it.

    Each rank learns by one exchange of numbers a group. An equal row that brings different bytes at another place
    becomes another item.
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


def _without(calls: list[RankCall | None], replaced: dict[int, RankCall]) -> list[RankCall | None]:
    """The calls, None where others took their place."""
    return [None if place in replaced else call for place, call in enumerate(calls)]


def _exchanged(sent: list[tuple[int, ...]], team: Team) -> list[tuple[int, ...]]:
    """For each row the bytes from each rank, where `sent` has those for each rank."""
    given = torch.tensor(sent, dtype=torch.int64, device=team.device).t().contiguous()
    received = torch.empty_like(given)
    dist.all_to_all_single(received, given, group=team.handle)
    return [tuple(row) for row in received.t().tolist()]
