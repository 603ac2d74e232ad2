"""A run's network measurements held against a baseline, and kept as one: `run.py --save-baseline`, BASELINE.

What is compared and when it counts as slower is the benchmark's own (training.benchmarks.network.baseline).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict

from training.benchmarks.network import baseline


class BaselineRow(BaseModel):
    """One measurement against the baseline: medians of p50 in microseconds; `ratio`: measured speed over baseline's."""

    model_config = ConfigDict(extra="forbid")

    collective: str
    size_bytes: int
    group: str
    p50_us: float
    baseline_us: float
    ratio: float
    below: bool


class BaselineRecord(BaseModel):
    """A case against the baseline: sentences on what fell below it by more than `percent`, and every measurement."""

    model_config = ConfigDict(extra="forbid")

    file: str
    percent: float
    sentences: list[str]
    rows: list[BaselineRow]

    @property
    def is_below(self) -> bool:
        """Whether anything fell below the tolerance."""
        return any(row.below for row in self.rows)


class MeasuredNode(Protocol):
    """What is needed of a node."""

    @property
    def node_rank(self) -> int: ...

    @property
    def host(self) -> str: ...


class MeasuredRound(Protocol):
    """What is needed of a round."""

    @property
    def steps(self) -> list[dict[str, Any]]: ...

    @property
    def nodes(self) -> Sequence[MeasuredNode]: ...


def measured(case: str, rounds: Sequence[MeasuredRound]) -> dict[str, baseline.Entry]:
    """The measurements of a network case's rounds by what was measured; hosts bear the cluster config's names."""
    return baseline.entries((case, step) for each in rounds for step in _renamed(each))


def _renamed(found: MeasuredRound) -> Iterator[dict[str, Any]]:
    names = {node.node_rank: node.host for node in found.nodes}
    for step in found.steps:
        groups = step.get("groups")
        if not isinstance(groups, list):
            yield _with_names(step, names)
            continue
        yield {**step, "groups": [_with_names(group, names) for group in groups if isinstance(group, dict)]}


def _with_names(group: dict[str, Any], names: Mapping[int, str]) -> dict[str, Any]:
    node_ranks = group.get("node_ranks")
    known = isinstance(node_ranks, list) and all(isinstance(rank, int) and rank in names for rank in node_ranks)
    if not known or not node_ranks:
        return group
    return {**group, "hosts": [names[rank] for rank in node_ranks], "own_hosts": group.get("hosts")}


def against_baseline(
    case: str, rounds: Sequence[MeasuredRound], file: Path, known: Mapping[str, baseline.Entry], percent: float
) -> BaselineRecord:
    """The case's rounds against the entries of `file`. What the file does not hold is said, not compared."""
    found = measured(case, rounds)
    changes = baseline.compare(found, known, percent)
    sentences = baseline.regressions_in_words(changes)
    if not changes:
        sentences = [f"{file} holds none of this case's measurements: it needs the same case, settings and hosts"]
    elif not sentences:
        sentences = [f"all {len(changes)} measurements are within {percent:g} % of the baseline {file}"]
    unknown = len(found) - len(changes)
    if changes and unknown:
        sentences.append(f"{unknown} more of this case's measurements are not in {file} and were not compared")
    rows = [
        BaselineRow(
            collective=change.now.collective,
            size_bytes=change.now.size_bytes,
            group="-".join(change.now.hosts) if len(change.now.hosts) == 2 else change.now.group,
            p50_us=change.now.p50_us,
            baseline_us=change.then.p50_us,
            ratio=change.then.p50_us / change.now.p50_us,
            below=change.regression,
        )
        for change in changes
    ]
    return BaselineRecord(file=str(file), percent=percent, sentences=sentences, rows=rows)


def refusal(file: Path, models: Sequence[str], *, overwrite: bool) -> str | None:
    """Why no baseline can be saved there after a run of these models, asked before anything runs; None if it can."""
    if baseline.MODEL not in models:
        return f"--save-baseline {file}: none of the CASES is of model {baseline.MODEL!r}, which alone has a baseline"
    if file.is_dir() or not file.parent.is_dir():
        return f"--save-baseline {file}: is no file in a folder that exists"
    if file.exists() and not overwrite:
        return f"--save-baseline {file}: is there already; add --overwrite-baseline to replace it, or name another"
    return None
