"""What hosts measure together is held to an earlier acceptance: modelled clusters, whose speed the test sets."""

from __future__ import annotations

import pytest

from run_benchmarks.acceptance.case_levels import levels_of, not_compared, slow_hosts, slow_together
from run_benchmarks.acceptance.climb import Climb
from run_benchmarks.acceptance.page import left_out_of
from run_benchmarks.acceptance.records import CaseLevels
from run_benchmarks.acceptance.rungs import soak_of, stages_of
from run_benchmarks.console.language import Words
from tests.run_benchmarks.acceptance.simulated_cluster import DEVICES, Bad, SimulatedCluster

HOSTS = [f"n{number}" for number in range(4)]


@pytest.fixture(scope="module")
def good() -> Climb:
    return SimulatedCluster(Bad(), 1).climb(HOSTS)


def against(good: Climb, bad: Bad, hosts: list[str] = HOSTS, seed: int = 50) -> Climb:
    return SimulatedCluster(bad, seed).climb(hosts, good.measured, good.measured_cases)


def test_an_equal_cluster_is_ready_and_its_levels_are_those_of_the_model(good: Climb) -> None:
    made = against(good, Bad())
    assert made.ready and not any("--against" in said for rung in made.rungs for said in rung.not_run)
    found = good.measured_cases
    assert {case: (each.hosts, each.ranks) for case, each in found.items()} == dict.fromkeys(
        ("ACCEPT_PAIRS", "ACCEPT_ALL_REDUCE", "ACCEPT_ALL_TO_ALL", "ACCEPT_TRAINING", "ACCEPT_SOAK"), (4, DEVICES)
    )
    assert found["ACCEPT_TRAINING"].figures["throughput(ips)_steady"].median == pytest.approx(100, rel=0.05)
    assert found["ACCEPT_TRAINING"].figures["step_time_p50"].median == pytest.approx(0.01, rel=0.05)
    assert found["ACCEPT_ALL_TO_ALL"].figures["busbw of 64M"].median == pytest.approx(40, rel=0.05)
    pairs = found["ACCEPT_PAIRS"].figures
    assert list(pairs) == ["busbw of 4K", "busbw of 16M"] and pairs["busbw of 16M"].devices == 4


@pytest.mark.parametrize(
    ("bad", "rung", "said"),
    [
        (Bad(switches=0.8), 2, "ACCEPT_ALL_REDUCE busbw of 64M: "),
        (Bad(training=0.8), 3, "ACCEPT_TRAINING throughput(ips)_steady: "),
        (Bad(rate=dict.fromkeys(HOSTS, 0.8)), 2, "ACCEPT_PAIRS busbw of 16M: "),
        (Bad(soak=0.8), 3, "ACCEPT_SOAK throughput(ips)_steady: "),
    ],
    ids=["switches", "training", "all NICs", "soak"],
)
def test_a_cluster_that_is_slower_as_a_whole_fails_the_rung_after_two_occasions_and_accuses_nobody(
    good: Climb, bad: Bad, rung: int, said: str
) -> None:
    made = against(good, bad)
    assert not made.ready and made.left == HOSTS and not any(each.unsteady for each in made.rungs)
    assert [each.verdict for place, each in enumerate(made.rungs) if place != rung] == ["pass"] * 3
    reason = next(each for each in made.rungs[rung].reasons if each.startswith(said))
    assert "% below " in reason and reason.endswith(": no host stands out")
    alone = SimulatedCluster(bad, 50).climb(HOSTS)
    assert {*made.measured_cases} & {said.split()[0]} == set(), "a rung that failed has no levels to keep"
    alone = SimulatedCluster(bad, 50).climb(HOSTS)
    assert alone.ready, "its hosts are all alike"


def test_a_host_that_its_peers_do_not_name_is_out_by_the_levels_of_an_earlier_acceptance(good: Climb) -> None:
    bad = Bad(rate={"n1": 0.88})
    assert SimulatedCluster(bad, 50).climb(HOSTS).ready
    made = against(good, bad)
    assert made.left == ["n0", "n2", "n3"]
    first, again, *_ = made.rungs[2].out["n1"]
    assert first.startswith("ACCEPT_PAIRS busbw of 16M: ") and first.endswith(" % below 4 accepted ones")
    assert again.startswith("again: ACCEPT_PAIRS busbw of 16M: ")


