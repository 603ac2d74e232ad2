"""Names the formats that a run can be written in; each is one function of a run, its cases and a table."""

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from common.errors import SimulationError
from protocol.outcome import Preformatted
from protocol.safe_json import MAX_INTEGER, MIN_INTEGER
from run_benchmarks.errors import ClusterDynoError
from run_benchmarks.export.junit import junit
from run_benchmarks.export.markdown import markdown
from run_benchmarks.export.meanings import MEANINGS
from run_benchmarks.export.mlperf import mlperf
from run_benchmarks.export.openmetrics import openmetrics
from run_benchmarks.results.loading import LoadedRun
from run_benchmarks.results.outcomes import console_blocks
from run_benchmarks.results.tables import Row, rows


class ExportError(ClusterDynoError):
    """A run that cannot be written in a format; the message says why and what can be done."""


@dataclass(frozen=True, kw_only=True)
class Format:
    """A format: `of_table` writes the rows of a table, `of_run` a run; one of them is there. `is_text`: UTF-8."""

    of_table: Callable[[Sequence[Row]], bytes] | None = None
    of_run: Callable[[LoadedRun], str] | None = None
    is_text: bool = True


def write(run: LoadedRun, name: str, table: str) -> bytes:
    """The run in the format of that name.

    Raises:
        ExportError: the run has nothing that the format can hold.
        SimulationError: a package is missing.
    """
    found = FORMATS[name]
    if found.of_table is not None:
        return found.of_table(rows(run, table))
    assert found.of_run is not None
    text = found.of_run(run)
    if not text:
        raise ExportError(f"{run.record.run_id}: no case of it can be written as {name}: {MEANINGS[name]}")
    return text.encode("utf-8", "replace")


def _columns(table: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(name for row in table for name in row))


def _csv(table: Sequence[Row]) -> bytes:
    """RFC 4180; None is empty. A text that a spreadsheet would run as a formula begins with an apostrophe."""
    out, columns = io.StringIO(), _columns(table)
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(map(_cell, columns))
    writer.writerows([_cell(row.get(name)) for name in columns] for row in table)
    return out.getvalue().encode()


def _cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def _json_lines(table: Sequence[Row]) -> bytes:
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in table).encode()


def _parquet(table: Sequence[Row]) -> bytes:
    """Columns of one type each: of several, or of integers beyond 64 bits, it is text."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise SimulationError("parquet needs pyarrow: pip install -r requirements/analysis.txt") from error
    columns = {name: _of_one_type([row.get(name) for row in table]) for name in _columns(table)}
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table(columns), sink)
    return bytes(sink.getvalue())


def _of_one_type(values: list[Any]) -> list[Any]:
    kinds = {type(value) for value in values if value is not None}
    is_wide = any(isinstance(value, int) and not MIN_INTEGER <= value <= MAX_INTEGER for value in values)
    if not is_wide and (len(kinds) < 2 or kinds <= {int, float}) and float not in kinds:
        return values
    kind = float if not is_wide and kinds <= {int, float} else str
    return [None if value is None else kind(value) for value in values]


def _nccl_tests(run: LoadedRun) -> str:
    """The tables that benchmarks print in the form of their own tool, one after the other."""
    texts = [
        block.text
        for case in run.record.cases
        for record in run.passed(case)
        for block in console_blocks(case, record)
        if isinstance(block, Preformatted)
    ]
    return "".join(f"{text}\n" for text in texts)


FORMATS: dict[str, Format] = {
    "csv": Format(of_table=_csv),
    "jsonl": Format(of_table=_json_lines),
    "parquet": Format(of_table=_parquet, is_text=False),
    "junit": Format(of_run=junit),
    "markdown": Format(of_run=markdown),
    "openmetrics": Format(of_run=openmetrics),
    "mlperf": Format(of_run=mlperf),
    "nccl-tests": Format(of_run=_nccl_tests),
}
