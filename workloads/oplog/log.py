"""A log: the rows that were executed with their times and bandwidths, epoch by epoch, as AICB's `Log` has them."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from common.whole_files import write_whole
from workloads.formats import csvfile
from workloads.job.errors import WorkloadFileError
from workloads.oplog import measured
from workloads.oplog.facts import MOST_RECORDS
from workloads.rows.ops import HEADER, CommType, LogItem

if TYPE_CHECKING:
    from workloads.oplog.file import OpLog

DIGITS = 2
"""Decimals of the bandwidths in a log, as in AICB's."""


@dataclass(slots=True)
class Log:
    """Rows in the order of execution.

    comm_logs: every row but the epoch ends: elapsed_time in ms, algbw and busbw in `units` a second.
    epoch_times: ms of each epoch, the initialization first. comm_log_each_epoch: the rows of each epoch.
    """

    comm_logs: list[LogItem] = field(default_factory=list)
    epoch_times: list[float] = field(default_factory=list)
    comm_log_each_epoch: list[list[LogItem]] = field(default_factory=list)
    frame: str = ""
    units: str = "GB"
    scale: str = "1"

    @classmethod
    def load(cls, path: Path | str, units: str = "GB") -> "Log":
        """Read a rank's op log (.npz), or a log CSV of ours or of AICB, whose bandwidths stay as they are written.

        Raises:
            AicbError: the file is malformed; the message names it.
        """
        path = Path(path)
        if path.suffix == ".npz":
            from workloads.oplog.file import read

            return cls.of_ops(read(path), units)
        rows, _ = csvfile.load(path)
        if len(rows) > MOST_RECORDS:
            raise WorkloadFileError(path, None, f"has {len(rows)} rows; allowed in a log: {MOST_RECORDS}")
        log = cls.of_rows(rows)
        if any(row.elapsed_time is None for row in log.comm_logs):
            raise WorkloadFileError(path, None, "has rows without _elapsed_time: a workload, and no log of one")
        return log

    @classmethod
    def of_rows(cls, rows: Iterable[LogItem]) -> "Log":
        """From executed rows; each epoch_end closes an epoch, whose time in ms it has."""
        log, current = cls(), list[LogItem]()
        for row in rows:
            if row.comm_type is CommType.epoch_end:
                log.epoch_times.append(float(row.elapsed_time or 0))
                log.comm_log_each_epoch.append(current)
                current = []
            else:
                log.comm_logs.append(row)
                current.append(row)
        if current:
            log.comm_log_each_epoch.append(current)
        return log

    @classmethod
    def of_ops(cls, ops: "OpLog", units: str = "GB") -> "Log":
        """The log of one rank's op log, with the executed sizes."""
        log = cls.of_rows(executed_rows(ops, units))
        log.frame, log.units, log.scale = ops.facts.frame, units, ops.facts.scale
        return log

    def save(self, path: Path) -> int:
        """Write a log CSV with AICB's columns. Returns its bytes."""
        lines = [HEADER]
        for number, rows in enumerate(self.comm_log_each_epoch):
            lines += [row.to_csv() for row in rows]
            if number < len(self.epoch_times):
                end = LogItem(CommType.epoch_end, elapsed_time=self.epoch_times[number], algbw=0.0, busbw=0.0)
                lines.append(end.to_csv())
        data = "".join(f"{line}\n" for line in lines).encode()
        write_whole(path, [data])
        return len(data)


def executed_rows(ops: "OpLog", units: str = "GB") -> Iterable[LogItem]:
    """The rows that a rank executed, in AICB's order: an epoch's end follows its operations.

    elapsed_time is in ms, msg_size in the bytes that were sent.
    """
    rows = ops.rows()
    known: dict[int, tuple[LogItem, int, int]] = {}
    for op, duration in zip(ops.op.tolist(), ops.duration_ns.tolist(), strict=True):
        found = known.get(op)
        if found is None:
            row = rows[op]
            size = measured.executed_bytes(row, ops.facts)
            shown = row if isinstance(row.msg_size, tuple) or ops.facts.scale == "1" else replace(row, msg_size=size)
            found = known[op] = shown, size, measured.group_ranks(row, ops.facts)
        row, size, ranks = found
        ms = duration / 1e6
        if row.comm_type is CommType.computation:
            yield replace(row, elapsed_time=ms, algbw=0, busbw=0)
            continue
        algbw, busbw = measured.bandwidths(row, size, ms, ranks, units)
        yield replace(row, elapsed_time=ms, algbw=round(algbw, DIGITS), busbw=round(busbw, DIGITS))
