"""A case's measurements against a baseline: by the cluster config's names, with what fell below it."""

from pathlib import Path
from typing import Any

import pytest

from run_benchmarks.errors import ConfigError
from run_benchmarks.report.html import write_report
from run_benchmarks.results.network_baseline import against_baseline, measured, refusal
from run_benchmarks.settings.settings import load_settings
from tests.run_benchmarks.results.network_rounds import a_round, case
from tests.run_benchmarks.results.rounds import run_record
from tests.training.benchmarks.network.synthetic import slowest_member, steps
from training.benchmarks.network import baseline

FILE = Path("good.json")


def values(seed: int, **factors: float) -> list[dict[str, Any]]:
    found = steps("pairs", 4, slowest_member(factors), noise=0.01, seed=seed)
    return [{**step, "collective": "all_reduce"} for step in found]


def test_a_host_all_of_whose_pairs_fell_is_named_once() -> None:
    known = measured("PAIRS", [a_round(values(1))])
    found = against_baseline("PAIRS", [a_round(values(2, node4=0.5))], FILE, known, 10)
    assert found.is_below and len(found.rows) == 6 and sum(row.below for row in found.rows) == 3
    assert len(found.sentences) == 1 and found.sentences[0].startswith("host 10.0.0.4: all its 3 pairs take ")
    assert [row.ratio for row in found.rows if row.below] == pytest.approx([0.5] * 3, abs=0.05)


def test_single_pairs_and_everybody_are_named_as_such() -> None:
    known = measured("PAIRS", [a_round(values(1))])
    path = steps("pairs", 4, slowest_member({}, {frozenset({"node1", "node2"}): 0.5}), noise=0.01, seed=2)
    slow = [{**step, "collective": "all_reduce"} for step in path]
    found = against_baseline("PAIRS", [a_round(slow)], FILE, known, 10)
    assert len(found.sentences) == 1
    assert found.sentences[0].startswith("all_reduce 10.0.0.1-10.0.0.2 at 16M takes 1")
    everybody = dict.fromkeys(["node1", "node2", "node3", "node4"], 0.5)
    found = against_baseline("PAIRS", [a_round(values(2, **everybody))], FILE, known, 10)
    assert len(found.sentences) == 6, "no host stands out where all pairs fell"


def test_what_holds_and_what_cannot_be_compared_is_said() -> None:
    known = measured("PAIRS", [a_round(values(1))])
    found = against_baseline("PAIRS", [a_round(values(2))], FILE, known, 10)
    assert not found.is_below and found.sentences == ["all 6 measurements are within 10 % of the baseline good.json"]
    found = against_baseline("OTHER", [a_round(values(2))], FILE, known, 10)
    assert not found.is_below and "holds none of this case's measurements" in found.sentences[0]
    odd: list[dict[str, Any]] = [
        {"groups": [3, {"time_us": {"p50": "x"}}]},
        {"groups": [{"node_ranks": [9], "hosts": 4}]},
        {"time_us": {"p50": 0.0}, "busbw_GBps": 1.0},
    ]
    assert measured("PAIRS", [a_round(odd)]) == {}


def test_a_pair_is_compared_in_whichever_round_and_order_it_was_measured() -> None:
    """One host less, or another order of HOSTS, shifts both."""
    known = measured("PAIRS", [a_round(values(1))])
    three = [host for host in a_round([]).nodes if host.node_rank < 3]
    shifted: list[dict[str, Any]] = []
    for step in values(2, node2=0.5):
        groups = [
            {**group, "group": "-".join(reversed(group["hosts"]))}
            | {name: list(reversed(group[name])) for name in ("hosts", "node_ranks")}
            for group in step["groups"]
            if 3 not in group["node_ranks"]
        ]
        shifted.append({**step, "round": "pairs 9", "groups": groups})
    fewer = a_round(shifted).model_copy(update={"nodes": three})
    found = against_baseline("PAIRS", [fewer], FILE, known, 10)
    assert len(found.rows) == 3
    assert len(found.sentences) == 1 and found.sentences[0].startswith("host 10.0.0.2: all its 2 pairs take ")


def test_all_hosts_bear_the_cluster_config_s_names() -> None:
    (step,) = steps("all", 2, slowest_member({}), noise=0, seed=1, repeats=1)
    (entry,) = measured("ALL", [a_round([{**step, **step["groups"][0], "groups": None}])]).values()
    assert entry.hosts == ("10.0.0.1", "10.0.0.2") and entry.group == "all"


def test_what_only_a_part_of_is_in_the_file_is_said() -> None:
    found = measured("PAIRS", [a_round(values(1))])
    known = dict(list(found.items())[:4])
    said = against_baseline("PAIRS", [a_round(values(2))], FILE, known, 10).sentences
    assert said[0].startswith("all 4 measurements are within") and said[1].startswith("2 more of this case's")


def test_the_report_shows_measured_over_baseline(tmp_path: Path) -> None:
    known = measured("PAIRS", [a_round(values(1))])
    slow = a_round(values(2, node4=0.5))
    record = case().model_copy(update={"baseline": against_baseline("PAIRS", [slow], FILE, known, 10)})
    page = write_report(tmp_path, run_record({}).model_copy(update={"cases": [record]}), [slow]).read_text()
    assert "host 10.0.0.4: all its 3 pairs take" in page and "10.0.0.1-10.0.0.4" in page


def test_a_baseline_that_could_not_be_saved_is_refused_first(tmp_path: Path) -> None:
    file = tmp_path / "b.json"
    assert refusal(file, ["network"], overwrite=False) is None
    assert "none of the CASES is of model 'network'" in str(refusal(file, ["bert"], overwrite=False))
    assert "folder that exists" in str(refusal(tmp_path / "no" / "b.json", ["network"], overwrite=False))
    file.write_text("{}")
    assert "--overwrite-baseline" in str(refusal(file, ["network"], overwrite=False))
    assert refusal(file, ["network"], overwrite=True) is None


def test_a_baseline_setting_that_would_do_nothing_is_an_error(tmp_path: Path) -> None:
    cluster, test, good = tmp_path / "cluster.py", tmp_path / "test.py", tmp_path / "good.json"
    cluster.write_text('HOSTS = ["localhost"]\n')
    baseline.save("run1", measured("PAIRS", [a_round(values(1))]), good)

    def problem(model: str, *lines: str) -> str:
        fields = {"model": model, "framework": "pytorch", "config": "c", "nproc": 1}
        text = ['VENDOR = "cpu"', 'CASES = ["ONE"]', f"ONE = {fields}", *lines]
        test.write_text("\n".join(text) + "\n")
        try:
            load_settings(cluster, test)
        except ConfigError as error:
            return "; ".join(map(str, error.problems))
        return ""

    assert problem("network", f"BASELINE = {str(good)!r}", "BASELINE_PERCENT = 5") == ""
    assert "at least one case of model 'network'" in problem("bert", f"BASELINE = {str(good)!r}")
    assert "is no baseline" in problem("network", f"BASELINE = {str(tmp_path / 'none.json')!r}")
    assert "nothing without BASELINE" in problem("network", "BASELINE_PERCENT = 5")
