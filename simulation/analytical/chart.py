"""Draws where an iteration's time goes, as a page of bars that loads nothing."""

from common.charts.chart import Bar, Bars
from common.charts.page import document, figure, safe
from simulation.analytical.times import SUMMARY_COLUMNS, Overview

_PARTS = SUMMARY_COLUMNS[1:8]  # not "total exposed comm", which is the sum of others


def chart_page(name: str, overview: Overview) -> bytes:
    """The page."""
    bars = []
    for label, value in zip(_PARTS, overview.values()[:7], strict=True):
        share = value / overview.total if overview.total > 0 else 0.0
        bars.append(Bar(name=label, value=value, text=f"{value:.0f} us ({100 * share:.2f} %)"))
    title = f"{name}: {overview.total:.0f} us an iteration"
    chart = Bars(title="Where the time of an iteration goes", unit="us", bars=bars)
    return document(title, f"<h1>{safe(title)}</h1>\n{figure(chart)}").encode()
