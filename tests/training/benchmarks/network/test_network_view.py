"""The network view of a round: hosts by their configured names, the matrix, and what a host may have sent."""

from typing import Any

import pytest

from tests.training.benchmarks.network.synthetic import slowest_member, steps
from training.benchmarks.driver.protocol.outcome import MeasuredCase, MeasuredRound
from training.benchmarks.network.view import NetworkView, network_view

CASE = MeasuredCase(name="PAIRS", config={"slow_percent": 15.0}, nnodes=4, nproc=2)


def a_round(found: list[dict[str, Any]], **metrics: Any) -> MeasuredRound:
    """A round on 10.0.0.1 to 10.0.0.4."""
    hosts = {node_rank: f"10.0.0.{node_rank + 1}" for node_rank in range(4)}
    return MeasuredRound(number=1, metrics=metrics, steps=found, hosts=hosts)


def view_of(found: list[dict[str, Any]], **metrics: Any) -> NetworkView:
    view = network_view(CASE, a_round(found, **metrics))
    assert view is not None
    return view


def test_the_matrix_is_symmetric_and_marks_the_slow_host() -> None:
    view = view_of(steps("pairs", 4, slowest_member({"node3": 0.5}), noise=0.01, seed=1))
    assert view.hosts == ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4")
    assert view.sentences[0].startswith("host 10.0.0.3: all its pairs are ")
    for row in range(4):
        assert view.matrix[row][row] is None
        for column in range(4):
            cell = view.matrix[row][column]
            assert cell == view.matrix[column][row]
            if cell is not None:
                assert cell.named == (2 in (row, column))
                assert cell.low <= cell.gbps <= cell.high and 0 < cell.share <= 1
                assert cell.gbps == pytest.approx(5 if cell.named else 10, rel=0.1)


def test_other_patterns_have_groups_and_no_matrix() -> None:
    view = view_of(steps("each", 4, slowest_member({}), noise=0.01, seed=1))
    assert view.matrix == () and view.analysis is not None
    assert [cell.group for cell in view.analysis.groups] == ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"]


def test_a_plain_sweep_has_a_plot_and_its_answer() -> None:
    sweep = [{"size_bytes": 8 << step, "busbw_GBps": 1.0 * step} for step in range(5)]
    view = view_of(sweep, answer="it is <fine>")
    assert view.analysis is None and view.sentences == ("it is <fine>",)
    assert view.plot.count("<circle") == 5
    assert view_of(sweep[:1]).plot == ""


def test_what_is_no_network_round_has_no_view() -> None:
    assert network_view(CASE, a_round([])) is None


@pytest.mark.parametrize(
    "step",
    [
        {"groups": [{"hosts": "x", "node_ranks": [1]}], "pattern": "pairs"},
        {"groups": [3], "pattern": 7},
        {"groups": 5},
        {"node_ranks": "zz", "hosts": None},
        {"size_bytes": "8", "busbw_GBps": []},
    ],
)
def test_nonsense_from_a_host_shows_nothing_and_breaks_nothing(step: dict[str, Any]) -> None:
    view = view_of([step])
    assert view.analysis is None and view.plot == ""
