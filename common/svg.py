"""Draws SVG text, which needs no library: `element`, and of it bars, curves, points, timelines."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

WIDTH, LINE = 960, 22
LEFT, RIGHT = 70, 34
PALETTE = (
    "#0969da", "#cf222e", "#1a7f37", "#9a6700", "#8250df", "#bf3989", "#0f766e", "#b35900", "#57606a", "#3b5bdb",
    "#a16207", "#15803d", "#be123c", "#6d28d9", "#0e7490", "#4d7c0f",
)  # fmt: skip
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
