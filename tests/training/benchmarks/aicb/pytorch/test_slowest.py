"""The slowest iteration of two ranks whose op logs are made by hand, with clocks of their own."""

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from training.benchmarks.aicb.pytorch.reporting.summary import gathered_slowest
from training.benchmarks.driver.workload.process_group import ProcessGroup
from workloads.formats.workload import Workload
from workloads.oplog.facts import LogFacts
from workloads.oplog.file import OpLog
from workloads.rows.ops import EPOCH_END, CommGroup, CommType, LogItem

MS = 1_000_000


class Together:
    """Threads that gather as ranks do."""

    def __init__(self, ranks: int) -> None:
        self._values: list[Any] = [None] * ranks
        self._barrier = threading.Barrier(ranks, timeout=30)

    def member(self, rank: int) -> ProcessGroup:
        return cast("ProcessGroup", SimpleNamespace(gathered=partial(self._gathered, rank)))

    def _gathered(self, rank: int, value: Any) -> list[Any]:
        self._values[rank] = value
        self._barrier.wait()
        found = list(self._values)
        self._barrier.wait()
        return found


def log_of(rank: int, offset_ms: int, records: list[tuple[int, int, int, int]]) -> OpLog:
    """Records are op, iteration, issue and end in ms of rank 0's clock; the rank's own is `offset_ms` behind it."""
    rows = [LogItem(CommType.all_reduce, CommGroup.dp_group, msg_size=64), EPOCH_END]
    facts = LogFacts(rank=rank, world_size=2, mode="each", clock_offset_ns=offset_ms * MS, groups={"dp_group": [0, 1]})
    op, iteration, issue, done = np.array(records, dtype=np.int64).T
    own = (issue - offset_ms) * MS, (done - offset_ms) * MS
    return OpLog(facts, Workload(rows), op, iteration, *own, own[1] - own[0])


def test_spans_are_in_ms_since_the_first_rank_began_whatever_the_clocks_are() -> None:
    logs = [
        log_of(0, 0, [(0, 1, 1, 2), (1, 1, 1, 3), (0, 2, 12, 30), (1, 2, 10, 40)]),
        log_of(1, 500, [(0, 1, 1, 2), (1, 1, 1, 3), (0, 2, 25, 35), (1, 2, 20, 38)]),
    ]
    group, times = Together(2), [[0, 2 * MS, 30 * MS], [0, 2 * MS, 18 * MS]]
    with ThreadPoolExecutor(2) as ranks:
        found = list(ranks.map(lambda rank: gathered_slowest(logs[rank], times, group.member(rank)), (0, 1)))
    slowest = found[0]["slowest_iteration"]
    assert found[0] == found[1] and (slowest["iteration"], slowest["ms"], slowest["ranks"]) == (2, 30.0, [0, 1])
    (spans,) = slowest["spans"].values()
    assert [row for row, _, _ in spans] == [0, 1]
    bins = [pytest.approx(edge, abs=2 * 30 / 1500) for edge in (2, 20, 15, 25)]
    assert [edge for _, *edges in spans for edge in edges] == bins
    assert gathered_slowest(logs[0], [[5], [5]], group.member(0)) == {}, "only the set-up"
