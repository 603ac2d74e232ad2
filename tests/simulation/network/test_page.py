"""The page of a simulated network: each chart has the run's own figures, and a browser draws all of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from simulation.network.page import html
from tests.browser import browser, needs_browser
from tests.pages import charts_of
from tests.simulation.network import test_jobs
from tests.simulation.network.recordings import request, simulated

fabric = test_jobs.fabric


@pytest.fixture
def page(fabric: Path, tmp_path: Path) -> Path:
    """The page of an all-to-all among four GPUs."""
    found = request(["-n", str(fabric), "--op", "AllToAll", "--size", "400K", "--send-lat", "0"])
    run = simulated(found)
    file = tmp_path / "network.html"
    file.write_text(html(found, run, [10.0, 11.0, 13.0], "first line\n<b>second</b>"))
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
