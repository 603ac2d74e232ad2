"""Draws SVG text, which needs no library: `element`, and of it bars, curves, points, timelines and sweeps."""

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple

from common.units import format_size

WIDTH, LINE = 960, 22
LEFT, RIGHT = 70, 34
PALETTE = (
    "#0969da", "#cf222e", "#1a7f37", "#9a6700", "#8250df", "#bf3989", "#0f766e", "#b35900", "#57606a", "#3b5bdb",
    "#a16207", "#15803d", "#be123c", "#6d28d9", "#0e7490", "#4d7c0f",
)  # fmt: skip
_SWEEP_COLORS, _TICKS = 5, 8
Points = Sequence[tuple[float, float]]


def color(number: int) -> str:
    """The color of the so many-th kind."""
    return PALETTE[number % len(PALETTE)]


def element(tag: str, /, *content: str, **attributes: str | float) -> str:
    """An element of SVG, whose `attributes` keep their order; _ in a name is -, one at its end falls.

    Lengths have pixels as their unit; a float has one digit after the point.

    content is SVG, so that text goes through `escape` first.
    """
    said = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{f"{value:.1f}" if isinstance(value, float) else value}"'
        for name, value in attributes.items()
    )
    return f"<{tag}{said}>{''.join(content)}</{tag}>" if content else f"<{tag}{said}/>"


def _svg(height: float, body: Iterable[str], title: str) -> str:
    label = escape(title, quote=True)
    return element("svg", "".join(body), viewBox=f"0 0 {WIDTH} {height:.0f}", role="img", aria_label=label)


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return element("text", escape(text), x=float(x), y=float(y), text_anchor=anchor)


def bars(title: str, values: Sequence[tuple[str, float, str, str]]) -> str:
    """Horizontal bars: name, share (0 to 1), what stands behind the bar, and color."""
    left, wide = 260, 520
    body = []
    for number, (name, share, text, shade) in enumerate(values):
        y = number * LINE
        body.append(
            _text(left - 8, y + 15, name, "end")
            + element("rect", x=left, y=y + 3, width=float(share * wide), height=15, fill=shade)
            + _text(left + share * wide + 6, y + 15, text)
        )
    return _svg(max(1, len(values)) * LINE, body, title)


def plot(
    title: str, series: Mapping[str, tuple[str, Points]], x_ticks: Sequence[tuple[float, str]], top: float, *,
    unit: str, joined: bool,
) -> str:  # fmt: skip
    """Curves (`joined`) or points, over x from 0 to 1 and y from 0 to `top` in `unit`, by name with their color."""
    height, foot, head = 300, 40, 14
    body = []
    for step in range(5):
        y = head + (height - foot - head) * (1 - step / 4)
        body.append(
            element("line", x1=LEFT, y1=y, x2=WIDTH - RIGHT, y2=y, stroke="#8884")
            + _text(LEFT - 6, y + 4, f"{top * step / 4:.3g}", "end")
        )
    body.append(_text(4, height - 6, unit))
    body += [_text(LEFT + x * (WIDTH - LEFT - RIGHT), height - foot + 18, text, "middle") for x, text in x_ticks]
    for name, (shade, points) in series.items():
        places = [
            (LEFT + x * (WIDTH - LEFT - RIGHT), head + (height - foot - head) * (1 - min(1.0, y / top if top else 0.0)))
            for x, y in points
        ]
        if joined:
            body.append(_polyline(places, shade, element("title", escape(name))))
        else:
            body += [
                element(
                    "circle", element("title", escape(f"{name}: {value:.4g} {unit}")),
                    cx=x, cy=y, r="3.5", fill=shade, fill_opacity=".75",
                )
                for (x, y), (_, value) in zip(places, points, strict=True)
            ]  # fmt: skip
    return _svg(height, body, title)


def columns(title: str, values: Sequence[float], median: float, first: int, unit: str) -> str:
    """Vertical bars of values in `unit`, numbered from `first` on, with their median as a line."""
    height, foot, head = 220, 30, 10
    top = max([*values, median, 1e-9])
    wide = (WIDTH - LEFT - RIGHT) / max(1, len(values))
    body = []
    for number, value in enumerate(values):
        tall = (height - foot - head) * value / top
        body.append(
            element(
                "rect",
                element("title", escape(f"{first + number}: {value:.4g} {unit}")),
                x=f"{LEFT + number * wide:.2f}",
                y=float(height - foot - tall),
                width=f"{max(wide * 0.85, 0.5):.2f}",
                height=float(tall),
                fill=PALETTE[0],
            )
        )
    y = height - foot - (height - foot - head) * median / top
    body.append(element("line", x1=LEFT, y1=float(y), x2=WIDTH - RIGHT, y2=float(y), stroke="#cf222e"))
    body.append(_text(WIDTH - RIGHT, y - 4, f"median {median:.4g} {unit}", "end"))
    body += [_text(LEFT - 6, head + 10, f"{top:.4g}", "end"), _text(4, height - 8, unit)]
    body += [_text(LEFT, height - 8, str(first)), _text(WIDTH - RIGHT, height - 8, str(first + len(values) - 1), "end")]
    return _svg(height, body, title)


