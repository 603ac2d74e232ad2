"""report.html in a real browser: what a manager sees first, at any width, in both schemes, by keys and on paper."""

import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.finding import PartFinding
from run_benchmarks.report.html import write_page
from run_benchmarks.results.drain import drain_list
from run_benchmarks.results.loading import LoadedRun, load_run
from tests.browser import Browser, browser, needs_browser
from tests.pages import charts_of
from tests.run_benchmarks.report.picture import PICTURE, lost_share, page_of, screen
from tests.run_benchmarks.report.sample import write_sample

pytestmark = needs_browser
EVIL = "</script><script>document.title='run'</script><img src=x onerror=\"document.title='run'\">\"'{a|b}\u202e"
TITLE = "ClusterDyno run20261123091400"


@pytest.fixture(scope="module")
def opened() -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return page_of(tmp_path_factory.mktemp("report"))


@pytest.mark.parametrize(
    ("width", "dark"), [(400, False), (1400, True), pytest.param(1600, False, marks=pytest.mark.nightly)]
)
def test_every_chart_has_data_and_nothing_complains_loads_or_overflows(
    opened: Browser, page: Path, width: int, dark: bool
) -> None:
    opened.complaints.clear()
    opened.requests.clear()
    opened.open(page, width=width, dark=dark)
    charts = charts_of(page.read_text())
    assert opened.draw_all() == len(charts) > 30
    drawn = opened.value("[...document.querySelectorAll('figure.chart')].map((f) => Number(f.dataset.drawn))")
    assert all(drawn), [chart["title"] for chart, count in zip(charts, drawn, strict=True) if not count]
    assert opened.complaints == [] and opened.requests == [page.as_uri()]
    assert opened.value("document.documentElement.scrollWidth") <= width
    background = opened.value("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") != dark
    assert "#79a5ee" in opened.value("document.querySelector('.plot svg').outerHTML") or not dark


def test_ten_cases_end_on_the_first_screen_failed_ones_first_below_the_drain_list(opened: Browser, page: Path) -> None:
    opened.open(page)
    assert opened.value("document.querySelector('.folded').getBoundingClientRect().top") < 900
    words = opened.value(
        "[...document.querySelectorAll('.cases tbody .badge, .cases tr .badge')].map((e) => e.textContent)"
    )
    assert [word.split()[1] for word in words] == ["failed", "degraded", "degraded", *["pass"] * 7]
    headline = opened.value("document.querySelector('h1').textContent")
    assert "Take 3 of 64 hosts out of service: 1 of 10 cases failed, 2 of 10 cases met a bad part" in headline
    drain = opened.value("[...document.querySelectorAll('.drain tr')].map((row) => row.textContent)")
    assert len(drain) == 3 and "node42" in drain[1] and "88 °C" in drain[1] and "→ check its cooling" in drain[1]
    counts = "['healthy', 'degraded', 'lost'].map((s) => document.querySelectorAll('.hosts .' + s).length)"
    assert opened.value(counts) == [61, 2, 1]
    bars = opened.value("[...document.querySelectorAll('svg.bar')].map((e) => e.getAttribute('aria-label'))")
    assert bars[:2] == ["92.1 % of what is expected", "88.6 % of what is expected"]


def test_the_picture_of_the_readme_shows_what_the_page_shows(opened: Browser, page: Path) -> None:
    now = screen(opened, page)
    again = "python -m tests.run_benchmarks.report.picture"
    assert lost_share(opened, PICTURE.read_bytes(), now) < 0.05, f"docs/images/report.png is of another page: {again}"
    opened.open(page, width=1400, height=1180)
    opened.value("for (const plot of document.querySelectorAll('.plot')) plot.style.visibility = 'hidden'")
    opened.wait("document.querySelectorAll('.plot svg').length >= 2")
    without = opened.screenshot()
    assert lost_share(opened, now, without) > 0.05, "a page without its charts is another one"


def test_all_of_it_is_reached_by_keys(opened: Browser, page: Path) -> None:
    opened.open(page)
    stops = []
    for _ in range(26):
        opened.press("Tab")
        stops.append(opened.value("document.activeElement.tagName + ' ' + document.activeElement.className"))
    assert stops.count("A ") == 10, "each case's line leads to its section"
    assert "SUMMARY " in stops and "DIV plot" in stops
    outline = opened.value("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"


@pytest.mark.nightly
def test_it_prints_with_all_its_charts_as_vectors(opened: Browser, page: Path) -> None:
    opened.open(page, dark=True)
    printed = opened.pdf()
    assert 5 < len(re.findall(rb"/Type\s*/Page\b", printed)) < 60
    streams = (zlib.decompressobj() for _ in iter(int, 1))
    drawn = b""
    for stream, match in zip(streams, re.finditer(rb"stream\r?\n", printed), strict=False):
        try:
            drawn += stream.decompress(printed[match.end() :])
        except zlib.error:
            continue
    assert len(re.findall(rb"[\d.]+ [\d.]+ l\b", drawn)) > 2000, "the lines of charts that were never scrolled to"
    assert opened.value("document.documentElement.classList.contains('printing')") is False


def test_a_hostile_name_metric_or_log_line_runs_nothing_and_shows_as_text(opened: Browser, tmp_path: Path) -> None:
    run = load_run(write_sample(tmp_path, hosts=3, devices=2, seconds=60, evil=EVIL))
    page = tmp_path / "evil.html"
    write_page([run], page)
    opened.complaints.clear()
    opened.requests.clear()
    opened.open(page)
    opened.draw_all()
    assert opened.value("document.title") == TITLE
    assert opened.value("document.querySelectorAll('img').length") == 0
    assert opened.complaints == [] and opened.requests == [page.as_uri()]
    shown = opened.value("document.body.innerText")
    assert shown.count("<script>document.title='run'</script>") > 20 and "\u202e" not in page.read_text()


def test_of_long_lists_the_browser_takes_in_what_is_seen_and_paper_all(opened: Browser, tmp_path: Path) -> None:
    run = load_run(write_sample(tmp_path, hosts=3, devices=1, seconds=10))
    hosts = [f"host{number:03d}" for number in range(300)]
    findings = [
        PartFinding(
            part="host", hosts=(host,), kind="intermittent", evidence=f"slow: {host}", suggested_action="test it",
            drained_hosts=(host,), sentence=f"{host} is slow",
        )
        for host in hosts
    ]  # fmt: skip
    told = {"findings": findings, "warnings": [f"odd: {host}" for host in hosts]}
    rounds = {name: [each.model_copy(update=told) for each in records] for name, records in run.rounds.items()}
    noted = [case.model_copy(update={"remarks": hosts}) for case in run.record.cases]
    record = run.record.model_copy(update={"cases": noted, "drain": drain_list(rounds)})
    page = tmp_path / "long.html"
    write_page([LoadedRun(folder=run.folder, record=record, rounds=rounds)], page)
    opened.complaints.clear()
    opened.open(page)
    assert page.read_text().count("slow: host299") > 10
    assert opened.value("document.querySelectorAll('*').length") < 6000, "300 hosts in 10 rounds are 80,000 elements"
    listed = "document.querySelector('.drained').innerText"
    assert "host000" in opened.value(listed) and "host299" not in opened.value(listed)
    opened.value("document.querySelector('.drained').scrollTop = 1e6")
    opened.wait(f"{listed}.includes('host299')")
    assert "host000" not in opened.value(listed) and opened.complaints == []
    opened.value("dispatchEvent(new Event('beforeprint'))")
    assert "host000" in opened.value(listed) and "host299" in opened.value(listed)
