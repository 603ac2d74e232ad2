"""Defines how a benchmark evaluates its results: the Protocol of every outcome.py, and its plain input and output.

A benchmark's `config.py` defines its settings, its `outcome.py` evaluates its results. The controller calls it on the
head node, so it imports no torch. Data from hosts reaches it as JSON values of any content.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from pydantic import BaseModel, Field, JsonValue, model_validator

from common.charts.chart import Chart
from protocol.masking import mask_config

Better = Literal["higher", "lower"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """One number of FINISHED: its name there, its unit ("" for a pure number) and which direction is better.

    `is_key`: the figure that stands for the benchmark. `is_steady`: the same without the warm-up. `is_reference`:
    whether a baseline keeps it. `of_steps`: the value of STEP_END, in the same unit, whose mean over the steps it is;
    "" if there is none.
    """

    name: str
    unit: str
    better: Better
    meaning: str = ""
    is_key: bool = False
    is_steady: bool = False
    is_reference: bool = True
    of_steps: str = ""


def declared(metrics: Sequence[Metric]) -> tuple[Metric, ...]:
    """The metrics as a benchmark declares them, the key figure first.

    Raises:
        ValueError: two have the same name, or several are the key figure.
    """
    names = [metric.name for metric in metrics]
    twice = sorted({name for name in names if names.count(name) > 1})
    keys = [metric.name for metric in metrics if metric.is_key]
    if twice:
        raise ValueError(f"declares {', '.join(twice)} twice; expected each metric once")
    if len(keys) > 1:
        raise ValueError(f"declares {', '.join(keys)} as key figures; expected one at most")
    return tuple(sorted(metrics, key=lambda metric: not metric.is_key))


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredCase:
    """A case: its name, the JSON of its settings (secrets masked), and its size in hosts and ranks per host.

    `baseline`: for its report, the values of the baseline that it was compared with, by what Change names.
    """

    name: str
    config: Mapping[str, Any]
    nnodes: int
    nproc: int
    baseline: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def masked(cls, name: str, config: Mapping[str, Any], *, nnodes: int, nproc: int) -> MeasuredCase:
        """The case with the secrets of its settings masked."""
        return cls(name=name, config=mask_config(config), nnodes=nnodes, nproc=nproc)


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredRound:
    """A round: the value of rank 0's FINISHED and of each STEP_END; `hosts` has the user's host names by node rank.

    `partial`: what was measured of a round that ended early ("3 of 8 steps"); empty for one that measured everything.
    `joules`: the energy of the measured work (TRAIN_START to TRAIN_END) by power meter, of those that all hosts have.
    """

    number: int
    metrics: Mapping[str, Any]
    steps: Sequence[Mapping[str, Any]]
    hosts: Mapping[int, str]
    partial: str = ""
    joules: Mapping[str, float] = field(default_factory=dict)


class Reference(BaseModel, frozen=True, extra="forbid"):
    """A measurement in a baseline: the median of `n` values and their range, all in `unit`.

    `details` describes what was measured, in the benchmark's own form, for people.
    """

    value: float = Field(gt=0, allow_inf_nan=False)
    low: float = Field(gt=0, allow_inf_nan=False)
    high: float = Field(gt=0, allow_inf_nan=False)
    n: int = Field(ge=1)
    unit: str
    better: Better
    details: dict[str, JsonValue] = {}

    @model_validator(mode="after")
    def _in_its_range(self) -> Reference:
        if not self.low <= self.value <= self.high:
            raise ValueError(f"value {self.value:g} does not lie between low {self.low:g} and high {self.high:g}")
        return self


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A measurement against its reference; `what` names it for people.

    `percent` is how much worse it is (negative: better). `is_regression`: worse by more than is allowed.
    """

    what: str
    now: Reference
    then: Reference
    percent: float
    is_regression: bool

    @property
    def ratio(self) -> float:
        """How good it is, 1 being the reference: measured / reference where higher is better, else the inverse."""
        ratio = self.now.value / self.then.value
        return ratio if self.now.better == "higher" else 1 / ratio


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Every measurement that two sets of references share, the worst first, and sentences on what became worse.

    `remarks` are further sentences, on what is as in the reference or cannot be compared.
    """

    changes: tuple[Change, ...]
    sentences: tuple[str, ...]
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Assessment:
    """Statements on a case's results: findings, and warnings about doubtful values. Neither changes the verdict."""

    sentences: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class TableCell:
    """A cell of a table: a text or a number, a smaller note below it, and whether it is bad."""

    value: str | float
    note: str = ""
    is_bad: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Paragraph:
    """A sentence."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Preformatted:
    """Lines that are shown unchanged, in a monospaced font."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """A table; numbers are right-aligned. Each row has as many cells as there are columns."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[TableCell, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """A chart, for the report only."""

    chart: Chart


Block = Paragraph | Preformatted | Table | Picture


@runtime_checkable
class Outcome(Protocol):
    """One benchmark's outcome; `OUTCOME` in its outcome.py is one. DefaultOutcome implements it for plain numbers.

    `config` is the JSON of a case's settings as its `Config` validated them. The caller catches and reports exceptions:
    only the requested part is lost, not the run.
    """

    def metrics(self, config: Mapping[str, Any]) -> Sequence[Metric]:
        """The numbers that a case with these settings puts into FINISHED and that can be expected or compared."""
        ...

    def conditions(self, case: MeasuredCase) -> Mapping[str, JsonValue]:
        """The conditions that must be equal for two measurements of a case to be compared, by name."""
        ...

    def references(self, case: MeasuredCase, rounds: Sequence[MeasuredRound]) -> Mapping[str, Reference]:
        """The references that a baseline keeps of these rounds, by a key that says what was measured."""
        ...

    def compare(self, now: Mapping[str, Reference], then: Mapping[str, Reference], percent: float) -> Comparison:
        """Compare the measurements that both contain; worse by more than `percent` is a regression."""
        ...

    def assess(self, case: MeasuredCase, rounds: Sequence[MeasuredRound]) -> Assessment:
        """Sentences and warnings beside the verdict, from the rounds that passed."""
        ...

    def console(self, case: MeasuredCase, measured: MeasuredRound) -> Sequence[Block]:
        """The tables of a round for the console at the end of the run."""
        ...

    def report(self, case: MeasuredCase, measured: MeasuredRound) -> Sequence[Block]:
        """The round's section of report.html."""
        ...

    def probe(self, config: Mapping[str, Any]) -> Mapping[str, JsonValue] | None:
        """Overrides that turn the case into a quick test of communication, for `diagnose`; None: it cannot be one."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class HostFigure:
    """A figure of each host in a round, in `unit`, by the user's host names."""

    name: str
    unit: str
    better: Better
    values: Mapping[str, float]


@runtime_checkable
class FigureOutcome(Protocol):
    """The optional part of an Outcome whose metrics depend on more than `conditions`, which its references name."""

    def figure_conditions(self, case: MeasuredCase) -> Mapping[str, JsonValue]:
        """The conditions that must be equal for two values of a metric to be compared, by name."""
        ...


@runtime_checkable
class JobOutcome(Protocol):
    """The optional part of an Outcome whose cases are trainings that `python -m simulation predict` can describe."""

    def described_job(self, case: MeasuredCase, rounds: Sequence[MeasuredRound]) -> Mapping[str, JsonValue]:
        """The columns of the job, as a file of `predict --job` has them, but for the GPU; rounds: those that passed.

        Raises:
            ValueError: `predict` knows no such iteration; the message says why.
        """
        ...


@runtime_checkable
class HostOutcome(Protocol):
    """The optional part of an Outcome that compares the hosts of a round with one another."""

    def host_figures(self, case: MeasuredCase, measured: MeasuredRound) -> Sequence[HostFigure]:
        """The figures of a round that each host has of its own; none where all hosts share one."""
        ...
