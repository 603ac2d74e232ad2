"""The page of a simulated network: each chart has the run's own figures, and a browser draws all of them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from simulation.cli import main
from simulation.network.packet_view import view_of
from simulation.network.page import POINTS, html
from tests.browser import browser, needs_browser
from tests.pages import charts_of
from tests.simulation.network import test_jobs
from tests.simulation.network.recordings import request, simulated

fabric = test_jobs.fabric


def words(fabric: Path) -> list[str]:
    return ["-n", str(fabric), "--op", "AllToAll", "--size", "400K", "--send-lat", "0"]


@pytest.mark.parametrize("routing", ["ecmp", "spread"])
def test_the_flow_level_fills_the_page_of_the_packet_level(
    routing: str, fabric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its figures are those of the other files."""
    level = ["--level", "flow", "--routing", routing, "-r", f"{tmp_path}/", "--dialect", "simai"]
    assert main(["network", *words(fabric), *level]) == 0
    text = (tmp_path / "network.html").read_text()
    charts = {chart["title"]: chart for chart in charts_of(text)}
    assert [*charts] == ["What each rank did", "The ten busiest links", "Busy links over time", "How long flows took"]
    flows = [[*map(int, line.split()[4:7])] for line in (tmp_path / "fct.txt").read_text().splitlines()]
    took = [each[2] / 1000 for each in flows]
    (series,) = charts["How long flows took"]["panels"][0]["series"]
    assert series["x"] == pytest.approx(np.quantile(took, np.linspace(0, 1, POINTS)).tolist(), rel=1e-3)
    ends = max(start + lasted for _size, start, lasted in flows) / 1000
    total = float((tmp_path / "EndToEnd.csv").read_text().rsplit(",", 1)[1])
    assert charts["What each rank did"]["x"]["to"] == pytest.approx(total, rel=1e-3)
    (waited,) = [its for its in charts["What each rank did"]["spans"] if its]
    assert [row for row, _begin, _end in waited] == [0, 1, 2, 3]
    table = [line.split(",") for line in (tmp_path / "links.csv").read_text().splitlines()[1:11]]
    bars = charts["The ten busiest links"]["bars"]
    assert [bar["name"] for bar in bars] == [cells[0] for cells in table]
    means = [sum(map(float, cells[3:])) / len(cells[3:]) for cells in table]
    assert [bar["value"] for bar in bars] == pytest.approx(means, abs=0.1)
    (last,) = re.findall("<tr><td>(.*?)</tr>", text)
    _flow, _waited, begin, lasted, *_link = last.split("</td><td>")
    assert float(begin) + float(lasted) == pytest.approx(ends, abs=0.02)


@pytest.mark.parametrize("level", ["packet", "flow"])
def test_a_rank_that_has_computed_waits_for_its_weight_gradients(
    level: str, fabric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two rows of 30 us: the second's gradients are exchanged beside the first's, the rest of them afterwards."""
    rows = [f"{name} 10000 NONE 0 10000 NONE 0 10000 ALLREDUCE 1000000" for name in ("one", "two")]
    job = test_jobs.workload(tmp_path / "job.txt", rows, "pp: 1 vpp: 1 ga: 1 all_gpus: 2 pp_comm: 0")
    trace = tmp_path / "trace.json"
    options = ["-w", f"{job}@0-1", "--level", level, "-r", f"{tmp_path}/", "--trace", str(trace), "--json"]
    assert main(["network", "-n", str(fabric), *options]) == 0
    end = json.loads(capsys.readouterr().out)["iteration_us"]
    (chart,) = [
        each for each in charts_of((tmp_path / "network.html").read_text()) if each["title"] == "What each rank did"
    ]
    spans = dict(zip(chart["kinds"], chart["spans"], strict=True))
    assert [*spans] == ["computation", "DP"] and end > 100
    for rank in (0, 1):
        (computed,), (waited,) = ([each[1:] for each in its if each[0] == rank] for its in spans.values())
        assert computed == pytest.approx([0, 60], abs=0.1) and waited == pytest.approx([60, end], abs=0.2)
    events = [each for each in json.loads(trace.read_text())["traceEvents"] if each["ph"] == "X" and each["pid"] == 0]
    waits = [each for each in events if each["tid"] == 1]
    assert [each["cat"] for each in waits] == ["DP", "DP"] and len([each for each in events if each["tid"] == 2]) == 2
    assert sum(each["dur"] for each in waits) == pytest.approx(end - 60, abs=0.2)


@pytest.fixture
def page(fabric: Path, tmp_path: Path) -> Path:
    """The page of an all-to-all among four GPUs."""
    found = request([*words(fabric)])
    run = simulated(found)
    file = tmp_path / "network.html"
    file.write_text(html(found, view_of(found, run), [10.0, 11.0, 13.0], "first line\n<b>second</b>"))
    charts = {chart["title"]: chart for chart in charts_of(file.read_text())}
    took = np.sort((run.end - run.start)[run.end >= 0]) / 1000
    (flows,) = charts["How long flows took"]["panels"][0]["series"]
    assert flows["x"][0] == pytest.approx(took[0], rel=1e-3) and flows["x"][-1] == pytest.approx(took[-1], rel=1e-3)
    assert charts["What each rank did"]["rows"] == ["0", "1", "2", "3"]
    assert all(0 < bar["value"] <= 100 for bar in charts["The ten busiest links"]["bars"])
    assert charts["How sure"]["panels"][0]["lines"] == [{"name": "median", "value": 11}]
    assert "<b>second" not in file.read_text()
    return file


@needs_browser
def test_a_browser_draws_what_the_run_found(page: Path) -> None:
    with browser() as opened:
        opened.open(page)
        assert opened.draw_all() == 5
        drawn = opened.value("[...document.querySelectorAll('figure.chart')].map((f) => Number(f.dataset.drawn))")
        assert all(drawn) and opened.complaints == [] and opened.requests == [page.as_uri()]
