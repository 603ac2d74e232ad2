"""Writes what was computed: the CSV with its summary, and what a person reads on the terminal."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from common.summary import counted
from common.whole_files import NAME_BYTES
from simulation.analytical.evaluation import Evaluation
from simulation.analytical.original.arithmetic import quotient, whole
from simulation.analytical.times import ROW_COLUMNS, SUMMARY_COLUMNS, Model, Overview, Totals

KIND_COLUMN = "kind"
_EPSILON = 2.0**-52


def summary_cells(overview: Overview, original: bool = False) -> list[str]:
    """Each value in us with its share of the total, and the total. original: shares of nothing are -nan, else 0."""
    shares = [quotient(value, overview.total) * 100 for value in overview.values()]
    if not original and not overview.total:
        shares = [0.0 for _ in shares]
    cells = [f"{whole(value)} ({_share(share)}%)" for value, share in zip(overview.values(), shares, strict=True)]
    return [*cells, whole(overview.total)]


def settled(model: Model, evaluation: Evaluation, totals: Totals) -> Overview:
    """The overview; its sums are made row by row where adding in another order could change a printed digit."""
    overview = model.overview(totals)
    margin = evaluation.rows * _EPSILON
    if _digits(overview, 1 - margin) == _digits(overview, 1 + margin):
        return overview
    return model.overview(evaluation.totals_in_order())


def csv_chunks(name: str, overview: Overview, evaluation: Evaluation, remarks: list[str] | None) -> Iterator[bytes]:
    """The whole CSV. remarks: lines before it, after `# `; with them (None in the original's form) rows have a kind."""
    columns = ROW_COLUMNS if remarks is None else (*ROW_COLUMNS, KIND_COLUMN)
    head = [f"# {remark}" for remark in remarks or ()]
    head += [
        ", ".join(SUMMARY_COLUMNS),
        ", ".join([name, *summary_cells(overview, remarks is None)]),
        ",".join(columns),
    ]
    yield "".join(f"{line}\n" for line in head).encode(errors=NAME_BYTES)
    yield from evaluation.lines()


def report_text(overview: Overview, rows: int, written: Sequence[Path]) -> str:
    """The summary for a person: the files, the total, and its parts in percent."""
    total = overview.total or 1.0
    parts = [("computation", overview.computation), *((f"exposed {name}", us) for name, us in overview.exposed.items())]
    parts += [("between stages", overview.pipeline), ("bubble", overview.bubble)]
    shares = ", ".join(f"{name} {100 * us / total:.2f} %" for name, us in parts if us)
    files = ", ".join(map(str, written))
    return f"{files}: {counted(rows, 'row')}, {overview.total:.0f} us an iteration\n{shares or 'nothing to do'}"


def _digits(overview: Overview, scale: float) -> list[str]:
    values = [*overview.values(), overview.total]
    shares = [quotient(value, overview.total) * 100 for value in overview.values()]
    return [whole(value * scale) for value in values] + [_share(share * scale**2) for share in shares]


def _share(share: float) -> str:
    return "-nan" if share != share else f"{share:.2f}"
