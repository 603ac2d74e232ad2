"""`run.py report`: one page of several runs, and what is refused."""

import re
import shutil
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.pages import charts_of
from tests.run_benchmarks.calling import call
from tests.run_benchmarks.report.sample import write_sample

RUN = ROOT / "run_benchmarks" / "run.py"
HAN = re.compile(r"[\u4e00-\u9fff]")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs of three hosts."""
    root = tmp_path_factory.mktemp("runs")
    first = write_sample(root, hosts=3, devices=1, seconds=30)
    second = root / "run20261124091400"
    shutil.copytree(first, second)
    text = (second / "run.json").read_text()
    (second / "run.json").write_text(text.replace(first.name, second.name).replace("node01", "node77"))
    return [first, second]


def test_two_runs_are_one_page_with_the_hosts_of_both_and_links_to_their_files(runs: list[Path]) -> None:
    page = runs[0].parent / "both.html"
    answer = call("report", *map(str, runs), "--output", str(page))
    assert answer.exit_code == 0 and "Written:" in answer.output, answer.output
    text = page.read_text()
    assert text.count("<section") == 22 and "20 cases" in text and "node77" in text
    assert f"{runs[1].name} · LLAMA2_70B" in text
    assert "Take 2 of 4 hosts out of service" in text, "both runs say so of the same two"
    assert "4 hosts, 4 devices · 20 cases" in text and "· 5 h 22 min ·" in text, "not the day between the runs"
    assert f'href="{runs[1].name}/LLAMA2_70B/round1/node00_noderank0/rank0.out.log"' in text


class Headings(HTMLParser):
    """The texts of headings, columns and folds outside of what a benchmark itself shows."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self._open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open.append("pair" if dict(attrs).get("class") == "pair" else tag)
        if tag in ("h1", "h3", "th", "summary", "caption") and "pair" not in self._open:
            self.found.append("")

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() not in (tag, "pair" * (tag == "div")):
            pass

    def handle_data(self, data: str) -> None:
        if {"h1", "h3", "th", "summary", "caption"} & {*self._open} and "pair" not in self._open:
            self.found[-1] += data


def test_headings_sentences_and_charts_are_chinese_where_that_is_asked_for(runs: list[Path], tmp_path: Path) -> None:
    page, english = tmp_path / "zh.html", tmp_path / "en.html"
    for words in ((str(page), "--lang", "zh"), (str(english),)):
        asked = ["report", str(runs[0]), "--output", *words]
        assert call(*asked).exit_code == 0
    text = page.read_text(encoding="utf-8")
    assert '<html lang="zh">' in text
    found, before = Headings(text).found, Headings(english.read_text(encoding="utf-8")).found
    assert len(found) == len(before) > 100
    assert {each.strip() for each in found if not HAN.search(each)} == {"Docker"}
    assert not any(HAN.search(each) for each in before)
    titles = {chart["title"] for chart in charts_of(text)}
    assert {"各步的吞吐量与损失", "主机监控", "该轮的各阶段"} <= titles


def test_every_mistake_is_said_at_once_and_nothing_is_written(runs: list[Path], tmp_path: Path) -> None:
    damaged = tmp_path / "run20261124091401"
    shutil.copytree(runs[0], damaged)
    (damaged / "run.json").write_text("{}")
    answer = call("report", str(damaged), "--output", str(tmp_path))
    assert answer.exit_code == 2
    assert "is no RunRecord" in answer.stderr and "is a folder; expected a file" in answer.stderr


def test_a_sealed_run_is_not_changed(runs: list[Path]) -> None:
    (runs[0] / "seal.json").write_text("{}")
    answer = call("report", str(runs[0]), "--output", str(runs[0] / "report.html"))
    assert answer.exit_code == 2 and "lies in a sealed run" in answer.stderr
    assert not (runs[0] / "report.html").exists()


# Runs a script and prints each file that it opens to read, by an audit hook of Python.
WATCHED = """
import runpy, sys
opened = []
sys.addaudithook(lambda event, what: opened.append(str(what[0])) if event == "open" else None)
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as ended:
    assert not ended.code, ended.code
print(*opened, sep="\\n")
"""


def test_a_report_opens_no_log_and_each_record_and_file_of_curves_once(runs: list[Path]) -> None:
    logs = [
        runs[0] / "LLAMA2_70B" / "round1" / "node00_noderank0" / name for name in ("rank0.out.log", "monitor.jsonl")
    ]
    for log in (*logs, runs[0] / "run.log"):
        log.parent.mkdir(exist_ok=True)
        log.write_text("a line\n")
    page = runs[0].parent / "watched.html"
    argv = [sys.executable, "-c", WATCHED, str(RUN), "report", str(runs[0]), "--output", str(page)]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    opened = Counter(line for line in said.splitlines() if line.startswith(f"{runs[0]}/"))
    assert {Path(name).name for name in opened} == {"run.json", "round.json", "curves.json"}
    assert len(opened) == 21 and set(opened.values()) == {1}, opened
