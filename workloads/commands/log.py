"""Prints what was measured of an executed workload: the verb `log`."""

import argparse
from pathlib import Path

from common.summary import JsonValue, Summary
from workloads.analysis import aicb_output as output
from workloads.job.errors import AicbError
from workloads.oplog.file import LogFileError, OpLog, read_folder
from workloads.oplog.log import Log


def run(arguments: argparse.Namespace) -> Summary:
    """Print a log's tables.

    Raises:
        AicbError: the log cannot be read.
    """
    path: Path = arguments.file
    if not path.is_dir() and path.suffix != ".npz":
        return _of_csv(path, arguments)
    ops = of_rank(path, arguments.rank)
    lines = list(output.console(ops, units=arguments.units, each=arguments.print_ops))
    return _summary(path, Log.of_ops(ops, arguments.units), lines, arguments.csv)


def of_rank(path: Path, rank: int) -> OpLog:
    """One rank's op log of a folder, or the op log that `path` is.

    Raises:
        LogFileError: it cannot be read, or the folder has no such rank.
    """
    logs = read_folder(path)
    found = logs if not path.is_dir() else [log for log in logs if log.facts.rank == rank]
    if not found:
        raise LogFileError(
            path, f"has no log of rank {rank}; there is {', '.join(str(log.facts.rank) for log in logs)}"
        )
    return found[0]


def _of_csv(path: Path, arguments: argparse.Namespace) -> Summary:
    if arguments.units != "GB":
        raise AicbError(f"{path}: a log CSV keeps the bandwidths that it has; --units is for op logs")
    log = Log.load(path)
    written_ns = path.stat().st_mtime_ns
    lines: list[str] = []
    for epoch, rows in enumerate(log.comm_log_each_epoch):
        lines += [output.op_line(row, written_ns) for row in rows if arguments.print_ops]
        if epoch < len(log.epoch_times):
            lines.append(output.iteration_line(epoch, log.epoch_times[epoch], written_ns))
    return _summary(path, log, [*lines, *output.tables(log, written_ns)], arguments.csv)


def _summary(path: Path, log: Log, lines: list[str], csv: Path | None) -> Summary:
    """The tables, after the log CSV is written, if one is asked for."""
    data: dict[str, JsonValue] = {
        "file": str(path), "operations": len(log.comm_logs), "iterations": len(log.epoch_times), "lines": lines
    }  # fmt: skip
    if csv is not None:
        size = log.save(csv)
        lines.append(f"wrote {csv}: {len(log.comm_logs)} operations, {size} bytes")
        data |= {"csv": str(csv), "bytes": size}
    return Summary("\n".join(lines), data)
