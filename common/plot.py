"""Draws a sweep: bandwidth over message size, as SVG text that needs no library to draw or show."""

import math
from collections.abc import Mapping, Sequence
from html import escape

from common.sizes import format_size

_WIDTH, _HEIGHT = 640, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 20, 36, 44
_COLORS = ("#0969da", "#cf222e", "#1a7f37", "#9a6700", "#8250df")
_TICKS = 8


def sweep_svg(series: Mapping[str, Sequence[tuple[int, float]]], title: str, *, advertised: float | None = None) -> str:
    """An SVG document of lines over sizes (bytes, logarithmic) and GB/s (linear from 0), one line per name in `series`.

    `advertised`, in GB/s, is drawn as a horizontal line. Points without a size (a barrier) are left out; a picture
    without points says so.
    """
    lines = {name: sorted(point for point in points if point[0] > 0) for name, points in series.items()}
    every = [point for points in lines.values() for point in points]
    body = [f'<text x="{_LEFT}" y="20" font-weight="600">{escape(title)}</text>']
    if every:
        low, high = min(size for size, _ in every), max(size for size, _ in every)
        top = _nice(max([*(value for _, value in every), advertised or 0.0]))
        body += _axes(sorted({size for size, _ in every}), low, high, top)
        body += _across(advertised, top) if advertised else []
        for number, (name, points) in enumerate(lines.items()):
            body += _line(name, points, _COLORS[number % len(_COLORS)], low, high, top)
    else:
        body.append(f'<text x="{_LEFT}" y="{_HEIGHT // 2}">no sizes were measured</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}"'
        ' font-family="system-ui, sans-serif" font-size="12" fill="currentColor">' + "".join(body) + "</svg>\n"
    )


def _nice(value: float) -> float:
    """1, 2 or 5 times a power of ten, not below `value`; 1 for 0."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value)


def _x(size: int, low: int, high: int) -> float:
    share = 0.5 if low == high else math.log(size / low) / math.log(high / low)
    return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)


def _y(value: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - value / top * (_HEIGHT - _TOP - _BOTTOM)


def _axes(sizes: Sequence[int], low: int, high: int, top: float) -> list[str]:
    parts = []
    for step in range(5):
        value = top * step / 4
        y = _y(value, top)
        parts.append(
            f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}" stroke="#8884"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
        )
    for size in sizes[:: max(1, -(-len(sizes) // _TICKS))]:
        x = _x(size, low, high)
        parts.append(f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{format_size(size)}</text>')
    return parts


def _across(advertised: float, top: float) -> list[str]:
    y, right = _y(advertised, top), _WIDTH - _RIGHT
    return [
        f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#cf222e" stroke-dasharray="6 4"/>',
        f'<text x="{right}" y="{y - 5:.1f}" text-anchor="end">advertised {advertised:g}</text>',
    ]


def _line(name: str, points: Sequence[tuple[int, float]], color: str, low: int, high: int, top: float) -> list[str]:
    places = [(_x(size, low, high), _y(value, top)) for size, value in points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    marks = [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}">'
        f"<title>{escape(name)} {format_size(size)}: {value:.4g} GB/s</title></circle>"
        for (x, y), (size, value) in zip(places, points, strict=True)
    ]
    return [f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>', *marks]
