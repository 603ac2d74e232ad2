"""Reads a SimAI workload as a stream of lines: as often as needed, in blocks, without keeping it."""

import stat
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

from common.errors import InputProblems, input_problem, stated
from workloads.formats.simai_text import (
    DP,
    FIELDS,
    FIRST_ROW_LINE,
    LARGEST,
    NONE,
    TP,
    Phase,
    Row,
    WorkloadHeader,
    parse_header,
    parse_row,
    split_row,
    wrong_name,
)

BLOCK_BYTES = 1 << 20
_NOTHING = Row(*(Phase(0, NONE, 0, group) for group in (TP, TP, DP)))
SHORTEST_ROW = 2 * FIELDS - 1  # bytes; a shorter line may be blank


class NamedRow(NamedTuple):
    """A row that was made from another kind of file: the layer's name in UTF-8, without blanks, and its phases."""

    name: bytes
    row: Row


Cells: TypeAlias = bytes | Row
"""A row without its name: the text of its cells, or its phases."""
SourceRow: TypeAlias = bytes | NamedRow
"""A row as its source has it: a line of text, or what was made from another kind of file."""


def name_and_cells(row: SourceRow) -> tuple[bytes, Cells]:
    """The layer's name and the rest; a line of a name alone has no cells."""
    if isinstance(row, NamedRow):
        return row
    name, cells = split_row(row)
    return name, cells


def phases_of(cells: Cells) -> Row:
    """The phases of a row.

    Raises:
        ValueError: a cell of a text is wrong; the message says which and what is allowed.
    """
    return parse_row(cells) if isinstance(cells, bytes) else cells


def once(name: str, at: int, phase: Phase) -> NamedRow:
    """A row with one phase, the number `at` of the three; without a group it is the text's: DP of the last, else TP.

    Raises:
        ValueError: its time or its bytes are no number of 63 bits.
    """
    for what, number in (("time in ns", phase.compute_ns), ("bytes", phase.size)):
        if not 0 <= number < LARGEST:
            raise ValueError(f"{name}: the {what} are {number}, allowed is 0 to 2^63 - 1")
    phases = list(_NOTHING)
    phases[at] = phase._replace(group=phase.group or phases[at].group)
    return NamedRow("_".join(name.split()).encode(errors="surrogateescape"), Row(*phases))


class RowSource(Protocol):
    """Where rows come from."""

    header: WorkloadHeader

    def blocks(self) -> Iterator[Sequence[SourceRow]]:
        """The rows in order, in blocks of about BLOCK_BYTES; each call begins anew."""

    def place(self, row: int) -> str:
        """Where row number `row` (from 1) stands, for a message."""

    def check_rows(self, rows: int) -> str:
        """Compare the number of rows with what the source says; returns a warning, or nothing."""


class TextWorkload(RowSource):
    """A workload file in SimAI's form; `lenient` as `simai_text` has it."""

    def __init__(self, path: Path, *, lenient: bool = False) -> None:
        self.path = path
        self.lenient = lenient
        try:
            if not stat.S_ISREG(path.stat().st_mode):
                raise input_problem("-w", path, "is no regular file: it is read twice")
            with path.open("rb") as file:
                head = [file.readline(1 << 16).decode("utf-8") for _ in range(FIRST_ROW_LINE - 1)]
        except OSError as error:
            raise input_problem("-w", path, f"cannot be read: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise input_problem("-w", path, "is not a text file") from None
        try:
            self.header = parse_header(*head, lenient=lenient)
        except ValueError as error:
            raise InputProblems(stated(f"{path}, {line}" for line in str(error).split("\n"))) from None

    def blocks(self) -> Iterator[list[bytes]]:
        """The lines of the rows in order, in blocks of about BLOCK_BYTES; each call begins anew.

        Raises:
            InputProblems: a line is blank, or a name is no printable text, and the reading is strict.
        """
        left, number = self.header.rows, 0
        with self.path.open("rb") as file:
            for _ in islice(file, FIRST_ROW_LINE - 1):
                pass
            while lines := file.readlines(BLOCK_BYTES):
                if self.lenient:
                    if min(map(len, lines)) < SHORTEST_ROW:
                        lines = [line for line in lines if not line.isspace()]
                    lines = lines[:left]
                    left -= len(lines)
                else:
                    self._check(lines, number)
                number += len(lines)
                if lines:
                    yield lines

    def _check(self, lines: list[bytes], before: int) -> None:
        if min(map(len, lines)) < SHORTEST_ROW:
            blank = next((at for at, line in enumerate(lines) if not line.strip()), None)
            if blank is not None:
                raise input_problem(self.place(before + blank + 1), None, f"is blank where {FIELDS} fields belong")
        wrong = wrong_name(lines)
        if wrong:
            raise input_problem(self.place(before + wrong[0] + 1), None, f"name is {wrong[1]}, not printable text")

    def place(self, row: int) -> str:
        return f"{self.path}, line {row + FIRST_ROW_LINE - 1}"

    def check_rows(self, rows: int) -> str:
        """Compare with the header's number, which may be wrong in an older file (one that AICB ships) alone.

        Raises:
            InputProblems: the number differs.
        """
        if rows and (rows == self.header.rows or (rows > self.header.rows and self.lenient)):
            return ""
        what = f"says {self.header.rows} rows, but {rows or 'none'} follow"
        if not rows and not self.header.rows:
            what = "says 0 rows: there is nothing to compute"
        if not self.header.old or not rows:
            raise input_problem(f"{self.path}, line 2", None, what)
        return f"{self.path}, line 2: {what}, which are used"


class MadeRows(RowSource):
    """Rows that were made from another kind of file."""

    def __init__(self, path: Path, header: WorkloadHeader, rows: list[NamedRow]) -> None:
        self.path, self.header, self._rows = path, header, rows

    def blocks(self) -> Iterator[list[NamedRow]]:
        step = BLOCK_BYTES // 64
        for start in range(0, len(self._rows), step):
            yield self._rows[start : start + step]

    def place(self, row: int) -> str:
        return f"{self.path}, row {row}"

    def check_rows(self, rows: int) -> str:
        """Refuse a source without rows; it says no number to compare with.

        Raises:
            InputProblems: there are none.
        """
        if not rows:
            raise input_problem("-w", self.path, "has no rows")
        return ""
