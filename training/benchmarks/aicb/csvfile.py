"""Reads and writes workload CSV files in AICB's format, byte for byte, each with a record of its parameters beside it.

The CSV itself has no place for parameters and stays as AICB's readers expect it; the record is `<file>.args.json`.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from training.benchmarks.aicb.blocks import Block
from training.benchmarks.aicb.errors import WorkloadFileError
from training.benchmarks.aicb.files import encode_once, write_whole
from training.benchmarks.aicb.ops import HEADER, CommType, LogItem
from training.benchmarks.aicb.parameters import WorkloadArgs

RANKS_LINE = "[rank"
"""How the first line of the physical workloads that AICB ships begins: a list of ranks, before the header."""


def args_path(path: Path) -> Path:
    """The path of the parameters of the workload at `path`."""
    return path.with_name(f"{path.name}.args.json")


def save(rows: Block[LogItem], args: WorkloadArgs | None, path: Path) -> int:
    """Writes the rows to `path` (replacing it) and the parameters beside it. Returns the bytes of the CSV."""
    encode = encode_once(LogItem.to_csv)
    head = f"{HEADER}\n".encode()
    size = len(head) + rows.encoded_size(encode)

    def chunks() -> Iterator[bytes]:
        yield head
        yield from rows.chunks(encode)

    write_whole(path, size, chunks())
    if args is not None and path.is_file():
        record = {"workload_bytes": size, "args": args.to_dict()}
        text = (json.dumps(record, indent=1) + "\n").encode()
        write_whole(args_path(path), len(text), iter([text]))
    return size


def load(path: Path) -> tuple[Block[LogItem], WorkloadArgs | None]:
    """Reads a workload CSV with its parameters (None without a record); equal neighbouring iterations are stored once.

    Raises:
        WorkloadFileError: the file is no workload of this form.
    """
    try:
        with path.open(encoding="utf-8") as lines:
            rows = _read_rows(path, lines)
        return rows, _read_args(path)
    except OSError as error:
        raise WorkloadFileError(path, None, error.strerror or str(error)) from None
    except UnicodeDecodeError:
        raise WorkloadFileError(path, None, "is not a text file") from None


def _read_rows(path: Path, lines: Iterable[str]) -> Block[LogItem]:
    numbered = enumerate(lines, start=1)
    first = next(numbered, (1, ""))
    if first[1].startswith(RANKS_LINE):
        first = next(numbered, (2, ""))
    if first[1].rstrip("\r\n") != HEADER:
        raise WorkloadFileError(path, first[0], f"is not the header of a workload ({HEADER})")
    known: dict[str, LogItem] = {}
    epochs: list[tuple[tuple[LogItem, ...], int]] = []
    current: list[LogItem] = []
    for number, line in numbered:
        item = known.get(line)
        if item is None:
            try:
                item = known[line] = LogItem.from_csv(line.rstrip("\r\n"))
            except ValueError as error:
                raise WorkloadFileError(path, number, str(error)) from None
        current.append(item)
        if item.comm_type is CommType.epoch_end:
            _append(epochs, tuple(current))
            current = []
    return Block([*(Block(rows, repeat) for rows, repeat in epochs), *current])


def _append(epochs: list[tuple[tuple[LogItem, ...], int]], rows: tuple[LogItem, ...]) -> None:
    if epochs and epochs[-1][0] == rows:
        epochs[-1] = rows, epochs[-1][1] + 1
    else:
        epochs.append((rows, 1))


def _read_args(path: Path) -> WorkloadArgs | None:
    record_path = args_path(path)
    if not record_path.exists():
        return None
    try:
        record = json.loads(record_path.read_text(encoding="utf-8"))
        args = WorkloadArgs.from_dict(record["args"])
        size = record["workload_bytes"]
    except (ValueError, KeyError, TypeError) as error:
        raise WorkloadFileError(record_path, None, f"is no record of a workload's parameters: {error}") from None
    if size != path.stat().st_size:
        raise WorkloadFileError(
            record_path,
            None,
            f"belongs to a workload of {size} bytes, but {path.name} has {path.stat().st_size}; remove the stale one",
        )
    return args
