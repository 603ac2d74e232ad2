"""Records the operations that one rank executed, and reads and writes them as one columnar file a rank (numpy .npz).

How an executor uses it:

    log = OpRecorder(capacity)                     # before the first operation: nothing is allocated afterwards
    log.record(op, iteration, issue_ns, done_ns)   # after each operation; under 1 us

or, where an operation is complete later than the next one is issued:

    slot = log.issued(op, iteration, issue_ns)     # at the call
    log.finished(slot, done_ns, exposed_ns)        # when it is complete; any order, any thread

    log.save(folder / file_name(rank), facts, workload)

`op` is the position of the row in this rank's stage workload as `enumerate(workload)` counts it, computations and
epoch ends included. `iteration` is 0 for the initialization, then 1, 2 ...; an executor that runs the last iteration of
a file again repeats its positions under a higher number. A row `epoch_end` is recorded too: `issue_ns` is when its
epoch began, `done_ns` when it ended, so that its duration is the iteration's time. Computations are recorded wherever
they are executed. All times are ns of one monotonic clock of the rank (time.monotonic_ns). `exposed_ns` is how long the
program waited for the operation; for `record` it is done_ns - issue_ns. Only finished operations are saved. An executor
that was late with an operation may say before it, by `log.queued(ns)`, how much of that it waited for a CPU.

The workload is stored in the file, in its second form (repetitions once), so that a log explains itself; its sha256 is
`workload_digest(workload)` of `file`, whose `read` gives one rank's `OpLog`, `read_folder` those of all ranks.
"""

from array import array
from pathlib import Path

import numpy as np

from workloads.formats.workload import Workload
from workloads.oplog.facts import MOST_RECORDS, LogFacts
from workloads.oplog.file import COLUMNS, OpLog, problems, write

WAITED = -1
"""The exposed time of an operation that the program waited for from its issue to its completion, while recording."""


class OpRecorder:
    """Room for `capacity` operations, allocated and touched at once; recording only writes numbers by index."""

    __slots__ = (*COLUMNS, "capacity", "count", "queued_ns")

    def __init__(self, capacity: int) -> None:
        """Allocate 40 bytes an operation.

        Raises:
            ValueError: capacity is not 0 to MOST_RECORDS.
        """
        if not 0 <= capacity <= MOST_RECORDS:
            raise ValueError(f"capacity = {capacity}; allowed: 0 to {MOST_RECORDS}")
        self.queued_ns: dict[int, int] = {}
        self.capacity = capacity
        self.count = 0
        self.op, self.iteration, self.issue_ns, self.done_ns, self.exposed_ns = (
            array("q", b"\xff" * (8 * capacity)) for _ in COLUMNS
        )

    def record(self, op: int, iteration: int, issue_ns: int, done_ns: int) -> None:
        """One operation that the program waited for from its issue to its completion, both in ns.

        Raises:
            IndexError: there is no room left.
        """
        slot = self.count
        self.op[slot] = op
        self.iteration[slot] = iteration
        self.issue_ns[slot] = issue_ns
        self.done_ns[slot] = done_ns
        self.count = slot + 1

    def issued(self, op: int, iteration: int, issue_ns: int) -> int:
        """One operation issued at `issue_ns`; the answer is its slot, for `finished`.

        Raises:
            IndexError: there is no room left.
        """
        slot = self.count
        self.op[slot] = op
        self.iteration[slot] = iteration
        self.issue_ns[slot] = issue_ns
        self.done_ns[slot] = issue_ns - 1
        self.count = slot + 1
        return slot

    def finished(self, slot: int, done_ns: int, exposed_ns: int = 0) -> None:
        """The operation of `slot` was complete at `done_ns`; the program waited for it for `exposed_ns`."""
        self.done_ns[slot] = done_ns
        self.exposed_ns[slot] = exposed_ns

    def queued(self, waited_ns: int) -> None:
        """The program waited so long for a CPU before the next operation that it issues."""
        self.queued_ns[self.count] = waited_ns

    def log(self, facts: LogFacts, workload: Workload) -> OpLog:
        """The records so far, without the operations that are not finished.

        Raises:
            ValueError: `facts` or a record is wrong; the message names it.
        """
        columns = [np.frombuffer(getattr(self, name), np.int64)[: self.count].copy() for name in COLUMNS]
        finished = columns[3] >= columns[2]
        columns[4] = np.where(columns[4] == WAITED, columns[3] - columns[2], columns[4])
        queued = np.zeros(self.count, np.int64)
        for slot, waited in self.queued_ns.items():
            queued[slot:][:1] = waited
        found = OpLog(facts, workload, *(column[finished] for column in (*columns, queued)))
        if wrong := problems(found):
            raise ValueError("; ".join(wrong))
        return found

    def save(self, path: Path, facts: LogFacts, workload: Workload) -> int:
        """Write the file (whole or not at all). Returns its bytes; `facts.workload_sha256` is filled in where empty.

        Raises:
            OSError: the file cannot be written.
            ValueError: as for `log`.
        """
        return write(path, self.log(facts, workload))
