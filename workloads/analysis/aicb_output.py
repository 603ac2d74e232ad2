"""Prints a log as AICB prints it: a line an operation, a line an iteration, and the tables; then what AICB leaves out.

AICB's tables have means and deviations of the train stage. The same table follows for the init stage, and a table of
the distribution of each. Of the iteration times the columns are AICB's and the values right: AICB shows the first
iteration as the initialization, and the largest as the 90th percentile of up to ten.
"""

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import numpy as np

from workloads.oplog.file import OpLog
from workloads.oplog.log import Log, executed_rows
from workloads.rows.ops import CommGroup, CommType, LogItem

Key = tuple[CommType, CommGroup | None, int | float]
SIZE_UNITS = ("B", "KB", "MB", "GB", "TB", "PB")
NARROW, WIDE = 105, 124


def size_text(size_bytes: int | float) -> str:
    """A size as AICB writes it, in powers of 1024: `0 B`, `8.0 B`, `521.5 KB`."""
    if size_bytes <= 0:
        return "0 B"
    power = min(int(math.log(size_bytes, 1024)), len(SIZE_UNITS) - 1)
    return f"{round(size_bytes / 1024**power, 2)} {SIZE_UNITS[power]}"


def stamp(unix_ns: int) -> str:
    """The beginning of a line that is logged at `unix_ns` (ns since 1970, UTC)."""
    when = datetime.fromtimestamp(unix_ns // 10**9, UTC)
    return f"[{when:%Y-%m-%d %H:%M:%S},{unix_ns // 10**6 % 1000:03}] [INFO]"


def op_line(row: LogItem, unix_ns: int, rank: int = 0, units: str = "GB") -> str:
    """The line of one executed row (elapsed_time in ms) that ended at `unix_ns`."""
    start = f"{stamp(unix_ns)} [RANK {rank}] comm op: CommType.{row.comm_type.name} | comm group: {_group(row)}"
    start += f" | time (ms): {row.elapsed_time or 0:.2f} | msg size: "
    if not row.is_communication:
        return f"{start}0 | algbw ({units}): 0 | busbw ({units}): 0"
    return (
        f"{start}{size_text(row.comm_bytes)} | algbw ({units}): {row.algbw or 0:.2f}  "
        f"| busbw ({units}): {row.busbw or 0:.2f} "
    )


def iteration_line(epoch: int, ms: float, unix_ns: int, rank: int = 0) -> str:
    """The line of one epoch that took `ms` and ended at `unix_ns`, and the empty line after it."""
    return f"{stamp(unix_ns)} [RANK {rank}] --------epoch {epoch} | micro_step time {ms:.2f} ---------\n"


def console(ops: OpLog, *, units: str = "GB", each: bool = True) -> Iterator[str]:
    """All lines that a rank prints of its op log: with `each` one for every operation, then iterations and tables."""
    epoch, rows = 0, list[LogItem]()
    for row, done_ns in zip(executed_rows(ops, units), ops.done_ns.tolist(), strict=True):
        rows.append(row)
        if row.comm_type is CommType.epoch_end:
            yield iteration_line(epoch, float(row.elapsed_time or 0), done_ns + ops.facts.wall_ns, ops.facts.rank)
            epoch += 1
        elif each:
            yield op_line(row, done_ns + ops.facts.wall_ns, ops.facts.rank, units)
    log = Log.of_rows(rows)
    log.frame, log.units, log.scale = ops.facts.frame, units, ops.facts.scale
    end_ns = int(ops.done_ns.max()) if len(ops) else 0
    total = (end_ns - int(ops.issue_ns.min())) / 1e9 if len(ops) else 0.0
    yield from tables(log, end_ns + ops.facts.wall_ns, total)


def tables(log: Log, unix_ns: int, total_seconds: float | None = None) -> Iterator[str]:
    """The tables of a log that ended at `unix_ns`, and the time of all (s; the epochs' sum where it is not given)."""
    train = [row for rows in log.comm_log_each_epoch[1:] for row in rows]
    init = log.comm_log_each_epoch[0] if log.comm_log_each_epoch else []
    if log.scale != "1":
        yield f"{stamp(unix_ns)} sizes are {log.scale} of the workload's\n"
    yield from _means("train", train, unix_ns)
    yield from _means("init", init, unix_ns)
    for stage, rows in (("train", train), ("init", init)):
        yield from _distribution(stage, rows, log.epoch_times[1:] if stage == "train" else [], unix_ns)
    iterations = log.epoch_times[1:]
    if iterations and log.frame != "collective_test":
        yield from _iterations(log.epoch_times, unix_ns)
    total = sum(log.epoch_times) / 1000 if total_seconds is None else total_seconds
    yield f"total time for {log.frame or 'workload'} and {len(iterations)} iterations is {total:.4f} s"


def grouped(rows: Sequence[LogItem]) -> dict[Key, list[LogItem]]:
    """The communication rows by type, group and size, in AICB's order."""
    found: dict[Key, list[LogItem]] = {}
    for row in rows:
        if row.is_communication:
            size = 0 if isinstance(row.msg_size, tuple) else row.msg_size
            found.setdefault((row.comm_type, row.comm_group, size), []).append(row)
    return dict(sorted(found.items(), key=lambda entry: (entry[0][0].name, _name(entry[0][1]), entry[0][2])))


def _name(group: CommGroup | None) -> str:
    return "" if group is None else group.name


def _group(row: LogItem) -> str:
    return "None" if row.comm_group is None else f"CommGroup.{row.comm_group.name}"


def _key_cells(key: Key) -> str:
    comm_type, group, size = key
    name = "None" if group is None else f"CommGroup.{group.name}"
    return f"{f'CommType.{comm_type.name}':<15} {name:<12} {size_text(size):<12}"


def _head(title: str, header: str, width: int, unix_ns: int) -> Iterator[str]:
    yield f"{stamp(unix_ns)} \n\t{title}"
    yield from ("-" * width, header, "-" * width)


def _means(stage: str, rows: Sequence[LogItem], unix_ns: int) -> Iterator[str]:
    names = f"{'Comm_Type':<15} {'Comm_Group':<12} {'Message_Size':<12} {'Count':<12} "
    header = f"{names}{'Avg_Elapsed_Time ± Std':<24} {'Avg_BusBw ± Std':<24}"
    yield from _head(f"Detailed comm info for AICB {stage} stage", header, NARROW, unix_ns)
    for key, same in grouped(rows).items():
        ms = np.array([row.elapsed_time or 0 for row in same], dtype=np.float64)
        busbw = np.array([row.busbw or 0 for row in same], dtype=np.float64)
        yield (
            f"{_key_cells(key)} {len(same):<12.2f} {ms.mean():>8.2f}±{ms.std():<15.2f}"
            f" {busbw.mean():>8.2f}±{busbw.std():<13.2f}"
        )
    yield ""


def _distribution(stage: str, rows: Sequence[LogItem], epochs: Sequence[float], unix_ns: int) -> Iterator[str]:
    names = f"{'Comm_Type':<15} {'Comm_Group':<12} {'Message_Size':<12} {'Count':<12} "
    header = names + " ".join(f"{name:>10}" for name in ("Min", "P50", "P90", "P99", "Max"))
    yield from _head(f"Distribution of times (ms) for AICB {stage} stage", header, NARROW, unix_ns)
    for key, same in grouped(rows).items():
        yield f"{_key_cells(key)} {len(same):<12} {_quantiles([row.elapsed_time or 0 for row in same])}"
    if epochs:
        yield f"{'iteration':<15} {'':<12} {'':<12} {len(epochs):<12} {_quantiles(epochs)}"
    yield ""


def _quantiles(values: Sequence[float]) -> str:
    return " ".join(f"{value:>10.2f}" for value in np.percentile(values, (0, 50, 90, 99, 100)))


def _iterations(epochs: Sequence[float], unix_ns: int) -> Iterator[str]:
    header = f"{'Init time':<18} {'Max iteration time':<20} {'Min iteration time':<20} {'Avg iteration time':<20} "
    header += f"{'P90 iteration time':<20} {'Iteration time Std':<20}"
    yield from _head("Detailed info for AICB iteration time", header, WIDE, unix_ns)
    times = np.array(epochs[1:], dtype=np.float64)
    p90 = np.percentile(times, 90)
    values = (times.max(), times.min(), times.mean(), p90, times.std())
    yield f"{epochs[0]:<18.2f} " + " ".join(f"{value:<20.2f}" for value in values)
    yield ""
