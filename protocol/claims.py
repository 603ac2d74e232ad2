"""Defines what rank 0's log shows by its lines alone, and the part of an Outcome that derives FINISHED from it.

The rule is MLPerf's: a result follows from the lines of a log and their times (run_stop - run_start), and not from what
the program states of itself (mlperf_logging, result_summarizer and compliance_checker).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Protocol, runtime_checkable

from protocol.outcome import MeasuredCase
from protocol.perflog import Event

# What the clock of the lines and the one that a rank measures with may differ by, apart from steps of the former.
CLOCK_TOLERANCE = 0.01
CLOCK_SECONDS = 0.02
ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True, slots=True)
class LoggedStep:
    """One STEP_END: the step's number, and the times of its STEP_BEGIN and of itself, epoch ms of rank 0's host."""

    number: int
    begin_ms: int
    end_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LoggedRun:
    """The lines of rank 0's log: its steps in order, and of the last line of each event the time (epoch ms of rank 0's
    host) and the value, {} for one that is no object. `world_size`: ranks of the plan, `nproc` of them on a host.
    `rows`: the values of all STEP_END, in order; None where they are too many to keep.
    """

    steps: Sequence[LoggedStep]
    times_ms: Mapping[Event, int]
    values: Mapping[Event, Mapping[str, Any]]
    world_size: int
    nproc: int = 1
    rows: Sequence[Mapping[str, Any]] | None = None

    def seconds(self, first: Event, last: Event) -> float:
        """From the line of one event to that of another, in seconds.

        Raises:
            KeyError: one of them is not there.
        """
        return (self.times_ms[last] - self.times_ms[first]) / 1000

    def value(self, event: Event) -> Mapping[str, Any]:
        """The value of the last line of that event; {} without one."""
        return self.values.get(event, {})


@runtime_checkable
class ClaimsOutcome(Protocol):
    """The optional part of an Outcome that holds FINISHED against the rest of the log."""

    def contradictions(self, case: MeasuredCase, log: LoggedRun) -> Sequence[str]:
        """Claims of FINISHED that its log contradicts, a sentence with both for each; none where they agree.

        An exception is a contradiction, too, but a pydantic.ValidationError of the settings of another version.
        """
        ...


def process_seconds(log: LoggedRun) -> list[str]:
    """A sentence if e2e_time, from the start of the process on, is shorter than what its lines show of it."""
    low = log.seconds(Event.SUBMIT_INFO, Event.TRAIN_END) * (1 - CLOCK_TOLERANCE) - CLOCK_SECONDS
    return outside("e2e_time", log.value(Event.FINISHED).get("e2e_time"), low, math.inf, "the times of its log's lines")


def departures(log: LoggedRun, found: Mapping[str, Any], how: str) -> list[str]:
    """A sentence for each value of FINISHED that is not the one that was `found`, of any JSON type and unit.

    A number that FINISHED does not tell claims nothing; a list that it does not tell claims that there is nothing.
    """
    finished, sentences = log.value(Event.FINISHED), []
    for name, value in found.items():
        claimed = finished.get(name, [] if isinstance(value, list) else None)
        departure = None if claimed is None else _departure(name, claimed, value)
        if departure is not None:
            path, one, other = departure
            sentences.append(f"{path} is {_shown(one)} by FINISHED, {_shown(other)} by {how}")
    return sentences


_NOTHING = "nothing"


def _departure(path: str, claimed: object, value: object) -> tuple[str, object, object] | None:
    """The first part in which a claim is not the value, numbers up to ROUNDING: its path, claim and value.

    A claimed object may have more keys than the value.
    """
    parts: Iterable[tuple[str, object, object]] = ()
    if isinstance(value, Mapping) and isinstance(claimed, Mapping):
        parts = ((f"{path}.{key}", claimed.get(key, _NOTHING), own) for key, own in value.items())
    elif isinstance(value, list) and isinstance(claimed, list):
        both = enumerate(zip_longest(claimed, value, fillvalue=_NOTHING))
        parts = ((f"{path}[{place}]", one, other) for place, (one, other) in both)
    elif not _is_same(claimed, value):
        return path, claimed, value
    return next((found for part in parts if (found := _departure(*part)) is not None), None)


def _is_same(claimed: object, value: object) -> bool:
    if _is_number(claimed) and _is_number(value):
        return math.isclose(float(str(claimed)), float(str(value)), rel_tol=ROUNDING)
    return type(claimed) is type(value) and claimed == value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: object) -> str:
    if value is _NOTHING:
        return _NOTHING
    return f"{value:.6g}" if isinstance(value, float) else f"{value!r:.80}"


def outside(name: str, claimed: object, low: float, high: float, how: str) -> list[str]:
    """A sentence if the number that FINISHED claims lies outside of `low` to `high`; `how`: where these two come from.

    All in the units of the claim. An absent one (None) claims nothing.
    """
    if claimed is None:
        return []
    if _is_number(claimed) and low <= float(str(claimed)) <= high:
        return []
    found = f"{low:.6g}" if low == high else f"at least {low:.6g}" if math.isinf(high) else f"{low:.6g} to {high:.6g}"
    return [f"{name} is {_shown(claimed)} by FINISHED, {found} by {how}"]
