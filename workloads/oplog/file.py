"""Reads and writes op logs: one numpy .npz a rank with its workload. What is read is bounded: it may be hostile."""

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from common.whole_files import write_whole
from workloads.formats import fullcsv
from workloads.formats.workload import Workload
from workloads.job.errors import AicbError
from workloads.oplog.facts import MOST_RECORDS, LogFacts
from workloads.rows.ops import LogItem

Numbers: TypeAlias = NDArray[np.int64]
FORMAT = "clusterdyno-oplog-1"
MOST_TEXT = 256 << 20
"""Bytes of the workload's text in one file."""
MOST_FACTS = 16 << 20
LATEST_NS = 1 << 62
COLUMNS = ("op", "iteration", "issue_ns", "done_ns", "exposed_ns")
QUEUED = "queued_ns"
"""The column that a file has only where a late rank waited for a CPU."""


class LogFileError(AicbError):
    """An op log cannot be read or does not fit the others; the message names the file."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(f"{path}: {what}")


@dataclass(frozen=True, slots=True)
class OpLog:
    """One rank's operations in the order of issue: columns of shape (records,), times in ns of the rank's own clock.

    queued_ns: of the time before a late operation, how long the program waited for a CPU; None stands for zeros.
    """

    facts: LogFacts
    workload: Workload
    op: Numbers
    iteration: Numbers
    issue_ns: Numbers
    done_ns: Numbers
    exposed_ns: Numbers
    queued_ns: Numbers | None = None

    def __len__(self) -> int:
        return len(self.op)

    @property
    def duration_ns(self) -> Numbers:
        """Time from issue to completion in ns, shape (records,)."""
        return self.done_ns - self.issue_ns

    def on_rank_0(self, times: Numbers) -> Numbers:
        """Times in ns of this rank's clock (any shape) as rank 0's clock would have shown them."""
        return times + self.facts.clock_offset_ns

    def rows(self) -> list[LogItem]:
        """The rows of the workload up to the last one that was executed: `rows()[op]` is a record's row."""
        return list(islice(self.workload, int(self.op.max()) + 1)) if len(self) else []


def file_name(rank: int) -> str:
    """The name of a rank's file in the folder of a run."""
    return f"rank{rank}.oplog.npz"


def workload_text(workload: Workload) -> bytes:
    """The workload in its second form, as a log stores it."""
    return "".join(f"{line}\n" for line in (fullcsv.FULL_HEADER, *fullcsv.lines(workload.rows))).encode()


def workload_digest(workload: Workload) -> str:
    """The sha256 of `workload_text` in hexadecimal: equal for equal rows, whatever the file they came from."""
    return hashlib.sha256(workload_text(workload)).hexdigest()


def write(path: Path, log: OpLog) -> int:
    """Write a log to `path`. Returns the file's bytes: about 10 for a record.

    Raises:
        OSError: the file cannot be written.
    """
    text = workload_text(log.workload)
    facts = {"format": FORMAT, **asdict(log.facts)}
    facts["workload_sha256"] = log.facts.workload_sha256 or hashlib.sha256(text).hexdigest()
    stored = {
        "op": np.diff(log.op, prepend=0).astype(np.int32),
        "iteration": np.diff(log.iteration, prepend=0).astype(np.int32),
        "issue_ns": np.diff(log.issue_ns, prepend=0),
        "done_ns": log.duration_ns,
        "exposed_ns": log.exposed_ns - log.duration_ns,
        "facts": np.frombuffer(json.dumps(facts).encode(), np.uint8),
        "workload": np.frombuffer(text, np.uint8),
    }
    if log.queued_ns is not None and log.queued_ns.any():
        stored[QUEUED] = log.queued_ns
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **stored)
    data = buffer.getvalue()
    write_whole(path, [data])
    return len(data)


def problems(log: OpLog) -> list[str]:
    """Mistakes in the facts and records of a log, in words; empty where nothing is."""
    found = log.facts.problems()
    if len(log):
        rows = len(log.workload)
        if rows > MOST_RECORDS:
            found.append(f"the workload has {rows} rows; allowed: {MOST_RECORDS}")
        for name, values, most in (
            ("op", log.op, rows - 1),
            ("iteration", log.iteration, MOST_RECORDS),
            ("issue_ns", log.issue_ns, LATEST_NS),
            ("done_ns", log.done_ns, LATEST_NS),
            ("exposed_ns", log.exposed_ns, LATEST_NS),
            (QUEUED, np.zeros(1, np.int64) if log.queued_ns is None else log.queued_ns, LATEST_NS),
        ):
            if int(values.min()) < 0 or int(values.max()) > most:
                found.append(f"{name} goes from {values.min()} to {values.max()}; allowed: 0 to {most}")
        if int(log.duration_ns.min()) < 0:
            found.append("done_ns is before issue_ns")
    return found


