"""The network view of a round: hosts by their configured names, the matrix, and what a host may have sent."""

from typing import Any

import pytest

from protocol.outcome import MeasuredCase, MeasuredRound
from tests.training.benchmarks.network.synthetic import slowest_member, steps
from training.benchmarks.network.pytorch.outcome import OUTCOME
from training.benchmarks.network.reporting import view
from training.benchmarks.network.reporting.view import NetworkView, network_view, sweep_chart
from training.benchmarks.network.slow_parts.readings import scan_of

CASE = MeasuredCase(name="PAIRS", config={"slow_percent": 15.0}, nnodes=4, nproc=2)


def a_round(found: list[dict[str, Any]], **metrics: Any) -> MeasuredRound:
    """A round on 10.0.0.1 to 10.0.0.4."""
    hosts = {node_rank: f"10.0.0.{node_rank + 1}" for node_rank in range(4)}
    return MeasuredRound(number=1, metrics=metrics, steps=found, hosts=hosts)


def view_of(found: list[dict[str, Any]], **metrics: Any) -> NetworkView:
    shown = network_view(CASE, a_round(found, **metrics))
    assert shown is not None
    return shown


def test_the_matrix_is_symmetric_and_marks_the_slow_host() -> None:
    shown = view_of(steps("pairs", 4, slowest_member({"node3": 0.5}), noise=0.01, seed=1))
    assert shown.hosts == ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4")
    assert shown.sentences[0].startswith("host 10.0.0.3: all its pairs are ")
    for row in range(4):
        assert shown.matrix[row][row] is None
        for column in range(4):
            cell = shown.matrix[row][column]
            assert cell == shown.matrix[column][row]
            if cell is not None:
                assert cell.named == (2 in (row, column))
                assert cell.low <= cell.gbps <= cell.high and 0 < cell.share <= 1
                assert cell.gbps == pytest.approx(5 if cell.named else 10, rel=0.1)


def test_other_patterns_have_groups_and_no_matrix() -> None:
    shown = view_of(steps("each", 4, slowest_member({}), noise=0.01, seed=1))
    assert shown.matrix == () and shown.analysis is not None
    assert [cell.group for cell in shown.analysis.groups] == ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"]


def test_a_plain_sweep_has_a_plot_and_its_answer() -> None:
    sweep = [{"size_bytes": 8 << step, "busbw_GBps": 1.0 * step} for step in range(5)]
    shown = view_of(sweep, answer="it is <fine>")
    assert shown.analysis is None and shown.sentences == ("it is <fine>",)
    chart = sweep_chart(CASE, a_round(sweep))
    assert chart is not None
    (line,) = chart.panels[0].series
    assert (line.x, line.y) == ([16, 32, 64, 128], [1.0, 2.0, 3.0, 4.0])
    assert sweep_chart(CASE, a_round(sweep[:2])) is None


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
    shown = view_of([step])
    assert shown.analysis is None and sweep_chart(CASE, a_round([step])) is None


def test_sentences_console_and_report_make_the_view_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []

    def counted(*arguments: Any) -> Any:
        made.append(arguments)
        return scan_of(*arguments)

    monkeypatch.setattr(view, "scan_of", counted)
    measured = a_round(steps("pairs", 4, slowest_member({"node3": 0.5}), noise=0.01, seed=1))
    again = MeasuredRound(number=1, metrics=measured.metrics, steps=measured.steps, hosts=dict(measured.hosts))
    OUTCOME.findings(CASE, measured)
    OUTCOME.assess(CASE, [again])
    OUTCOME.console(CASE, measured)
    OUTCOME.report(CASE, again)
    assert len(made) == 1
    renamed = MeasuredRound(number=1, metrics=measured.metrics, steps=measured.steps, hosts={0: "a"})
    found = network_view(CASE, renamed)
    assert found is not None and found.hosts[0] == "a" and len(made) == 2


def test_pairs_of_a_topology_that_rank_0_did_not_compare_are_not_compared_without_it() -> None:
    """A round that ended early has no findings; across the leaves of a 2:1 fabric nothing else would tell why."""
    measured = a_round(steps("pairs", 4, slowest_member({"node3": 0.5}), noise=0.01, seed=1))
    case = MeasuredCase(name="PAIRS", config={"slow_percent": 15.0, "topology": "/etc/fabric.csv"}, nnodes=4, nproc=2)
    found = network_view(case, measured)
    assert found is not None and found.analysis is not None and found.analysis.findings == ()
    assert found.sentences[0].startswith("rank 0 compared no pairs, and the tiers of the topology")
