"""Draws docs/images/architecture.svg from docs/images/architecture.toml.

The picture has its own light ground and is readable on a light and on a dark page.
"""

import tomllib
from pathlib import Path
from xml.sax.saxutils import escape

from pydantic import BaseModel, ConfigDict

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
SOURCE = IMAGES / "architecture.toml"
PICTURE = IMAGES / "architecture.svg"

TITLE_SIZE, LINE_SIZE = 14, 12.5  # font sizes in pixels
MARGIN = 8  # pixels between a box's border and its text
COPY_OFFSET = 5  # pixels between two boxes of a stack
FILLS = {"machine": "#eef2f7", "task": "#e3ecd9", "room": "#ffffff", "file": "#fdf3d8"}
STROKES = {"machine": "#5b6b80", "task": "#5c7a3f", "room": "#2f5d9b", "file": "#a27b1e"}
TEXT, ARROW, GROUND = "#1b2430", "#44546a", "#ffffff"


class Strict(BaseModel):
    """A part of the source: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Box(Strict):
    """A named rectangle. `at` is x, y, width and height in pixels."""

    at: tuple[float, float, float, float]
    kind: str
    title: str
    lines: list[str] = []
    copies: int = 1


class Arrow(Strict):
    """A line through corner points (pixels) with a head at its end, and a label centred at `label_at`."""

    points: list[tuple[float, float]]
    label: str = ""
    label_at: tuple[float, float] = (0, 0)


class Drawing(Strict):
    """The whole picture, in pixels."""

    width: int
    height: int
    box: list[Box]
    arrow: list[Arrow]


def read(source: Path = SOURCE) -> Drawing:
    """The drawing that a source describes.

    Raises:
        ValueError: the source is no TOML, or lacks a value, or has one too many.
    """
    return Drawing.model_validate(tomllib.loads(source.read_text(encoding="utf-8")))


def svg(drawing: Drawing) -> str:
    """The picture as SVG."""
    size = f'width="{drawing.width}" height="{drawing.height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {drawing.width} {drawing.height}" role="img"'
        " font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\">",
        "<title>Rooms and data of a run: head node and hosts</title>",
        '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7"'
        f' orient="auto"><path d="M0 0L10 5L0 10z" fill="{ARROW}"/></marker></defs>',
        f'<rect {size} rx="10" fill="{GROUND}"/>',
        *(line for box in drawing.box for line in _box(box)),
        *(line for arrow in drawing.arrow for line in _arrow(arrow)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _box(box: Box) -> list[str]:
    x, y, width, height = box.at
    look = f'fill="{FILLS[box.kind]}" stroke="{STROKES[box.kind]}" stroke-width="1.4"'
    parts = [
        f'<rect x="{x + shift:g}" y="{y + shift:g}" width="{width:g}" height="{height:g}" rx="6" {look}/>'
        for shift in (copy * COPY_OFFSET for copy in reversed(range(box.copies)))
    ]
    middle = x + width / 2
    parts.append(_text(box.title, middle, y + 21, TITLE_SIZE, bold=True))
    parts += [_text(line, middle, y + 40 + 17 * index, LINE_SIZE) for index, line in enumerate(box.lines)]
    return parts


def _arrow(arrow: Arrow) -> list[str]:
    points = " ".join(f"{x:g},{y:g}" for x, y in arrow.points)
    line = f'<polyline points="{points}" fill="none" stroke="{ARROW}" stroke-width="1.6" marker-end="url(#head)"/>'
    return [line, *([_text(arrow.label, *arrow.label_at, LINE_SIZE)] if arrow.label else [])]


def _text(words: str, x: float, y: float, size: float, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    place = f'x="{x:g}" y="{y:g}" font-size="{size:g}" text-anchor="middle"'
    return f'<text {place} fill="{TEXT}"{weight}>{escape(words)}</text>'
