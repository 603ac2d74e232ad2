"""Writes a page of charts as one file that loads nothing, and says so to the browser (Content-Security-Policy).

The policy allows the page's own scripts and style by their hashes, and nothing else: no markup in a text runs.
"""

import base64
import functools
import hashlib
from html import escape
from pathlib import Path

from common.charts.chart import Chart, chart_json
from common.printable import printable

HERE = Path(__file__).parent
LIBRARY, DRAW, STYLE = HERE / "vendored" / "echarts.js", HERE / "draw.js", HERE / "page.css"


def figure(chart: Chart, numbers: str = "Numbers") -> str:
    """The chart as an element of a page: its title and sentence, its place, its table under `numbers`, its data.

    Raises:
        ValueError: as for `chart_json`.
    """
    title, sentence = safe(chart.title), safe(chart.sentence)
    return (
        f'<figure class="chart"><figcaption><b>{title}</b>{sentence}</figcaption>'
        f'<div class="plot" role="img" tabindex="0" aria-label="{title}. {sentence}"></div>'
        f'<span class="live" aria-live="polite"></span>'
        f'<details><summary>{safe(numbers)}</summary><div class="numbers" tabindex="0"></div></details>'
        f'<script type="application/json">{chart_json(chart)}</script></figure>'
    )


def safe(text: str) -> str:
    """Text of anybody as text of a page, where it controls neither a browser nor a terminal."""
    return escape(printable(text), quote=True)


def document(title: str, body: str, *, lang: str = "en", style: str = "") -> str:
    """The whole page. `body` is markup, `style` is added to that of all pages.

    Without a chart and a long list (`<template class="long">` in the `.scroll` of a table or `ul`, whose rows come into
    the page when they are seen) no script is in it.
    """
    css = _text(STYLE) + style
    scripts = [_text(DRAW)] if '<template class="long"' in body else []
    if '<figure class="chart"' in body:
        scripts = [_text(LIBRARY), _text(DRAW)]
    policy = f"default-src 'none'; style-src '{_hash(css)}'; base-uri 'none'; form-action 'none'"
    if scripts:
        policy += f"; script-src {' '.join(repr(_hash(script)) for script in scripts)}"
    return (
        f'<!doctype html>\n<html lang="{lang}"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{safe(title)}</title>\n'
        f"<style>{css}</style></head>\n<body>\n{body}\n"
        + "".join(f"<script>{script}</script>\n" for script in scripts)
        + "</body></html>\n"
    )


@functools.cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
