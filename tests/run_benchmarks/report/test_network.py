"""The part of report.html that shows a network case."""

from pathlib import Path
from typing import Any

import pytest

from protocol.baseline_file import Baseline
from run_benchmarks.console.language import Words
from run_benchmarks.report.html import write_page, write_report
from run_benchmarks.results.loading import LoadedRun
from run_benchmarks.results.standards import against_baseline, case_baseline
from tests.pages import charts_of
from tests.run_benchmarks.report.test_html import Page
from tests.run_benchmarks.results.network_rounds import a_round, case
from tests.run_benchmarks.results.rounds import run_record
from tests.training.benchmarks.network.synthetic import slowest_member, steps


def _text(tmp_path: Path, found: list[dict[str, Any]], **metrics: Any) -> tuple[str, Page]:
    run = run_record({}).model_copy(update={"cases": [case()]})
    page = Page(write_report(tmp_path, run, [a_round(found, **metrics)]))
    return " ".join(page.text.split()), page


def test_the_matrix_and_the_sentence(tmp_path: Path) -> None:
    text, page = _text(tmp_path, steps("pairs", 4, slowest_member({"node3": 0.5}), noise=0, seed=1))
    assert "host 10.0.0.3: all its pairs are 50 % slow at 16M: NIC, cable or PCIe" in text
    assert "busbw between hosts, GB/s: median of the repeats (interval) 10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4" in text
    assert "10.0.0.1 10 10 to 10 5 5 to 5 10 10 to 10" in text
    chart, *_ = charts_of(page.file.read_text())
    assert chart["kind"] == "heat" and chart["cells"][0] == [None, 10, 5, 10]
    assert "10.0.0.3" in chart["sentence"]


def test_titles_and_columns_of_the_matrix_are_chinese_on_a_chinese_page(tmp_path: Path) -> None:
    found = a_round(steps("pairs", 4, slowest_member({}), noise=0, seed=1))
    run = LoadedRun(
        folder=tmp_path, record=run_record({}).model_copy(update={"cases": [case()]}), rounds={case().name: [found]}
    )
    write_page([run], tmp_path / "page.html", words=Words("zh"))
    page = Page(tmp_path / "page.html")
    assert "主机间总线带宽，GB/s：各次重复的中位数（区间） 10.0.0.1" in " ".join(page.text.split())
    chart, *_ = charts_of(page.file.read_text(encoding="utf-8"))
    assert chart["title"] == "主机间总线带宽，GB/s（行发送，列接收）"


def test_groups_and_bisection(tmp_path: Path) -> None:
    text, _ = _text(tmp_path, steps("halves", 4, slowest_member({}), noise=0, seed=1))
    assert "10.0.0.1-10.0.0.3 10.0.0.1, 10.0.0.3 4 10 10 to 10" in text
    assert "Bisection: 20 GB/s in each direction." in text


def test_a_sweep_is_drawn_and_its_answer_is_text(tmp_path: Path) -> None:
    sweep = [{"size_bytes": 8 << step, "busbw_GBps": 1.0 * step} for step in range(5)]
    text, page = _text(tmp_path, sweep, answer="<b>fine</b>")
    assert "<b>fine</b>" in text
    chart, *_ = charts_of(page.file.read_text())
    assert chart["panels"][0]["series"][0]["y"] == [1, 2, 3, 4]


def test_the_strip_below_a_sweep_is_of_the_baseline_where_the_case_has_one_else_of_the_link(tmp_path: Path) -> None:
    def swept(longer: float) -> list[dict[str, Any]]:
        times = {1 << 20: 100.0 * longer, 1 << 21: 180.0 * longer, 1 << 22: 350.0 * longer}
        same = {"collective": "all_reduce", "group": "all"}
        return [
            same | {"size_bytes": size, "time_us": {"p50": time}, "busbw_GBps": size / time / 1e3}
            for size, time in times.items()
        ]

    plain = case(expected_link="ethernet-100g")
    known = case_baseline("run0", plain, [a_round(swept(1.0))])
    held = against_baseline(
        plain, [a_round(swept(1.25))], Path("good.json"), Baseline(saved_ms=1, cases=(known,)), 10.0
    )
    assert len(held.rows) == 3
    axes = []
    for each in (plain, plain.model_copy(update={"baseline": held})):
        run = run_record({}).model_copy(update={"cases": [each]})
        page = write_report(tmp_path, run, [a_round(swept(1.25))]).read_text(encoding="utf-8")
        (chart,) = (chart for chart in charts_of(page) if chart["title"] == "Bus bandwidth over message size")
        axes.append(chart["panels"][1]["y"]["name"])
    assert axes == ["% of the link limit", "% of baseline"]
    assert chart["panels"][1]["series"][0]["y"] == [80, 80, 80], "a quarter more time is a fifth less bandwidth"
    assert chart["panels"][0]["series"][1]["y"] == [pytest.approx(step["busbw_GBps"], rel=1e-4) for step in swept(1.0)]
