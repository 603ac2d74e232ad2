"""Every input that decided a run and its rows: the JSON beside the CSV, and --explain."""

import json
from collections.abc import Iterator, Mapping, Sequence

from common.summary import JsonValue
from simulation.analytical.evaluation import NUMBERED, Evaluation
from simulation.analytical.machine import Question
from simulation.analytical.times import BUCKETS, Model, Overview
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
