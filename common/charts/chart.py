"""Describes the charts of a page: lines over an axis, maps of rows and columns, spans of time, bars.

A description is plain data: it says nothing about colours and pixels, which draw.js decides. Texts may be anything.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, Self, dataclass_transform

from common.printable import printable

Number = float | int | None
Values = Sequence[Number]
Tone = Literal["", "bad", "good", "muted"]
DIGITS = 5
MOST_POINTS = 1000  # of a line: no screen has more pixels for one


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Described:
    """Fields by name, in the order of the class, that nothing changes.

    The module `dataclasses` compiles code for each class, which takes longer than many a page.
    """

    _fields: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        own = cls.__annotations__.items()
        cls._fields = tuple([name for name, form in own if getattr(form, "__origin__", None) is not ClassVar])

    def __init__(self, **given: object) -> None:
        own, kind = vars(self), type(self)
        for name in self._fields:
            own[name] = given.pop(name) if name in given else getattr(kind, name)
        if given:
            raise TypeError(f"{kind.__name__} has no {', '.join(given)}")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name} of {type(self).__name__} cannot be set")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    __hash__ = None  # type: ignore[assignment] # it may hold lists

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def replaced(self, **changed: object) -> Self:
        """The same with other values of some fields."""
        return type(self)(**{**vars(self), **changed})


class Axis(Described):
    """An axis: its name with the unit, its bounds where the data does not give them, and how its values are written.

    `bytes` are written with binary prefixes, on a log axis with powers of 2 as marks; `seconds` as s, min or h.
    """

    name: str
    kind: Literal["value", "log"] = "value"
    format: Literal["number", "bytes", "seconds"] = "number"
    start: float | None = None
    end: float | None = None


class Series(Described):
    """Values `y` over `x` (None: over the chart's); None in them is a gap. A band lies from `low` to `high`."""

    name: str
    y: Values = ()
    x: Values | None = None
    low: Values = ()
    high: Values = ()
    style: Literal["line", "steps", "points", "band"] = "line"
    tone: Tone = ""


class Line(Described):
    """A horizontal line with its name, such as an expected value."""

    name: str
    value: float


class Area(Described):
    """A shaded part of the x axis, such as warm-up."""

    name: str
    start: float
    end: float


class Panel(Described):
    """One pair of axes of a chart; all panels share the x axis."""

    y: Axis
    series: Sequence[Series]
    lines: Sequence[Line] = ()


class Curves(Described):
    """Lines, points and bands in one panel or several, one below the other. `xs`: x of the series that have none."""

    kind: ClassVar[str] = "xy"
    title: str
    sentence: str = ""
    x: Axis
    panels: Sequence[Panel]
    xs: Values = ()
    areas: Sequence[Area] = ()


class Heat(Described):
    """A map: `cells` has a row for each of `rows`, None where nothing was measured. `worst`: which end is bad."""

    kind: ClassVar[str] = "heat"
    title: str
    sentence: str = ""
    columns: Sequence[str]
    rows: Sequence[str]
    cells: Sequence[Values]
    unit: str
    worst: Literal["low", "high"] = "low"


class Spans(Described):
    """Spans of time of rows: for each of `kinds`, triples of row number, begin and end."""

    kind: ClassVar[str] = "spans"
    title: str
    sentence: str = ""
    x: Axis
    rows: Sequence[str]
    kinds: Sequence[str]
    spans: Sequence[Sequence[tuple[int, float, float]]]


class Bar(Described):
    """A bar and the text behind it."""

    name: str
    value: float
    text: str
    tone: Tone = ""


class Bars(Described):
    """Horizontal bars from 0; `one_hue`: in one colour, where their order means nothing."""

    kind: ClassVar[str] = "bars"
    title: str
    sentence: str = ""
    unit: str
    bars: Sequence[Bar]
    one_hue: bool = False
    format: Literal["number", "bytes", "seconds"] = "number"


Chart = Curves | Heat | Spans | Bars


def chart_json(chart: Chart) -> str:
    """The chart as JSON that can stand in a script element: nothing in it closes or opens one.

    Raises:
        ValueError: a series has more points than a screen has pixels, or as many values as its x axis has not.
    """
    if isinstance(chart, Curves):
        for panel in chart.panels:
            for series in panel.series:
                _check(chart, series)
    text = json.dumps({"kind": chart.kind, **_plain(chart)}, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _check(chart: Curves, series: Series) -> None:
    count = len(chart.xs if series.x is None else series.x)
    lengths = {len(series.low), len(series.high)} if series.style == "band" else {len(series.y)}
    if lengths != {count}:
        raise ValueError(f"{chart.title}: {series.name}: {sorted(lengths)} values over {count} places")
    if count > MOST_POINTS:
        raise ValueError(f"{chart.title}: {series.name}: {count} points, at most {MOST_POINTS} can be seen")


def _plain(value: Described) -> dict[str, object]:
    """The fields as JSON values, without those that are empty; start and end are `from` and `to`."""
    rename = {"start": "from", "end": "to"} if isinstance(value, Axis) else {}
    return {
        rename.get(name, name): _json(field)
        for name, field in vars(value).items()
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
    if isinstance(value, Described):
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