def read(path: Path | str) -> OpLog:
    """One rank's log.

    Raises:
        LogFileError: the file cannot be read, is no op log, or is beyond the bounds of this module.
    """
    path = Path(path)
    try:
        with zipfile.ZipFile(path) as archive:
            return _log(archive)
    except OSError as error:
        raise LogFileError(path, error.strerror or str(error)) from None
    except zipfile.BadZipFile as error:
        said = f"is no op log (rank0.oplog.npz and so on, written by a run): {error}; `log` and `visualize` read CSVs"
        raise LogFileError(path, said) from None
    except (ValueError, KeyError, EOFError, RuntimeError, NotImplementedError, zlib.error) as error:
        raise LogFileError(path, f"is no op log: {error}") from None


def _log(archive: zipfile.ZipFile) -> OpLog:
    facts = _facts(_bytes(archive, "facts", MOST_FACTS))
    op, iteration, issue, duration, waiting = (_column(archive, name) for name in COLUMNS)
    queued = _column(archive, QUEUED) if f"{QUEUED}.npy" in archive.namelist() else np.zeros(len(op), np.int64)
    if len({len(column) for column in (op, iteration, issue, duration, waiting, queued)}) > 1:
        raise ValueError(f"the columns {', '.join((*COLUMNS, QUEUED))} have different lengths")
    reader = fullcsv.Reader()
    lines = _bytes(archive, "workload", MOST_TEXT).decode().splitlines()
    if lines[:1] != [fullcsv.FULL_HEADER]:
        raise ValueError(f"its workload has not the header {fullcsv.FULL_HEADER}")
    for line in lines[1:]:
        reader.add(line)
    issued = _sums(issue)
    log = OpLog(
        facts, Workload(reader.done()), _sums(op), _sums(iteration), issued, issued + duration, duration + waiting,
        queued,
    )  # fmt: skip
    if found := problems(log):
        raise ValueError("; ".join(found))
    return log


def _sums(steps: Numbers) -> Numbers:
    # In floats first: a sum beyond 64 bits wraps around in integers.
    if len(steps) and float(np.abs(np.cumsum(steps, dtype=np.float64)).max()) > LATEST_NS:
        raise ValueError(f"a column has numbers beyond {LATEST_NS}")
    return np.cumsum(steps, dtype=np.int64)


def _column(archive: zipfile.ZipFile, name: str) -> Numbers:
    kinds = (np.dtype(np.int32),) if name in ("op", "iteration") else (np.dtype(np.int64),)
    values = _array(archive, name, kinds, MOST_RECORDS).astype(np.int64)
    if len(values) and max(-int(values.min()), int(values.max())) > LATEST_NS:
        raise ValueError(f"a column has numbers beyond {LATEST_NS}")
    return values


def _bytes(archive: zipfile.ZipFile, name: str, most_bytes: int) -> bytes:
    return _array(archive, name, (np.dtype(np.uint8),), most_bytes).tobytes()


def _array(archive: zipfile.ZipFile, name: str, kinds: Sequence[np.dtype[Any]], most: int) -> NDArray[Any]:
    """An array of one axis of at most `most` elements; its size is checked before anything of it is unpacked."""
    with archive.open(f"{name}.npy") as member:
        if np.lib.format.read_magic(member) != (1, 0):
            raise ValueError(f"{name} is no array of numpy's format 1.0")
        shape, _, kind = np.lib.format.read_array_header_1_0(member)
        if len(shape) != 1 or kind not in kinds or not 0 <= shape[0] <= most:
            raise ValueError(f"{name} is {kind} of shape {shape}; allowed: {kinds[0]}, one axis of {most} at most")
        data = member.read(shape[0] * kind.itemsize)
        if len(data) != shape[0] * kind.itemsize:
            raise ValueError(f"{name} ends after {len(data)} bytes")
        return np.frombuffer(data, kind)


def _facts(text: bytes) -> LogFacts:
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError("its facts are nested too deep") from None
    if not isinstance(found, dict) or found.pop("format", None) != FORMAT:
        raise ValueError(f"its facts do not say format {FORMAT}")
    names = {each.name for each in fields(LogFacts)}
    if set(found) != names:
        differing = ", ".join(sorted(set(found) ^ names))
        raise ValueError(f"its facts have not exactly the expected names: {differing[:200]}")
    return LogFacts(**found)


def read_folder(folder: Path | str) -> list[OpLog]:
    """The logs of all ranks of one run, by rank. `folder` may also be the file of one rank: then its log alone.

    Raises:
        LogFileError: there is none, one cannot be read, or they are not of one run; the message names the file.
    """
    folder = Path(folder)
    if not folder.is_dir():
        return [read(folder)]
    paths = sorted(folder.glob("rank*.oplog.npz"))
    if not paths:
        raise LogFileError(folder, "has no op logs (rank0.oplog.npz ...)")
    logs: dict[int, OpLog] = {}
    for path in paths:
        log = read(path)
        first = next(iter(logs.values()), log).facts
        for name in ("world_size", "mode", "backend", "frame", "scale"):
            if getattr(log.facts, name) != getattr(first, name):
                raise LogFileError(
                    path, f"has {name} {getattr(log.facts, name)}, and rank {first.rank} {getattr(first, name)}"
                )
        if log.facts.rank in logs:
            raise LogFileError(path, f"is a second log of rank {log.facts.rank}")
        logs[log.facts.rank] = log
    return [logs[rank] for rank in sorted(logs)]
