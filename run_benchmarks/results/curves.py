"""Defines curves.json beside each round.json: what the report draws of a round, aggregated while its logs are judged.

The report reads this and no log: a host of an hour has megabytes of samples, its curves have kilobytes.
"""

import math
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, ValidationError

from common.charts.chart import rounded
from run_benchmarks.results.records import load_record
from run_benchmarks.results.samples.timeline import Timeline
from run_benchmarks.results.step_curves import StepCurves

CURVES_FILE = "curves.json"
SCHEMA_VERSION = 1
GAP = "-"


class Curve(BaseModel, extra="forbid"):
    """One series: `values` by bucket, separated by blanks, "-" where nothing was measured.

    Text takes a tenth of the memory of a list of numbers, of which a run of 512 hosts has millions.
    """

    metric: str
    member: str = ""
    values: str

    def numbers(self) -> list[float | None]:
        """The values, in the unit of the metric (samples.timeline); anything that is no number is None."""
        words = self.values.split()
        try:
            found = list(map(float, words))  # nearly always: a run of 512 hosts has millions
        except ValueError:
            found = [math.nan]
        return [*found] if math.isfinite(sum(found)) else [_number(word) for word in words]


class NodeCurves(BaseModel, extra="forbid"):
    """A host's monitor: from `started_ms` on, epoch ms of the head node, in buckets of `bucket_ms`.

    `work_ms`: begin and end of the measured work on that host, by the head node's clock.
    """

    host: str
    node_rank: int
    started_ms: int
    bucket_ms: Annotated[int, Field(ge=1)]
    work_ms: tuple[int, int] | None = None
    curves: list[Curve]


class RoundCurves(BaseModel, extra="forbid"):
    """The curves of a round: of its hosts' monitors and of its ranks' steps."""

    schema_version: int = SCHEMA_VERSION
    nodes: list[NodeCurves] = []
    steps: StepCurves | None = None


def node_curves(
    host: str, node_rank: int, timeline: Timeline, offset_seconds: float, work_ms: tuple[int, int] | None
) -> NodeCurves | None:
    """The curves of a host whose clock is ahead by `offset_seconds`; None without a sample."""
    if timeline.started_ms is None:
        return None
    ahead = round(1000 * offset_seconds)
    return NodeCurves(
        host=host,
        node_rank=node_rank,
        started_ms=timeline.started_ms - ahead,
        bucket_ms=timeline.bucket_ms,
        work_ms=None if work_ms is None else (work_ms[0] - ahead, work_ms[1] - ahead),
        curves=[
            Curve(metric=metric, member=member, values=" ".join(map(_word, values)))
            for metric, member, values in timeline.values()
        ],
    )


def read_curves(folder: Path) -> RoundCurves:
    """The curves of the attempt at a round in `folder`; empty ones if there are none, or no valid ones."""
    try:
        return load_record(folder / CURVES_FILE, RoundCurves)
    except (OSError, ValidationError):
        return RoundCurves()


def _word(value: float | None) -> str:
    short = None if value is None else rounded(value)
    return GAP if short is None else f"{short}"


def _number(word: str) -> float | None:
    if word == GAP:
        return None
    try:
        value = float(word)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
