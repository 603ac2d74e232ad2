"""The report of 512 hosts with 8 ranks each and an hour of samples: small, in little memory, with nothing unseen."""

from pathlib import Path

import pytest

from common.charts.chart import MOST_POINTS
from tests.docs.pages import ROOT
from tests.pages import charts_of
from tests.performance.peak import MEGABYTE, run_measured
from tests.run_benchmarks.report.sample import write_sample

MOST_BYTES, MOST_MEGABYTES = 8e6, 500


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_a_page_of_512_hosts_and_an_hour_is_small_and_made_in_bounded_memory(tmp_path: Path) -> None:
    run = write_sample(tmp_path, hosts=512, devices=8, seconds=3600)
    page = tmp_path / "page.html"
    argv = [
        str(ROOT / ".venv/bin/python"),
        str(ROOT / "run_benchmarks/run.py"),
        "report",
        str(run),
        "--output",
        str(page),
    ]
    _, megabytes, exit_code, output = run_measured(argv, ROOT)
    assert exit_code == 0, output
    assert page.stat().st_size < MOST_BYTES and megabytes < MOST_MEGABYTES, (page.stat().st_size / MEGABYTE, megabytes)
    text = page.read_text()
    for chart in charts_of(text):
        for panel in chart.get("panels", []):
            assert all(len(each.get("x") or chart["xs"]) <= MOST_POINTS for each in panel["series"]), chart["title"]
    assert text.count("node42 device 5") >= 1, "the outlier among 4,096 devices has a line of its own"