def test_of_three_hosts_the_slow_one_is_out_though_it_slows_half_of_the_pairs_of_each_other() -> None:
    three = SimulatedCluster(Bad(), 1).climb(HOSTS[:3])
    made = against(three, Bad(rate={"n1": 0.8}), HOSTS[:3])
    assert list(made.rungs[2].out) == ["n1"]
    assert not any(each.startswith("ACCEPT_PAIRS") for each in made.rungs[2].reasons)


def test_a_wide_scatter_of_the_good_cluster_allows_as_much(good: Climb) -> None:
    level = good.measured_cases["ACCEPT_TRAINING"]
    wide = {name: each.model_copy(update={"scatter": each.median / 20}) for name, each in level.figures.items()}
    cases = good.measured_cases | {"ACCEPT_TRAINING": level.model_copy(update={"figures": wide})}
    assert SimulatedCluster(Bad(training=0.8), 50).climb(HOSTS, good.measured, cases).ready


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hosts": 8}, "hosts 4, then 8"),
        ({"ranks": 4}, "ranks of a host 8, then 4"),
        ({"settings": "abc"}, "other settings"),
        ({"kinds": "H100"}, "devices unknown, then H100"),
    ],
)
def test_another_case_is_not_compared_and_it_is_said_in_what_it_differs(
    good: Climb, change: dict[str, object], said: str
) -> None:
    other: dict[str, CaseLevels] = {case: each.model_copy(update=change) for case, each in good.measured_cases.items()}
    made = SimulatedCluster(Bad(switches=0.8, training=0.8), 50).climb(HOSTS, good.measured, other)
    assert made.ready
    told, of_soak = made.rungs[3].not_run
    assert of_soak == told.replace("ACCEPT_TRAINING", "ACCEPT_SOAK")
    assert told == f"--against: not compared: ACCEPT_TRAINING: the case differs: {said}"
    assert left_out_of(told, Words()) == told
    assert left_out_of(told, Words("zh")).startswith("--against：未比较：ACCEPT_TRAINING：用例不同：")
    pairs = [each for each in made.rungs[2].not_run if "ACCEPT_PAIRS" in each]
    assert len(pairs) == (0 if "hosts" in change else 1), "fewer hosts measure the same pairs"


def test_what_a_bad_host_took_part_in_is_no_level_of_all_together() -> None:
    made = SimulatedCluster(Bad(slow_gpus={"n2": 0.8}), 1).climb(HOSTS)
    assert made.left == ["n0", "n1", "n3"] and made.measured_cases["ACCEPT_TRAINING"].hosts == 3
    slow = SimulatedCluster(Bad(rate={"n1": 0.5}), 1).climb(HOSTS)
    assert slow.measured_cases["ACCEPT_PAIRS"].figures["busbw of 16M"].devices == 3


def test_a_search_has_a_level_of_all_hosts_and_accuses_none(good: Climb) -> None:
    """It is made again of the suspects and few others, which then are pairs."""
    run = SimulatedCluster(Bad(rate={"n1": 0.5}), 1).run(
        "network1", stages_of("network", "nvidia", HOSTS, 8)[0], HOSTS, 1
    )
    (record,) = run.rounds["ACCEPT_PAIRS"]
    steps = [step | {"pattern": "adaptive"} for step in record.steps]
    run.rounds["ACCEPT_PAIRS"] = [record.model_copy(update={"steps": steps})]
    figures = levels_of(run, ())["ACCEPT_PAIRS"].figures
    assert figures["busbw of 16M"].devices == 1 and levels_of(run, ["n1"]) == {}
    then = {"ACCEPT_PAIRS": good.measured_cases["ACCEPT_PAIRS"]}
    assert slow_hosts(run, 7.0, then) == {}


@pytest.mark.parametrize(("change", "is_compared"), [({"max_steps": 4000}, True), ({"lr": 0.1}, False)])
def test_a_soak_of_another_number_of_steps_is_compared_and_one_of_other_settings_is_not(
    good: Climb, change: dict[str, float], is_compared: bool
) -> None:
    soak = soak_of(stages_of("whole", "nvidia", HOSTS, 8)[0], 3)
    changed = {"ACCEPT_SOAK": soak["ACCEPT_SOAK"] | {"overrides": soak["ACCEPT_SOAK"]["overrides"] | change}}
    run = SimulatedCluster(Bad(soak=0.8), 50).run("whole2", changed, HOSTS, 1)
    assert bool(slow_together(run, 7.0, good.measured_cases)) == is_compared
    assert bool(not_compared(run, good.measured_cases)) != is_compared
