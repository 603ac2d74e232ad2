"""Writes what was computed: the CSV with its summary, and what a person reads on the terminal."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from common.summary import JsonValue, counted
from common.whole_files import NAME_BYTES
from simulation.analytical.evaluation import NUMBERED, Evaluation
from simulation.analytical.machine import Question
from simulation.analytical.original.arithmetic import quotient, whole
from simulation.analytical.times import BUCKETS, ROW_COLUMNS, SUMMARY_COLUMNS, Model, Overview, Totals
from simulation.common.dialect import Repair

FORMAT = "clusterdyno-analytical-1"


def inputs(question: Question) -> dict[str, JsonValue]:
    """Cluster, division and overlaps, by name."""
    cluster = dict(question.cluster._asdict()) | {"sources": dict(question.cluster.sources)}
    return {"cluster": cluster, "division": question.division._asdict(), "overlaps": question.overlaps._asdict()}


def summary_data(overview: Overview) -> dict[str, JsonValue]:
    """The summary by name, in us."""
    return {
        "exposed_us": {bucket: overview.exposed[bucket] for bucket in BUCKETS},
        "exposed_all_us": overview.exposed_all,
        "pipeline_us": overview.pipeline,
        "bubble_us": overview.bubble,
        "computation_us": overview.computation,
        "total_us": overview.total,
    }


def json_chunks(
    about: Mapping[str, JsonValue], repairs: Sequence[Repair], model: Model, evaluation: Evaluation
) -> Iterator[bytes]:
    """The JSON: what the run is about, then one line for each numbered kind of row."""
    head: dict[str, JsonValue] = {"format": FORMAT, **about, "repairs": dict(repairs)}
    text = json.dumps(head, indent=1, allow_nan=False)
    yield text.removesuffix("\n}").encode() + b',\n "kinds": ['
    separator = b"\n"
    for kind, rows in evaluation.kinds():
        said = {"kind": kind.number, "rows": rows, "first_row": kind.first_row, **model.explain(kind.rest)}
        yield separator + b"  " + json.dumps(said, allow_nan=False).encode()
        separator = b",\n"
    yield f'\n ],\n "kinds_explained_at_most": {NUMBERED}\n}}\n'.encode()


def explained_text(place: str, name: str, phases: Mapping[str, JsonValue]) -> str:
    """The inputs and choices that decided a row, for a person."""
    lines = [f"{place}: {name}"]
    for phase, said in phases.items():
        assert isinstance(said, Mapping)
        lines.append(f"{phase}:")
        for key, value in said.items():
            if isinstance(value, Sequence) and not isinstance(value, str):
                lines += [f"  {key}: " + ", ".join(_pairs(one)) for one in value if isinstance(one, Mapping)]
            else:
                lines.append(f"  {key}: {_shown(value)}")
    return "\n".join(lines)


def _pairs(said: Mapping[str, JsonValue]) -> list[str]:
    return [f"{key} {_shown(value)}" for key, value in said.items() if value != ""]


def _shown(value: JsonValue) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


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
