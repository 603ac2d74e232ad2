"""Reads and writes workload CSV files in their two forms, each with a record of its parameters beside it.

AICB's form is AICB's byte for byte, and so has no place for parameters; the record is `<file>.args.json`. The second
form, known by its header, is that of `fullcsv`: what real frameworks do, and repetitions.
"""

import json
import re
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TextIO

from common.errors import InputNote
from common.whole_files import encode_once, is_special, whole_set, write_whole
from workloads.formats import FULL, fullcsv
from workloads.formats.simai_text import begins_simai
from workloads.job import rules
from workloads.job.errors import RowMistakes, WorkloadFileError
from workloads.job.parameters import WorkloadArgs
from workloads.rows.blocks import Block
from workloads.rows.conversion import aicb_rows
from workloads.rows.ops import COLUMNS, HEADER, CommType, LogItem

RANKS_LINE = re.compile(r"\[ ?(pp_stage\d+: ?\[)?rank\d")
"""How the first line of some workloads that AICB ships begins: a list of ranks, before the header."""
GROUP_SIZE = COLUMNS.index("comm_group_size")
OLD_HEADER = ",".join((*COLUMNS[:GROUP_SIZE], *COLUMNS[GROUP_SIZE + 1 :]))
"""The header of AICB's workloads before the groups had a size."""

SIMAI_TEXT = (
    "is a SimAI text, and no CSV: it sums up what each layer sends, without the calls in their order; `show`,"
    " `visualize` and `.venv/bin/python -m simulation analytical` read it, in Python SimaiWorkload.load; `generate`"
    " with its parameters writes the CSV"
)


def args_path(path: Path) -> Path:
    """The path of the parameters of the workload at `path`."""
    return path.with_name(f"{path.name}.args.json")


def save(rows: Block[LogItem], args: WorkloadArgs | None, path: Path, form: str | None = None) -> int:
    """Writes the rows to `path` (replacing it) and the parameters beside it. Returns the bytes of the CSV.

    form: one of `FORMS`; None is AICB's for rows that have a place in it, else the second.

    Raises:
        ValueError: a row has no place in the form.
    """
    full = fullcsv.is_full(rows)
    with whole_set():
        if form == FULL or (form is None and full):
            data = "".join(f"{line}\n" for line in chain((fullcsv.FULL_HEADER,), fullcsv.lines(rows))).encode()
            size = len(data)
            write_whole(path, [data])
        else:
            size = _save_aicb(aicb_rows(rows) if full else rows, path)
        if args is not None and not is_special(path):
            record = {"workload_bytes": size, "args": args.to_dict()}
            text = (json.dumps(record, indent=1) + "\n").encode()
            write_whole(args_path(path), [text])
    return size


def _save_aicb(rows: Block[LogItem], path: Path) -> int:
    encode = encode_once(LogItem.to_csv)
    head = f"{HEADER}\n".encode()
    size = len(head) + rows.encoded_size(encode)

    def chunks() -> Iterator[bytes]:
        yield head
        yield from rows.chunks(encode)

    write_whole(path, chunks(), size=size)
    return size


def load(path: Path, stage: int | None = None) -> tuple[Block[LogItem], WorkloadArgs | None]:
    """Reads a workload CSV with its parameters (None without a record); equal neighbouring iterations are stored once.

    stage: which section of a file that has one for each pipeline stage; None is the first, and a note says so.

    Raises:
        WorkloadFileError: the file is no workload of this form, or has no such section.
    """
    count = sections(path)
    if stage is not None and not 0 <= stage < count:
        raise WorkloadFileError(path, None, f"has {count} pipeline stages, from 0 on; {stage} is none of them")
    if stage is None and count > 1:
        said = f"{path} has a section for each of {count} pipeline stages: this is the first"
        warnings.warn(InputNote(said), stacklevel=2)
    with _opened(path) as lines:
        return _read_rows(path, _section(enumerate(lines, start=1), stage or 0)), _read_args(path)


