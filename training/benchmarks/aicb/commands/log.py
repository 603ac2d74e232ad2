"""Prints what was measured of an executed workload: the command `log`."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workloads.analysis import aicb_output as output
from workloads.job.errors import AicbError
from workloads.oplog.file import LogFileError, OpLog, read_folder
from workloads.oplog.log import Log
from workloads.oplog.measured import UNITS

DESCRIPTION = "Prints the operations, iterations and tables of an executed workload."
Parse = Callable[[argparse.ArgumentParser, list[str]], dict[str, Any]]


def main(parser: argparse.ArgumentParser, parse: Parse, words: list[str]) -> int:
    """Print a log's tables. parser: an empty one with the command's name; parse: how to read words with it.

    Raises:
        AicbError: the log cannot be read.
    """
    parser.add_argument("file", type=Path, metavar="LOG", help="a folder of op logs, one of them, or a log CSV")
    parser.add_argument("--rank", type=int, default=0, metavar="N", help="whose log of a folder (default: %(default)s)")
    parser.add_argument("--print_ops", action="store_true", help="also a line for each operation")
    parser.add_argument("--units", choices=UNITS, default="GB", help="GB is 1e9 bytes, GiB AICB's 2**30 (default: GB)")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="also write a log CSV with AICB's columns")
    given = parse(parser, words)
    path: Path = given["file"]
    if not path.is_dir() and path.suffix != ".npz":
        return _print_csv(path, given)
    ops = of_rank(path, given["rank"])
    for line in output.console(ops, units=given["units"], each=given["print_ops"]):
        print(line)
    if given["csv"] is not None:
        _save(Log.of_ops(ops, given["units"]), given["csv"])
    return 0


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


def _print_csv(path: Path, given: dict[str, Any]) -> int:
    if given["units"] != "GB":
        raise AicbError(f"{path}: a log CSV keeps the bandwidths that it has; --units is for op logs")
    log = Log.load(path)
    written_ns = path.stat().st_mtime_ns
    for epoch, rows in enumerate(log.comm_log_each_epoch):
        for row in rows if given["print_ops"] else ():
            print(output.op_line(row, written_ns))
        if epoch < len(log.epoch_times):
            print(output.iteration_line(epoch, log.epoch_times[epoch], written_ns))
    for line in output.tables(log, written_ns):
        print(line)
    if given["csv"] is not None:
        _save(log, given["csv"])
    return 0


def _save(log: Log, path: Path) -> None:
    size = log.save(path)
    print(f"wrote {path}: {len(log.comm_logs)} operations, {size} bytes")
