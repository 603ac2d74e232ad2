"""Draws where an iteration's time goes, as one bar: an HTML page with an inline SVG that loads nothing."""

from html import escape

from common.svg import element
from common.whole_files import NAME_BYTES
from simulation.analytical.times import SUMMARY_COLUMNS, Overview

WIDTH, HEIGHT, LEGEND_LINE = 900, 60, 22
COLOURS = ("#c0392b", "#e67e22", "#2980b9", "#8e44ad", "#16a085", "#7f8c8d", "#27ae60")
_PARTS = SUMMARY_COLUMNS[1:8]  # not "total exposed comm", which is the sum of others


def chart_page(name: str, overview: Overview) -> bytes:
    """The page."""
    parts = list(zip(_PARTS, overview.values()[:7], COLOURS, strict=True))
    bars, legend, left = [], [], 0.0
    for at, (label, value, colour) in enumerate(parts):
        share = value / overview.total if overview.total > 0 else 0.0
        width = max(0.0, min(1.0, share)) * WIDTH
        bars.append(element("rect", x=left, y=0, width=float(width), height=HEIGHT, fill=colour))
        y = HEIGHT + LEGEND_LINE * (at + 1)
        legend.append(
            element("rect", x=0, y=y - 12, width=12, height=12, fill=colour)
            + element("text", f"{escape(label)}: {value:.0f} us ({100 * share:.2f} %)", x=20, y=y)
        )
        left += width
    height = HEIGHT + LEGEND_LINE * (len(parts) + 1)
    title = f"{name}: {overview.total:.0f} us an iteration"
    page = (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title></head>\n'
        f"<body><h1>{escape(title)}</h1>\n"
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'font-family="sans-serif" font-size="14">\n' + "\n".join(bars + legend) + "\n</svg></body></html>\n"
    )
    return page.encode(errors=NAME_BYTES)
