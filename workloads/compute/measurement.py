"""One measured time and the text tables of them: CSV with the columns of the database."""

import csv
import math
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from vendors.datasheets import Datasheet, datasheet, datasheets
from workloads.compute.operators import DTYPE_BYTES, Operator, operator, parse_shape, shape_text
from workloads.job.errors import AicbError

LONGEST_TEXT = 400
MOST_PROBLEMS = 10
_SHEETS = {sheet.name.casefold(): sheet for sheet in datasheets()}


class ComputeDataError(AicbError):
    """A file of compute times cannot be used; the message names file, row and mistake."""


def sheet_of(device: str) -> Datasheet | None:
    """The datasheet of a device, by the name that its driver gives or by the datasheet's own.

    The beginning of a name will do: the module with the most memory is meant, SXM where there is one ("H100").
    """
    known = datasheet(device) or _SHEETS.get(device.casefold())
    if known is not None:
        return known
    begins = [sheet for name, sheet in _SHEETS.items() if name.startswith(f"{device.casefold()} ")]
    return max(begins, key=lambda sheet: (" SXM" in sheet.name, sheet.memory_GiB), default=None)


def device_name(device: str) -> str:
    """The one name of a device: its datasheet's, if it has one."""
    sheet = sheet_of(device)
    return device if sheet is None else sheet.name


@dataclass(frozen=True)
class ComputeTime:
    """A row of the database. ns: average time of one call; spread: half the range of the samples over their average.

    count: samples. versions: of the software that ran; source: who measured, or the document.
    """

    device: str
    op: str
    shape: str
    dtype: str
    kernel: str
    versions: str
    ns: float
    spread: float
    count: int
    source: str

    @classmethod
    def of(cls, values: Iterable[Any]) -> "ComputeTime":
        """A checked row from the values of a file, with its device and shape in their one spelling.

        Raises:
            ValueError: a value is wrong; the message names the column.
        """
        cells = dict(zip(COLUMNS, values, strict=True))
        for name in TEXTS:
            value = cells[name]
            if not isinstance(value, str) or not value.isprintable() or not 1 <= len(value) <= LONGEST_TEXT:
                raise ValueError(f"{name} is {str(value)[:40]!r}; expected 1 to {LONGEST_TEXT} printable characters")
        for name, low in (("ns", 1e-3), ("spread", 0.0), ("count", 1)):
            cells[name] = _number(name, cells[name], low, whole=name == "count")
        if cells["dtype"] not in DTYPE_BYTES:
            raise ValueError(f"dtype {cells['dtype']!r} is none of {', '.join(DTYPE_BYTES)}")
        cells["shape"] = shape_text(cells["op"], parse_shape(cells["op"], cells["shape"]))
        cells["device"] = device_name(cells["device"])
        return cls(**cells)

    @cached_property
    def axes(self) -> dict[str, int]:
        """The shape by axis."""
        return parse_shape(self.op, self.shape)

    @property
    def operator(self) -> Operator:
        return operator(self.op)

    def values(self) -> tuple[Any, ...]:
        """The cells of this row, in the order of COLUMNS."""
        return astuple(self)


COLUMNS = tuple(field.name for field in fields(ComputeTime))
TEXTS = ("device", "op", "shape", "dtype", "kernel", "versions", "source")


def _number(name: str, value: Any, low: float, *, whole: bool) -> float | int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is {str(value)[:40]!r}, not a number")
    if not (math.isfinite(value) and low <= value <= 1e18) or (whole and value != int(value)):
        raise ValueError(f"{name} is {value}; expected {'a whole' if whole else 'a finite'} number of {low:g} or more")
    return int(value) if whole else float(value)


def checked(path: Path, rows: Iterable[Iterable[Any]], first: int = 1) -> list[ComputeTime]:
    """The rows of a file as measurements.

    Raises:
        ComputeDataError: rows are wrong; the message lists the first of them with their numbers from `first` on.
    """
    found, problems = [], []
    for number, row in enumerate(rows, start=first):
        try:
            found.append(ComputeTime.of(row))
        except ValueError as error:
            problems.append(f"{path}, row {number}: {error}")
            if len(problems) == MOST_PROBLEMS:
                problems.append(f"{path}: only the first {MOST_PROBLEMS} mistakes are listed")
                break
    if problems:
        raise ComputeDataError("\n".join(problems))
    return found


def read_table(path: Path) -> list[ComputeTime]:
    """The measurements of a CSV table.

    Raises:
        ComputeDataError: the file is no such table.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.reader(file)
            header = next(rows, [])
            if header != list(COLUMNS):
                raise ComputeDataError(f"{path}: the first line must be {','.join(COLUMNS)}")
            return checked(path, _converted(rows), first=2)
    except OSError as error:
        raise ComputeDataError(f"{path}: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ComputeDataError(f"{path}: is not a CSV table: {error}") from None


def _converted(rows: Iterator[list[str]]) -> Iterator[list[Any]]:
    for row in rows:
        cells: list[Any] = [*row, *[""] * (len(COLUMNS) - len(row))][: len(COLUMNS)]
        for at, name in enumerate(COLUMNS):
            if name not in TEXTS:
                try:
                    cells[at] = float(cells[at])
                except ValueError:
                    cells[at] = str(cells[at])
        yield cells