def timeline(title: str, rows: Sequence[tuple[str, Mapping[int, str]]], shades: Sequence[str], ends: str) -> str:
    """One line per rank: name, and by kind an SVG path over x from 0 to 1000, y from 0 to 1. ends: what x = 1000 is."""
    tall = max(3.0, min(18.0, 900 / max(1, len(rows))))
    body, names = [], []
    for number, (name, paths) in enumerate(rows):
        y = number * tall
        drawn = "".join(
            element("path", class_=f"k{kind}", fill=shades[kind], d=path) for kind, path in sorted(paths.items())
        )
        body.append(element("g", drawn, transform=f"translate(0 {y:.2f}) scale(1 {tall * 0.85:.2f})"))
        if tall >= 9 or number % 10 == 0:
            names.append(_text(LEFT - 6, y + tall * 0.7, name, "end"))
    height = len(rows) * tall + 20
    inner = WIDTH - LEFT - RIGHT
    return _svg(
        height,
        [
            element(
                "svg",
                "".join(body),
                class_="zoom",
                x=LEFT,
                y=0,
                width=inner,
                height=height - 20.0,
                preserveAspectRatio="none",
                viewBox=f"0 0 1000 {max(1.0, height - 20):.1f}",
            ),
            *names,
            _text(LEFT, height - 4, "0"),
            _text(WIDTH - RIGHT, height - 4, ends, "end"),
        ],
        title,
    )


def _polyline(places: Points, shade: str, *content: str) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return element("polyline", *content, points=path, fill="none", stroke=shade, stroke_width=2)


class _Axes(NamedTuple):
    """The frame of a sweep in pixels: sizes from `low` to `high` bytes, logarithmic, values from 0 to `top`."""

    low: int
    high: int
    top: float
    width: int = 640
    height: int = 320
    left: int = 60
    right: int = 20
    above: int = 36
    below: int = 44

    def x(self, size: int) -> float:
        """Where a size stands; in the middle if there is one size."""
        share = 0.5 if self.low == self.high else math.log(size / self.low) / math.log(self.high / self.low)
        return self.left + share * (self.width - self.left - self.right)

    def y(self, value: float) -> float:
        """Where a value stands."""
        return self.height - self.below - value / self.top * (self.height - self.above - self.below)

    def drawn(self, sizes: Sequence[int]) -> list[str]:
        """Five lines with their values, and names of at most `_TICKS` sizes."""
        parts = []
        for value in (self.top * step / 4 for step in range(5)):
            y = self.y(value)
            line = element("line", x1=self.left, y1=y, x2=self.width - self.right, y2=y, stroke="#8884")
            name = element("text", f"{value:g}", x=self.left - 6, y=y + 4, text_anchor="end")
            parts.append(line + name)
        for size in sizes[:: max(1, -(-len(sizes) // _TICKS))]:
            x, y = self.x(size), self.height - self.below + 18
            parts.append(element("text", format_size(size), x=x, y=y, text_anchor="middle"))
        return parts


def sweep_svg(series: Mapping[str, Sequence[tuple[int, float]]], title: str, *, advertised: float | None = None) -> str:
    """An SVG document of lines over sizes (bytes, logarithmic) and GB/s (linear from 0), one line per name in `series`.

    `advertised`, in GB/s, is drawn as a horizontal line. Points without a size (a barrier) are left out; a picture
    without points says so.
    """
    lines = {name: sorted(point for point in points if point[0] > 0) for name, points in series.items()}
    every = [point for points in lines.values() for point in points]
    sizes = sorted({size for size, _ in every}) or [1]
    axes = _Axes(sizes[0], sizes[-1], _nice(max([*(value for _, value in every), advertised or 0.0], default=0.0)))
    body = [element("text", escape(title), x=axes.left, y=20, font_weight=600)]
    if every:
        body += axes.drawn(sizes)
        body += _across(advertised, axes) if advertised else []
        for number, (name, points) in enumerate(lines.items()):
            body += _swept(name, points, PALETTE[number % _SWEEP_COLORS], axes)
    else:
        body.append(element("text", "no sizes were measured", x=axes.left, y=axes.height // 2))
    return (
        element(
            "svg", *body, xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {axes.width} {axes.height}",
            width=axes.width, height=axes.height, font_family="system-ui, sans-serif", font_size=12,
            fill="currentColor",
        )
        + "\n"
    )  # fmt: skip


def _nice(value: float) -> float:
    """1, 2 or 5 times a power of ten, not below `value`; 1 for 0."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value)


def _across(advertised: float, axes: _Axes) -> list[str]:
    y, right = axes.y(advertised), axes.width - axes.right
    return [
        element("line", x1=axes.left, y1=y, x2=right, y2=y, stroke="#cf222e", stroke_dasharray="6 4"),
        element("text", f"advertised {advertised:g}", x=right, y=y - 5, text_anchor="end"),
    ]


def _swept(name: str, points: Sequence[tuple[int, float]], shade: str, axes: _Axes) -> list[str]:
    places = [(axes.x(size), axes.y(value)) for size, value in points]
    marks = [
        element(
            "circle", element("title", escape(f"{name} {format_size(size)}: {value:.4g} GB/s")),
            cx=x, cy=y, r=3, fill=shade,
        )
        for (x, y), (size, value) in zip(places, points, strict=True)
    ]  # fmt: skip
    return [_polyline(places, shade), *marks]
