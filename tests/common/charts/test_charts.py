"""Charts of pages: their data is checked, nothing in it is markup, and a real browser draws every kind of chart."""

import hashlib
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from common.charts.chart import (
    KINDS,
    Area,
    Axis,
    Bar,
    Bars,
    Chart,
    Curves,
    Heat,
    Line,
    Panel,
    Series,
    Spans,
    chart_json,
    thinned,
)
from common.charts.page import LIBRARY, document, figure
from tests.browser import browser, needs_browser

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>{a|b}\u202e"
ROOT = Path(__file__).parents[3]


def curves(**more: Any) -> Curves:
    line = Series(name="median", y=[1.0, None, 3.0])
    band = Series(name="5 to 95 %", style="band", low=[0.5, 1.5, 2.5], high=[1.5, 2.5, 3.5])
    chosen: dict[str, Any] = {
        "title": "Curves",
        "xs": [1, 2, 3],
        "x": Axis(name="step"),
        "areas": [Area(name="warm-up", start=1, end=2)],
    }
    panels = [Panel(y=Axis(name="tokens/s"), series=[line, band], lines=[Line(name="expected", value=4.0)])]
    return Curves(**chosen | {"panels": panels} | more)


def every_kind(name: str = "a") -> list[Chart]:
    """A chart of each kind, with `name` wherever a text may be anybody's."""
    points = Series(name=name, style="points", y=[1, 2, 3], tone="bad")
    return [
        curves(title=name, sentence=name),
        curves(
            x=Axis(name=name, kind="log", format="bytes"),
            panels=[Panel(y=Axis(name=name, kind="log"), series=[points])] * 3,
        ),
        Heat(title=name, columns=["a", name], rows=["a", name], cells=[[None, 1.0], [2.0, None]], unit=name),
        Spans(title=name, x=Axis(name="ms"), rows=[name, "b"], kinds=[name, "x"], spans=[[(0, 0, 2)], [(1, 1, 3)]]),
        Bars(title=name, unit=name, bars=[Bar(name=name, value=2, text=name)]),
    ]


def test_the_library_is_small_licensed_and_the_file_whose_sum_is_kept() -> None:
    folder = LIBRARY.parent
    said = (folder / "echarts.js.sha256").read_text().split()
    assert said == [hashlib.sha256(LIBRARY.read_bytes()).hexdigest(), "echarts.js"]
    assert LIBRARY.stat().st_size < 750_000
    assert "Apache License" in (folder / "LICENSE").read_text()[:300] and "Apache" in (folder / "NOTICE").read_text()
    packages = json.loads((folder / "package-lock.json").read_text())["packages"]
    assert all(each.get("integrity") for name, each in packages.items() if name), "every package is locked by its hash"


@pytest.mark.nightly
def test_the_library_is_built_again_from_its_lock_file(tmp_path: Path) -> None:
    subprocess.run([ROOT / "scripts" / "charts.sh", tmp_path], check=True, timeout=250)
    assert (tmp_path / "echarts.js").read_bytes() == LIBRARY.read_bytes()


def test_no_text_of_a_chart_ends_the_script_that_holds_it_or_controls_a_terminal() -> None:
    for chart in every_kind(EVIL):
        drawn = figure(chart)
        assert "<script>" not in drawn and "<img" not in drawn and drawn.count("</script>") == 1
        assert "\u202e" not in drawn
        assert json.loads(chart_json(chart))["kind"] == KINDS[type(chart)]


@pytest.mark.parametrize(
    ("series", "complaint"),
    [
        (Series(name="s", y=[1.0]), r"\[1\] values over 3 places"),
        (Series(name="s", style="band", low=[1.0] * 3, high=[1.0] * 2), r"\[2, 3\] values over 3 places"),
        (Series(name="s", x=range(1001), y=range(1001)), "1001 points, at most 1000"),
    ],
)
def test_a_chart_whose_values_do_not_fit_its_axis_is_refused(series: Series, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        figure(curves(panels=[Panel(y=Axis(name="y"), series=[series])]))


def test_what_is_no_number_is_a_gap() -> None:
    series = Series(name="s", y=[float("nan"), float("inf"), 1234567.0])
    assert json.loads(chart_json(curves(panels=[Panel(y=Axis(name="y"), series=[series])])))["panels"][0]["series"][0][
        "y"
    ] == [None, None, 1234600]


def test_thinning_keeps_sums_and_gaps() -> None:
    x, (y, gaps) = thinned(range(1, 11), range(10), [None, None, 4, *[None] * 7], most=4)
    assert x == [3, 6, 9, 10] and y == [1, 4, 7, 9] and gaps == [4, None, None, None]


def test_a_page_without_charts_has_no_script_and_one_with_charts_only_its_own() -> None:
    assert "script" not in document("t", "<p>x</p>")
    page = document("t", figure(curves()))
    assert "unsafe" not in page.split("</style>")[0] and len(re.findall("'sha256-", page)) == 3


@needs_browser
def test_a_browser_draws_every_kind_in_both_schemes_and_runs_nothing_of_a_hostile_name(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(document(EVIL, "".join(map(figure, [*every_kind(), *every_kind(EVIL)]))), encoding="utf-8")
    with browser() as opened:
        for width, dark in ((1600, False), (400, True)):
            opened.open(page, width=width, dark=dark)
            assert opened.draw_all() == 10
            drawn = opened.value("[...document.querySelectorAll('figure.chart')].map((f) => Number(f.dataset.drawn))")
            assert all(drawn), drawn
            assert opened.value("document.querySelectorAll('.plot svg path').length") > 50
            assert opened.value("document.documentElement.scrollWidth") <= width
        opened.scheme(dark=False)
        assert opened.complaints == [] and opened.requests == [page.as_uri()] * 2
        assert opened.value("document.querySelectorAll('img').length") == 0


@needs_browser
def test_keys_step_through_a_chart_and_open_the_table_of_its_numbers(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    long = curves(xs=range(900), areas=[], panels=[Panel(y=Axis(name="y"), series=[Series(name="s", y=range(900))])])
    page.write_text(document("keys", figure(curves()) + figure(long)), encoding="utf-8")
    with browser() as opened:
        opened.open(page)
        opened.draw_all()
        opened.press("Tab")
        opened.press("ArrowRight")
        opened.press("ArrowRight")
        opened.press("ArrowRight")
        assert opened.value("document.querySelector('.live').textContent") == "median 3, 3"
        opened.press("Tab")
        opened.press("Enter")
        assert opened.value("document.activeElement.tagName") == "SUMMARY"
        opened.wait("document.querySelector('figure td') !== null")
        cells = "[...row.cells].map((cell) => cell.textContent)"
        table = f"[...document.querySelectorAll('figure:first-of-type tr')].map((row) => {cells})"
        assert opened.value(table) == [
            ["step", "median", "5 to 95 %"],
            ["1", "1", "0.5 to 1.5"],
            ["2", "–", "1.5 to 2.5"],
            ["3", "3", "2.5 to 3.5"],
        ]
        opened.value("document.querySelectorAll('figure')[1].querySelector('details').open = true")
        opened.wait("document.querySelectorAll('.virtual td').length > 0")
        assert opened.value("document.querySelectorAll('.virtual tr').length") < 80
        opened.value("document.querySelector('.virtual').scrollTop = 1e9")
        opened.wait("document.querySelector('.virtual').textContent.includes('899')")
        assert opened.pdf().startswith(b"%PDF") and opened.complaints == []
