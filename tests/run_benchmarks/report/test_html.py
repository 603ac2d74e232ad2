"""report.html: complete, and nothing from a log or a host is taken for markup."""

import dataclasses
import os
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from run_benchmarks.commands.showing import _figures
from run_benchmarks.console.language import ENGLISH
from run_benchmarks.report.host_charts import monitors_chart
from run_benchmarks.report.html import _template, write_page, write_report
from run_benchmarks.report.overview import _machines, overview
from run_benchmarks.results.curves import RoundCurves, node_curves
from run_benchmarks.results.loading import LoadedRun
from run_benchmarks.results.records import Verdict
from run_benchmarks.results.remarks import Integrity, Remark
from run_benchmarks.results.samples.timeline import Timeline
from tests.pages import charts_of
from tests.run_benchmarks.results.recorded_runs import a_run
from tests.run_benchmarks.results.rounds import (
    START_MS,
    STEP,
    host_record,
    node_record,
    outcome,
    round_record,
    run_record,
)

EVIL = "<script>alert(1)</script>\"'&"
VOID = {"meta", "br", "link"}


class Page(HTMLParser):
    """The elements and the text of a page; fails where tags do not close in turn."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.file = file
        self._open: list[str] = []
        self.feed(file.read_text(encoding="utf-8"))
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name == "href"]
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self.text += " "
        assert self._open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        if self._open[-1:] not in (["script"], ["style"]):
            self.text += data


def test_nothing_of_a_host_controls_a_terminal_or_reverses_the_page(tmp_path: Path) -> None:
    """Also what reaches the page as an object or in a picture, not as a text."""
    evil = "\x1b]52;c;YQ==\x07\u202e\x9b2J"
    remarks = [Remark(kind="throttled", host="node1", detail=f"device 0: {evil}")]
    record = round_record(tmp_path, integrity=Integrity(remarks=remarks, unwatched=[evil]), warnings=[evil])
    page = write_report(tmp_path, run_record({evil: 1.5}), [record]).read_text()
    assert not set(page) & set("\x1b\x07\u202e\x9b"), page
    assert page.count(r"\x1b]52;c;YQ==\x07\u202e\x9b2J") >= 4 and "device 0: \\x1b" in page
    template = _template().environment.from_string("{{ words }}{{ number }}")
    drawn = template.render(words=[evil], number=1.5)
    assert "x1b]52" in drawn and not set(drawn) & set(evil[:1] + "\u202e") and drawn.endswith("1.5")


def test_a_run_that_passed(tmp_path: Path) -> None:
    record = round_record(tmp_path / "files")
    path = write_report(tmp_path, run_record({"busbw_GBps": 1.5}), [record])
    assert path == tmp_path / "report.html"
    page = Page(path)
    text = " ".join(page.text.split())
    for part in (
        "run20261121191924 · 2026-09-21 14:13 UTC",
        "✓ pass Nothing to do: all cases passed.",
        "· 2.5 s · vendor",
        "code abc, revision 0123456789ab-dirty",
        "node1 10.0.0.1 Linux 6.1 - 0 -0.5",
        "bytes p50, us p95, us algbw, GB/s busbw, GB/s data 1024 10.5 12 0.1 0.15 pass",
        "25 / 25 40 rapl 95.5 W, 955 J",
        "ipmi: no <b>device</b>",
    ):
        assert part in text
    assert "ONE/round1/node1_noderank0/rank0.out.log" in page.links


def test_without_monitors_and_steps(tmp_path: Path) -> None:
    bare = node_record(outcome(tmp_path / "bare"), monitor=None, exit_code=None, missing=["monitor.jsonl"], files={})
    record = round_record(tmp_path / "files", nodes=[bare], steps=[], verdict="fail", reason="no sign of it")
    page = Page(write_report(tmp_path, run_record({}, verdict="fail", reason="no sign of it"), [record]))
    assert "no monitor record" in page.text
    assert "missing: monitor.jsonl" in page.text
    assert page.text.count("no sign of it") == 2, "on the case's line and in its section"


def test_a_host_whose_clock_is_wrong_makes_the_axis_no_longer(tmp_path: Path) -> None:
    """Of a clock that stands in 1970 a chart had a point for each second since then, in each series."""
    record = round_record(tmp_path)
    made = []
    for host, ahead in (("node1", 0), ("node2", -100_000_000)):
        timeline = Timeline()
        for second in range(3):
            timeline.take("cpu", START_MS + 1000 * second, {"utilization_percent": 50.0})
        found = node_curves(host, 0, timeline, -ahead / 1000, None)
        assert found is not None
        made.append(found)
    chart = monitors_chart(RoundCurves(nodes=made), record, ())
    assert chart is not None and len(chart.xs or ()) == 3
    assert [series.name for panel in chart.panels for series in panel.series] == ["node1"]
    assert chart.sentence.endswith("Left out, their times are not those of the round: 1 of the hosts.")
    assert monitors_chart(RoundCurves(nodes=made[1:]), record, ()) is None
    of_decades = record.model_copy(update={"started_ms": 0})
    near = made[0].model_copy(update={"started_ms": 0, "host": "near"})
    chart = monitors_chart(RoundCurves(nodes=[near, made[0]]), of_decades, ())
    assert chart is not None and len(chart.xs or ()) == 3, "not one for each second of them"


def test_a_page_that_cannot_show_what_hosts_sent_is_written_without_it(tmp_path: Path) -> None:
    remark = Remark(kind="outage", host="node1", detail="no answer", from_ms=10**400, to_ms=10**400)
    record = round_record(tmp_path / "files", integrity=Integrity(remarks=[remark]))
    text = Page(write_report(tmp_path, run_record({}), [record])).text
    assert "its measurements cannot be shown: round.json has them" in text and "all cases passed" in text


def test_a_page_is_written_beside_a_folder_whose_name_is_no_text(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"runs\xff")
    folder.mkdir()
    run = LoadedRun(folder=folder, record=run_record({}), rounds={"ONE": [round_record(tmp_path / "files")]})
    write_page([run], tmp_path / "page.html")
    assert "runs%FF/ONE/round1/node1_noderank0/rank0.out.log" in Page(tmp_path / "page.html").links


def test_a_figure_of_0_percent_is_as_far_below_as_the_bar_goes(tmp_path: Path) -> None:
    run = LoadedRun(folder=tmp_path, record=run_record({}), rounds={"ONE": []})
    (line,) = overview([run]).lines
    assert dataclasses.replace(line, percent=0.0).bar == (0.0, 55.0) and line.bar == (55.0, 1.0)


def test_the_rate_after_the_warm_up_stands_below_a_key_figure_from_which_it_differs(tmp_path: Path) -> None:
    made = a_run("run20261101000000", [100.0, 101.0])
    (case,) = made.record.cases
    assert case.key is not None
    case = case.model_copy(update={"key": case.key.model_copy(update={"steady": 234.0})})
    run = LoadedRun(folder=tmp_path, record=made.record.model_copy(update={"cases": [case]}), rounds={case.name: []})
    write_page([run], tmp_path / "page.html")
    assert "100.5 samples/s 234 after the warm-up" in " ".join(Page(tmp_path / "page.html").text.split())
    assert _figures(case.key)[1] == "100.5 samples/s (100 to 101); 234 after the warm-up"


def test_a_host_that_was_lost_in_the_latest_run_keeps_its_devices(tmp_path: Path) -> None:
    known, lost = host_record("h1", devices=["H100"] * 8), host_record("h1", devices=[])
    runs = [
        LoadedRun(folder=tmp_path, record=run_record({}).model_copy(update={"hosts": [host]}), rounds={})
        for host in (known, lost)
    ]
    assert _machines(runs, 1, ENGLISH) == "1 host, 8 devices"


def test_a_run_without_a_round(tmp_path: Path) -> None:
    page = Page(write_report(tmp_path, run_record({}, rounds=[], verdict="skipped", reason="not run"), []))
    assert "not run" in page.text


def test_a_run_that_ended_before_its_first_case_or_before_its_ranks_claims_nothing(tmp_path: Path) -> None:
    record = run_record({}, verdict="aborted").model_copy(update={"cases": [], "hosts": [], "verdict": Verdict.ABORTED})
    assert "Run it again, it was not finished: nothing was run." in Page(write_report(tmp_path, record, [])).text
    early = round_record(tmp_path / "files", nodes=[], steps=[], phase_seconds={}, verdict="fail", reason="no image")
    page = write_report(tmp_path, run_record({}, verdict="fail", reason="no image"), [early])
    text = Page(page).text
    assert "Look into ONE: 1 of 1 case failed." in text and "1 host with 2 ranks" in text
    assert charts_of(page.read_text()) == [] and "Hosts: CPU" not in text


def test_nothing_from_a_log_or_a_host_is_markup(tmp_path: Path) -> None:
    failure = {"host": EVIL, "rank": 0, "exit_code": 1, "signal": None, "message": EVIL, "log_tail": EVIL}
    node = node_record(
        outcome(tmp_path / "node"), host=EVIL, interface=EVIL, files={EVIL: {"size": 1, "sha256": EVIL}}, missing=[EVIL]
    )
    record = round_record(
        tmp_path / "files",
        nodes=[node],
        verdict="fail",
        reason=EVIL,
        warnings=[EVIL],
        first_failure=failure,
        steps=[{**STEP, "correct": EVIL, "size_bytes": EVIL}],
    )
    run = run_record({EVIL: EVIL}, verdict="fail", reason=EVIL, config_file=EVIL)
    path = write_report(tmp_path, run, [record])
    page = Page(path)
    assert page.tags.count("script") == len(charts_of(path.read_text())) + 2, "the charts' data, ECharts and draw.js"
    assert "<script>alert" not in path.read_text()
    assert page.text.count("alert(1)") >= 11
    assert not [link for link in page.links if "<" in link or '"' in link]


@pytest.mark.parametrize(
    "steps",
    [
        [{"loss": 1.5}],
        [{"size_bytes": 8}],
        [{**STEP, "time_us": 5}],
        [{**STEP, "time_us": {"p50": 1}}, STEP],
        [{"loss": 2}, STEP],
    ],
)
def test_steps_of_other_workloads_do_not_break_the_page(tmp_path: Path, steps: list[dict[str, Any]]) -> None:
    page = Page(write_report(tmp_path, run_record({}), [round_record(tmp_path / "files", steps=steps)]))
    assert page.text.count("busbw, GB/s") == (1 if STEP in steps else 0)
    assert page.text.count("0.15") == (1 if STEP in steps else 0)