def sections(path: Path) -> int:
    """How many pipeline stages have a section of their own in a file: one that AICB ships has eight.

    Raises:
        WorkloadFileError: the file cannot be read.
    """
    with _opened(path) as lines:
        if not RANKS_LINE.match(next(lines, "")):
            return 1
        return 1 + sum(line.startswith("[") and RANKS_LINE.match(line) is not None for line in lines)


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    """The file's lines, without the mark with which some editors begin a file."""
    try:
        with path.open(encoding="utf-8-sig") as lines:
            yield lines
    except OSError as error:
        raise WorkloadFileError(path, None, error.strerror or str(error)) from None
    except UnicodeDecodeError:
        raise WorkloadFileError(path, None, "is not a text file") from None


def _section(numbered: Iterable[tuple[int, str]], stage: int) -> Iterator[tuple[int, str]]:
    """The lines of one section, with their numbers; it begins with its list of ranks, if there are any."""
    at = -1
    for number, line in numbered:
        if at < 0 or (line.startswith("[") and RANKS_LINE.match(line)):
            at += 1
        if at == stage:
            yield number, line


def _read_rows(path: Path, numbered: Iterator[tuple[int, str]]) -> Block[LogItem]:
    first = next(numbered, (1, ""))
    if RANKS_LINE.match(first[1]):
        first = next(numbered, (2, ""))
    if first[1].rstrip("\r\n") == fullcsv.FULL_HEADER:
        return _read_full(path, numbered)
    is_old = first[1].rstrip("\r\n") == OLD_HEADER
    if is_old:
        warnings.warn(InputNote(f"{path} has no column comm_group_size: it is None in every row"), stacklevel=2)
    elif begins_simai(first[1]):
        raise WorkloadFileError(path, None, SIMAI_TEXT)
    elif first[1].rstrip("\r\n") != HEADER:
        raise WorkloadFileError(path, first[0], f"is not the header of a workload ({HEADER})")
    known: dict[str, LogItem] = {}
    epochs: list[tuple[tuple[LogItem, ...], int]] = []
    current: list[LogItem] = []
    mistakes = RowMistakes(path)
    for number, line in numbered:
        item = known.get(line)
        if item is None:
            try:
                text = line.rstrip("\r\n")
                item = known[line] = LogItem.from_csv(_with_size(text) if is_old else text)
            except ValueError as error:
                mistakes.add(number, str(error))
                continue
        current.append(item)
        if item.comm_type is CommType.epoch_end:
            _append(epochs, tuple(current))
            current = []
    mistakes.check()
    return Block([*(Block(rows, repeat) for rows, repeat in epochs), *current])


def _with_size(line: str) -> str:
    """A row of an old workload with the column that it lacks."""
    cells = line.split(",")
    if len(cells) != len(COLUMNS) - 1:
        raise ValueError(f"{len(cells)} columns where {len(COLUMNS) - 1} are expected")
    return ",".join((*cells[:GROUP_SIZE], "None", *cells[GROUP_SIZE:]))


def _read_full(path: Path, numbered: "Iterable[tuple[int, str]]") -> Block[LogItem]:
    reader, last, mistakes = fullcsv.Reader(), 1, RowMistakes(path)
    for last, line in numbered:
        # Without a wrong row the blocks around it are others: of the rows after it each is read on its own.
        read = reader.check if mistakes else reader.add
        try:
            read(line.rstrip("\r\n"))
        except ValueError as error:
            mistakes.add(last, str(error))
    mistakes.check()
    try:
        return reader.done()
    except ValueError as error:
        raise WorkloadFileError(path, last, str(error)) from None


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
        broken = [problem.text for problem in rules.check(args) if not problem.breakable]
        if broken:
            raise ValueError("; ".join(broken))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise WorkloadFileError(record_path, None, f"is no record of a workload's parameters: {error}") from None
    if size != path.stat().st_size:
        raise WorkloadFileError(
            record_path,
            None,
            f"belongs to a workload of {size} bytes, but {path.name} has {path.stat().st_size}; remove the stale one",
        )
    return args
