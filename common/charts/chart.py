"""Describes the charts of a page: lines over an axis, maps of rows and columns, spans of time, bars.

A description is plain data: it says nothing about colours and pixels, which draw.js decides. Texts may be anything.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from common.printable import printable

Number = float | int | None
Values = Sequence[Number]
Tone = Literal["", "bad", "good", "muted"]
DIGITS = 5
MOST_POINTS = 1000  # of a line: no screen has more pixels for one


class Axis(NamedTuple):
    """An axis: its name with the unit, its bounds where the data does not give them, and how its values are written.

    `bytes` are written with binary prefixes, on a log axis with powers of 2 as marks; `seconds` as s, min or h.
    """

    name: str
    kind: Literal["value", "log"] = "value"
    format: Literal["number", "bytes", "seconds"] = "number"
    start: float | None = None
    end: float | None = None


class Series(NamedTuple):
    """Values `y` over `x` (None: over the chart's); None in them is a gap. A band lies from `low` to `high`."""

    name: str
    y: Values = ()
    x: Values | None = None
    low: Values = ()
    high: Values = ()
    style: Literal["line", "steps", "points", "band"] = "line"
    tone: Tone = ""


class Line(NamedTuple):
    """A horizontal line with its name, such as an expected value."""

    name: str
    value: float


class Area(NamedTuple):
    """A shaded part of the x axis, such as warm-up."""

    name: str
    start: float
    end: float


class Panel(NamedTuple):
    """One pair of axes of a chart; all panels share the x axis."""

    y: Axis
    series: Sequence[Series]
    lines: Sequence[Line] = ()


class Curves(NamedTuple):
    """Lines, points and bands in one panel or several, one below the other. `xs`: x of the series that have none."""

    title: str
    x: Axis
    panels: Sequence[Panel]
    sentence: str = ""
    xs: Values = ()
    areas: Sequence[Area] = ()


class Heat(NamedTuple):
    """A map: `cells` has a row for each of `rows`, None where nothing was measured. `worst`: which end is bad."""

    title: str
    columns: Sequence[str]
    rows: Sequence[str]
    cells: Sequence[Values]
    unit: str
    sentence: str = ""
    worst: Literal["low", "high"] = "low"


class Spans(NamedTuple):
    """Spans of time of rows: for each of `kinds`, triples of row number, begin and end."""

    title: str
    x: Axis
    rows: Sequence[str]
    kinds: Sequence[str]
    spans: Sequence[Sequence[tuple[int, float, float]]]
    sentence: str = ""


class Bar(NamedTuple):
    """A bar and the text behind it."""

    name: str
    value: float
    text: str
    tone: Tone = ""


class Bars(NamedTuple):
    """Horizontal bars from 0; `one_hue`: in one colour, where their order means nothing."""

    title: str
    unit: str
    bars: Sequence[Bar]
    sentence: str = ""
    one_hue: bool = False
    format: Literal["number", "bytes", "seconds"] = "number"


Chart = Curves | Heat | Spans | Bars
KINDS: dict[type[Chart], str] = {Curves: "xy", Heat: "heat", Spans: "spans", Bars: "bars"}
Description = Chart | Panel | Series | Line | Area | Axis | Bar


def chart_json(chart: Chart) -> str:
    """The chart as JSON that can stand in a script element: nothing in it closes or opens one.

    Raises:
        ValueError: a series has more points than a screen has pixels, or as many values as its x axis has not.
    """
    if isinstance(chart, Curves):
        for panel in chart.panels:
            for series in panel.series:
                _check(chart, series)
    text = json.dumps({"kind": KINDS[type(chart)], **_plain(chart)}, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _check(chart: Curves, series: Series) -> None:
    count = len(chart.xs if series.x is None else series.x)
    lengths = {len(series.low), len(series.high)} if series.style == "band" else {len(series.y)}
    if lengths != {count}:
        raise ValueError(f"{chart.title}: {series.name}: {sorted(lengths)} values over {count} places")
    if count > MOST_POINTS:
        raise ValueError(f"{chart.title}: {series.name}: {count} points, at most {MOST_POINTS} can be seen")


def _plain(value: Description) -> dict[str, object]:
    """The fields as JSON values, without those that are empty; start and end are `from` and `to`."""
    rename = {"start": "from", "end": "to"} if isinstance(value, Axis) else {}
    return {
        rename.get(name, name): _json(field)
        for name, field in value._asdict().items()
        if field is not None and field is not False and field != ""
    }


def _json(value: object) -> object:
    if type(value) is list or type(value) is tuple:  # of which there are most
        return [_json(each) for each in value]
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, float):
        return rounded(value)
    if isinstance(value, int):
        return value
    if isinstance(value, Description):
        return _plain(value)
    if isinstance(value, Mapping):
        return {printable(str(name)): _json(each) for name, each in value.items()}
    if isinstance(value, Sequence):
        return [_json(each) for each in value]
    return value


def rounded(value: float) -> float | int | None:
    """A number in any unit with DIGITS significant digits, an integer where it is one; None if it is not finite."""
    if not math.isfinite(value):
        return None
    short = float(f"{value:.{DIGITS}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def thinned(xs: Values, *columns: Values, most: int = MOST_POINTS) -> tuple[list[Number], list[list[Number]]]:
    """x and columns with at most `most` points: of neighbours that share one, the last x and the mean of each column.

    None counts in no mean.
    """
    step = -(-len(xs) // most) if xs else 1
    places = range(0, len(xs), step)
    return (
        [xs[min(at + step, len(xs)) - 1] for at in places],
        [[_mean(column[at : at + step]) for at in places] for column in columns],
    )


def _mean(values: Values) -> Number:
    found = [value for value in values if value is not None]
    if len(found) < 2:
        return found[0] if found else None
    return math.fsum(found) / len(found)
