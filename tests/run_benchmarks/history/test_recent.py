"""A report shows what the history knows of its cases; without a history that can be read it is written, too."""

import sqlite3
from pathlib import Path

import pytest

from run_benchmarks.console.console import LOG
from run_benchmarks.history.recent import drawn
from run_benchmarks.history.recording import FILE, default_url, rebuild
from run_benchmarks.report.html import write_report
from run_benchmarks.results.loading import load_run
from tests.pages import charts_of
from tests.run_benchmarks.calling import call
from tests.run_benchmarks.history.test_history import OWNER, run_of
from tests.run_benchmarks.results.recorded_runs import KEY, a_run, on_disk

LEVELS = [100.0, 101.0, 99.5, 100.5, 98.0]


def kept(root: Path, levels: list[float]) -> list[Path]:
    """The folders of runs of these levels, which are in the history of their result folder."""
    folders = [on_disk(root, run_of(number, level)) for number, level in enumerate(levels)]
    assert [problem for _, problem in rebuild(root, OWNER, default_url(root))] == [""] * len(levels)
    return folders


def drawn_of(page: Path) -> list[list[float]]:
    """The runs in each chart of the key figure."""
    panels = [panel for chart in charts_of(page.read_text(encoding="utf-8")) for panel in chart.get("panels", [])]
    return [each["y"] for panel in panels for each in panel["series"] if each["name"] == KEY]


def test_a_report_draws_the_runs_of_its_case_from_five_on(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    few, many = (kept(tmp_path / name, LEVELS[:count]) for name, count in (("few", 4), ("many", 5)))
    assert call("report", str(few[-1]), "--output", str(page)).exit_code == 0
    assert drawn_of(page) == []
    asked = ["report", str(many[-1]), "--output", str(page)]
    assert "is there with other content; give --force" in call(*asked).complaint and drawn_of(page) == []
    assert call(*asked, "--force").exit_code == 0
    assert drawn_of(page) == [pytest.approx(LEVELS)]
    off = tmp_path / "test_conf.py"
    off.write_text('HISTORY = "off"\n')
    asked = ["--test-conf", str(off), "report", str(many[-1]), "--output", str(page), "--force"]
    assert call(*asked).exit_code == 0 and drawn_of(page) == []


def test_the_page_of_a_run_that_ends_has_the_runs_before_it(tmp_path: Path) -> None:
    kept(tmp_path, LEVELS)
    run = load_run(on_disk(tmp_path, run_of(9, 70.0)))
    page = write_report(run.folder, run.record, run.rounds["PAIRS"], default_url(tmp_path))
    assert drawn_of(page) == [pytest.approx(LEVELS)]


def test_runs_of_other_settings_are_no_history_of_a_run(tmp_path: Path) -> None:
    kept(tmp_path, LEVELS)
    other = a_run("run20261201000000", [70.0] * 3, train_steps=7)
    page = tmp_path / "page.html"
    asked = ["report", str(on_disk(tmp_path, other)), "--output", str(page)]
    assert call(*asked).exit_code == 0 and drawn_of(page) == []


def test_a_database_that_hangs_hangs_no_report(tmp_path: Path) -> None:
    folders = kept(tmp_path, LEVELS)
    with sqlite3.connect(tmp_path / FILE, isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        found = drawn(folders, default_url(tmp_path), "en", seconds=1.0)
    assert found == ({}, "its database did not answer within 1 s")


def test_a_history_that_cannot_be_read_costs_no_report_and_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(LOG, "warning", lambda text, *words: said.append(text % words))
    run = load_run(on_disk(tmp_path, run_of(0, 100.0)))
    write_report(run.folder, run.record, run.rounds["PAIRS"], default_url(tmp_path))
    assert said == [], "a first run has none, and lacks nothing"
    (tmp_path / FILE).write_text("no database")
    page = write_report(run.folder, run.record, run.rounds["PAIRS"], default_url(tmp_path))
    assert "Nothing to do: all cases passed" in page.read_text(encoding="utf-8") and drawn_of(page) == []
    (warning,) = said
    assert warning.startswith("The report is without the history: history sqlite") and "not a database" in warning
