"""The adaptive search over gloo: six ranks as six hosts, one of them slow."""

import platform
from typing import cast

import pytest

from protocol.perflog import Event, check_sequence
from tests.training.benchmarks.claimed import contradictions, unnoticed
from tests.training.benchmarks.driver.launch.launching import plain_processes, run
from tests.training.benchmarks.network.test_network_cases import settings
from tests.training.benchmarks.network.test_network_run import Finished
from training.benchmarks.network.slow_parts.adaptive import BadMembers
from training.benchmarks.network.slow_parts.comparison import Excess
from training.benchmarks.network.slow_parts.findings import findings_of
from training.benchmarks.network.slow_parts.search_rows import finding_of

# Beside other tests, pairs that are healthy are late, too.
pytestmark = pytest.mark.alone
WORKLOAD = "tests.training.benchmarks.network.hosts_workload"
HOSTS, SLOW = 6, 4


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("searched")
    # Two cores for six hosts: what is healthy takes up to half as long again.
    bounds = {"slow_percent": 50, "late_percent": 100}
    table = tmp_path_factory.mktemp("topology") / "fabric.txt"
    rows = [f"{platform.node()}#{place} leaf0" for place in range(HOSTS)]
    table.write_text("\n".join(["host rack", *rows]) + "\n")
    chosen = settings(
        pattern="adaptive", topology=table, sizes="8,256K,1048576G", iterations=11, warmup_iterations=3, **bounds
    )
    code, output = run(folder, plain_processes(HOSTS), [WORKLOAD, str(SLOW), "0.04", "0.005", *chosen], deadline_s=240)
    return Finished(code, output, folder)


def test_the_slow_host_is_named_and_nobody_else(searched: Finished) -> None:
    assert searched.code == 0, searched.output + searched.log(0)
    summary = searched.values(0, Event.FINISHED)[0]
    (found,) = findings_of(summary["findings"])
    assert (found.part, found.node_ranks, found.kind) == ("host", (SLOW,), "constant")
    assert "latency" in found.symptoms and found.share_of_expected is not None and found.share_of_expected < 0.5
    assert found.sentence in str(summary["answer"])
    unseen = "all hosts are in one rack: a host behind uplinks that are slower than it is not seen"
    assert str(summary["answer"]).endswith(unseen)


def test_what_the_search_named_is_searched_again_in_the_rows_of_its_log(searched: Finished) -> None:
    """Nobody named, somebody else named, or a round left out, is a contradiction; so is a lie in a number."""
    assert contradictions(searched.folder, "network", HOSTS) == []
    assert unnoticed(searched.folder, "network", HOSTS) == ["e2e_time"]
    (found,) = cast("list[dict[str, object]]", searched.values(0, Event.FINISHED)[0]["findings"])
    (said,) = contradictions(searched.folder, "network", HOSTS, findings=[])
    assert said.startswith("findings[0] is nothing by FINISHED, {'part': 'host', 'hosts': ['"), said
    (said,) = contradictions(searched.folder, "network", HOSTS, findings=[found | {"node_ranks": [SLOW - 1]}])
    assert said == f"findings[0].node_ranks[0] is {SLOW - 1} by FINISHED, {SLOW} by the rows of its log"


def test_it_takes_four_rounds_and_every_rank_keeps_the_rules(searched: Finished) -> None:
    """Batches, and the two suspects with three good hosts each; chance may make another pair suspicious for a while."""
    summary = searched.values(0, Event.FINISHED)[0]
    rounds = int(str(summary["search_rounds"]))
    assert 4 <= rounds < HOSTS * (HOSTS - 1) // 2
    for rank in range(HOSTS):
        assert check_sequence(searched.records(rank)) == []
        assert len(searched.values(rank, Event.STEP_END)) == rounds * 3 * 2, "3 repeats of 2 sizes"
    steps = searched.values(0, Event.STEP_END)
    assert [step["step"] for step in steps] == list(range(1, len(steps) + 1))
    assert {step["pattern"] for step in steps} == {"adaptive"} and str(steps[-1]["round"]).startswith(f"{rounds}: ")


def test_a_size_that_does_not_fit_is_skipped_with_the_reason(searched: Finished) -> None:
    (skipped,) = [values["skipped_sizes"] for values in searched.values(0, Event.FINISHED)]
    assert isinstance(skipped, dict) and list(skipped) == ["1048576G"]
    assert f"# 1048576G is skipped: {skipped['1048576G']}" in searched.log(0)


def test_its_seconds_are_predicted_and_its_progress_is_shown(searched: Finished) -> None:
    log = searched.log(0)
    (start,) = searched.values(0, Event.TRAIN_START)
    assert 0 < float(str(start["predicted_s"])) < float(str(start["predicted_with_a_bad_host_s"]))
    begin = log.index("# search for bad hosts among 6 hosts, if nothing is suspicious: rounds: 1, ")
    assert begin < log.index("# repeat 1, 1: batches 1 of 1"), "before the first round"
    assert "# round 1 of 1 to 4 done, " in log and "# round 4 of 4 to 4 done, " in log
    assert "# round 1" not in searched.log(1)


def test_a_finding_of_a_link_accuses_no_host() -> None:
    slow = Excess(symptom="bandwidth", ratio=2.0, deviations=9.0)
    late = Excess(symptom="latency", ratio=3.0, deviations=9.0)
    found = finding_of(BadMembers(members=(0, 2), excesses=(late, slow)), ["h0", "h1", "h2"], [8, 1 << 24])
    assert found.drained_hosts == () and found.share_of_expected == pytest.approx(1 / 3)
    assert found.sentence == (
        "pair h0-h2 alone: small messages (8) take 3 times as long; 50 % slow at 16M: the path between them"
    )
