"""Records a case's measurements against its limits and against a baseline, for run.json."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, model_validator

from run_benchmarks.settings.limits import parse_limit


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ExpectationRecord(_Record):
    """A limit of the case's `expect` as it is written there, and what was measured, in `unit`.

    `measured` is None where no round that passed has a number; `missing_rounds` lack one that others have.
    """

    metric: str
    unit: str
    limit: str
    measured: float | None
    met: bool
    missing_rounds: list[int] = []

    @property
    def sentence(self) -> str:
        """Metric, measured value, unit, and what was expected."""
        unit = f" {self.unit}" if self.unit else ""
        expected = parse_limit(self.limit).in_words(self.unit)
        if self.measured is None:
            return f"{self.metric} was not measured, expected {expected}"
        rounds = ", ".join(map(str, self.missing_rounds))
        missing = f", and was not measured in round {rounds}" if rounds else ""
        return f"{self.metric} is {self.measured:.4g}{unit}{missing}, expected {expected}"


class BaselineRow(_Record):
    """One measurement against the baseline's, both in `unit`. `ratio`: how good it is, 1 being the baseline's."""

    what: str
    unit: str
    better: Literal["higher", "lower"]
    measured: float
    baseline: float
    ratio: float
    below: bool

    @model_validator(mode="before")
    @classmethod
    def _of_version_2(cls, values: Any) -> Any:
        """Records of schema version 2 had the times of network cases alone."""
        if not isinstance(values, dict) or "p50_us" not in values:
            return values
        what = f"{values.get('collective')} {values.get('group')} {values.get('size_bytes')}"
        kept = {key: values.get(key) for key in ("ratio", "below")}
        return {
            **kept,
            "what": what,
            "unit": "us",
            "better": "lower",
            "measured": values["p50_us"],
            "baseline": values.get("baseline_us"),
        }


class BaselineRecord(_Record):
    """A case against the baseline: sentences on what is worse by more than `percent`, and every measurement.

    `device`: the type of device that both are of; "" where nothing was compared. `rows` is empty then.
    """

    file: str
    device: str = ""
    percent: float
    sentences: list[str]
    rows: list[BaselineRow]

    @property
    def is_below(self) -> bool:
        """Whether anything fell below the tolerance."""
        return any(row.below for row in self.rows)
