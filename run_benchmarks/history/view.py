"""Says in words and numbers what the history tells of a case: its levels, when they changed, and what changed then."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from run_benchmarks.console.command_line import own_command
from run_benchmarks.console.language import Words
from run_benchmarks.history.change_points import ChangePoint, Trend, trend
from run_benchmarks.history.store import Point, Series

SHOWN_CHARACTERS = 40


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of level between two runs, and the provenance that changed there: name, before, after."""

    point: ChangePoint
    run: Point
    is_worse: bool
    provenance: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, kw_only=True)
class CaseHistory:
    """A series with its changes and the state of its latest runs, `sentence` in words."""

    series: Series
    trend: Trend
    changes: tuple[Change, ...]
    sentence: str


def told(found: Series, words: Words) -> CaseHistory:
    """The changes of a series and what they mean."""
    seen = trend(found.values)
    changes = tuple(_changes(found, seen.points))
    return CaseHistory(series=found, trend=seen, changes=changes, sentence=_sentence(found, seen, words))


def _changes(found: Series, points: Sequence[ChangePoint]) -> Iterator[Change]:
    runs = found.measured
    for point in points:
        before, after = runs[point.index - 1].provenance, runs[point.index].provenance
        names = [name for name in dict.fromkeys((*before, *after)) if before.get(name) != after.get(name)]
        yield Change(
            point=point,
            run=runs[point.index],
            is_worse=(point.after < point.before) == (found.better == "higher"),
            provenance=tuple((name, _short(before.get(name, "")), _short(after.get(name, ""))) for name in names),
        )


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 3]}..."


def _sentence(found: Series, seen: Trend, words: Words) -> str:
    runs = found.measured
    since = runs[seen.since].run_id if seen.since is not None else ""
    if seen.state == "suspected":
        again = own_command("run", "--case", found.case)
        said = words("A change is suspected since {run}; {n} more runs would tell: {command}",
                     run=since, n=seen.runs_needed, command=again)  # fmt: skip
    elif seen.state == "changed":
        said = words("The level changed at {run}.", run=since)
    elif seen.state == "drifting":
        said = words("It drifts: by {drift} {unit} over {n} runs.", drift=f"{seen.drift or 0:+.4g}", unit=found.unit,
                     n=len(runs))  # fmt: skip
    elif seen.state == "steady":
        said = words("Steady in its latest runs.")
    else:
        said = words("Too few runs to tell a change: {n}.", n=len(runs))
    others = words("{n} runs of another device, size or settings are left out.", n=found.others)
    return f"{said} {others}" if found.others else said
