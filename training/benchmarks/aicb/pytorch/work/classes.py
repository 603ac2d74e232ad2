"""Divides a rank's operations into classes of one type, group and size, and records each iteration by them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from training.benchmarks.aicb.pytorch.work.stream import Stream
from workloads.oplog.facts import LogFacts
from workloads.oplog.measured import executed_bytes, group_ranks
from workloads.oplog.recorder import WAITED, OpRecorder

MOST_RECORDED = 256
"""Classes that the log has figures of, those of the largest sizes."""
Numbers = NDArray[np.int64]


class OpClass(NamedTuple):
    """Operations that are alike: the names of their type and group ("": none), their ranks, and bytes of each."""

    type: str
    group: str
    ranks: int
    bytes: int


@dataclass(frozen=True, slots=True)
class OpClasses:
    """A rank's classes, the largest sizes first, and by row the number of its class, -1: none, shape (rows,)."""

    classes: list[OpClass]
    of_row: Numbers

    @classmethod
    def of(cls, stream: Stream, facts: LogFacts) -> OpClasses:
        """The classes of the communication in a stream."""
        own = [
            OpClass(
                item.comm_type.name,
                "" if item.comm_group is None else item.comm_group.name,
                group_ranks(item, facts),
                executed_bytes(item, facts),
            )
            if item.is_communication
            else None
            for item in stream.items
        ]
        found = sorted({each for each in own if each is not None}, key=lambda each: (-each.bytes, each))
        number = {each: place for place, each in enumerate(found)}
        of_item = np.array([-1 if each is None else number[each] for each in own], np.int64)
        of_row = np.full(stream.epochs[-1].end + 1, -1, np.int64)
        for epoch in stream.epochs:
            of_row[epoch.first : epoch.end] = of_item[epoch.items]
        return cls(found, of_row)

    def recorded(self) -> list[OpClass]:
        """The classes that the log has figures of."""
        return self.classes[:MOST_RECORDED]

    def iteration(self, recorder: OpRecorder, begin: int) -> dict[str, Any]:
        """The figures of the operations since slot `begin`, for STEP_END: exposed and hidden communication in ms, and
        of each class its number, how many there were, and their total, median and longest time in ms.
        """
        names = ("op", "issue_ns", "done_ns", "exposed_ns")
        op, issue, done, exposed = (
            np.frombuffer(getattr(recorder, name), np.int64)[begin : recorder.count] for name in names
        )
        of, duration = self.of_row[op], done - issue
        exposed = np.where(exposed == WAITED, duration, exposed)
        chosen = (of >= 0) & (duration >= 0)
        of, duration, exposed = of[chosen], duration[chosen], exposed[chosen]
        order = np.lexsort((duration, of))
        of, times = of[order], duration[order]
        number, first, count = np.unique(of, return_index=True, return_counts=True)
        total = np.add.reduceat(times, first) if len(first) else times
        middle = (times[first + (count - 1) // 2] + times[first + count // 2]) / 2
        last = times[first + count - 1]
        columns = (number, count, total / 1e6, middle / 1e6, last / 1e6)
        rows = [[*row] for row in zip(*(column.tolist() for column in columns), strict=True)]
        return {
            "exposed_ms": float(exposed.sum()) / 1e6,
            "hidden_ms": float(np.maximum(0, duration - exposed).sum()) / 1e6,
            "classes": [row for row in rows if row[0] < MOST_RECORDED],
        }
