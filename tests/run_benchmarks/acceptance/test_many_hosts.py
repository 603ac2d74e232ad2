"""Acceptances of hundreds of modelled hosts through all rungs: every bad host is taken out, no other, in few rounds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from run_benchmarks.acceptance.climb import TWO_HOSTS, Climb, Looked
from run_benchmarks.acceptance.rungs import FEWEST, RUNGS, Cases
from run_benchmarks.commands.accepting import plan_all
from run_benchmarks.results.loading import LoadedRun
from run_benchmarks.results.records import Verdict
from tests.run_benchmarks.acceptance.scripted_cluster import reason
from tests.run_benchmarks.acceptance.simulated_cluster import (
    DEVICES,
    LATE_HOST,
    LOSSY,
    ONE,
    SLOW_GPU,
    TESTS,
    Bad,
    SimulatedCluster,
    five_bad,
)
from tests.run_benchmarks.commands.test_accepting import asked_of
from tests.tiers import samples

MOST_ROUNDS = 40


def out_of(found: Climb) -> dict[str, list[str]]:
    """The evidence against each host that is out."""
    return {host: said for rung in found.rungs for host, said in rung.out.items()}


def names(count: int) -> list[str]:
    return [f"n{number}" for number in range(count)]


@pytest.mark.parametrize("count", [64, 512])
def test_five_hosts_that_are_bad_in_five_ways_are_taken_out_and_no_other(count: int) -> None:
    """A slow NIC, a slow device, a late host, one that loses packets, one slow rail."""
    for seed in samples(2 if count == 64 else 1, 100):
        bad = five_bad(names(count), seed)
        cluster = SimulatedCluster(bad, 1000 * seed)
        found = cluster.climb(names(count))
        states = found.states()
        assert {host for host, state in states.items() if state == "out"} == bad.truth, f"seed {seed}"
        assert set(states.values()) == {"out", "accepted"} and not found.ready, f"seed {seed}"
        assert cluster.rounds <= MOST_ROUNDS, f"seed {seed}"
        named = {
            host: [said for said in evidence if f"{host} rail " in said] for host, evidence in out_of(found).items()
        }
        (rail,) = bad.rails
        assert {host for host, said in named.items() if said} == {rail} and f"{rail} rail {ONE}: " in named[rail][0]
        assert len(found.rungs[-1].hosts) == count - len(bad.truth)
        assert len(found.rungs[-1].runs) == 2 and not reason(found.rungs[-1]), "a training and a soak"


@pytest.mark.nightly
def test_an_acceptance_of_4096_hosts_is_planned_and_its_five_bad_ones_are_taken_out(tmp_path: Path) -> None:
    asked = asked_of(tmp_path, "nvidia", 4096)
    plan_all(asked, asked.settings(), RUNGS, DEVICES)
    bad = five_bad(names(4096), 1)
    cluster = SimulatedCluster(bad, 1000)
    states = cluster.climb(names(4096)).states()
    assert {host for host, state in states.items() if state == "out"} == bad.truth
    assert set(states.values()) == {"out", "accepted"} and cluster.rounds <= MOST_ROUNDS


def test_healthy_hosts_are_accepted() -> None:
    for seed in samples(1, 40):
        found = SimulatedCluster(Bad(), 1000 * seed).climb(names(512))
        assert found.ready and set(found.states().values()) == {"accepted"}, f"seed {seed}"
        assert all(rung.out == {} for rung in found.rungs) and len(found.rungs) == len(FEWEST)


@pytest.mark.parametrize("way", ["slow NICs", "late", "lossy", "one slow, one late", "one slow, one lossy"])
def test_two_bad_hosts_of_six_are_confirmed(way: str) -> None:
    for seed in samples(1, 100):
        hosts = names(6)
        one, other = random.Random(seed).sample(hosts, 2)
        slow, late, lossy = {one: 0.7}, {other: LATE_HOST}, {other: LOSSY}
        bad = {
            "slow NICs": Bad(rate={one: 0.7, other: 0.7}),
            "late": Bad(delay_us={one: LATE_HOST, other: LATE_HOST}),
            "lossy": Bad(packets={one: LOSSY, other: LOSSY}),
            "one slow, one late": Bad(rate=slow, delay_us=late),
            "one slow, one lossy": Bad(rate=slow, packets=lossy),
        }[way]
        states = SimulatedCluster(bad, 1000 * seed).climb(hosts).states()
        assert {host for host, state in states.items() if state == "out"} == bad.truth, f"seed {seed}"
        assert set(states.values()) == {"out", "accepted"}, f"seed {seed}"


def test_a_quarter_of_sixteen_hosts_with_slow_nics_is_confirmed_beside_enough_good_ones() -> None:
    for seed in samples(1, 40):
        hosts = names(16)
        bad = Bad(rate=dict.fromkeys(hosts[seed % 4 :: 4], 0.7))
        found = SimulatedCluster(bad, 1000 * seed).climb(hosts)
        assert {host for host, state in found.states().items() if state == "out"} == bad.truth, f"seed {seed}"


def test_repaired_hosts_are_held_to_the_recorded_devices_of_their_peers() -> None:
    for seed in samples(1, 40):
        hosts = names(64)
        first = SimulatedCluster(five_bad(hosts, seed), 1000 * seed).climb(hosts)
        assert first.measured[""].keys() == set(TESTS)
        assert all(found.devices == 63 * DEVICES for found in first.measured[""].values()), "without the slow host's"
        again = [*first.rungs[1].out, *first.left[:3]]
        repaired = SimulatedCluster(Bad(), 2000 * seed + 7).climb(again, first.measured)
        assert repaired.ready and set(repaired.states().values()) == {"accepted"}, f"seed {seed}"
        as_before = SimulatedCluster(Bad(slow_gpus={again[0]: SLOW_GPU}), 3000 * seed + 7)
        alone = as_before.climb(again[:1], first.measured)
        assert alone.states() == {again[0]: "out"}
        assert " % below 504 accepted ones" in alone.rungs[1].out[again[0]][0], "nobody stands beside it"


def test_a_host_in_doubt_is_no_part_of_what_is_expected() -> None:
    cluster = SimulatedCluster(Bad(slow_gpus={"n3": SLOW_GPU}), 1)

    def run(name: str, cases: Cases, hosts: Sequence[str], seconds: int) -> LoadedRun:
        loaded = cluster.run(name, cases, hosts, seconds)
        skipped = loaded.record.model_copy(update={"verdict": Verdict.SKIPPED})
        return replace(loaded, record=skipped, rounds={}) if name == "single2" else loaded

    climb = replace(cluster.climb(names(8)), rungs=[], ran={}, measured={}, run=run)
    climb.step("single")
    assert climb.rungs[0].out == {} and climb.states()["n3"] == "not tested"
    assert all(level.devices == 7 * DEVICES for level in climb.measured[""].values())


def test_a_host_all_of_whose_devices_are_slow_is_seen_against_the_recorded_ones_alone() -> None:
    usual = SimulatedCluster(Bad(), 1).climb(names(8)).measured
    slow = {"": {name: found.model_copy(update={"median": 1.2 * found.median}) for name, found in usual[""].items()}}
    assert SimulatedCluster(Bad(), 2).climb(["n0"]).rungs[1].out == {}
    assert set(SimulatedCluster(Bad(), 2).climb(["n0"], slow).rungs[1].out) == {"n0"}


def test_the_order_in_which_hosts_are_listed_does_not_matter() -> None:
    for seed in samples(3, 40):
        bad = five_bad(names(64), seed)
        listed = random.Random(seed).sample(names(64), 64)
        states = SimulatedCluster(bad, 1000 * seed).climb(listed).states()
        assert {host for host, state in states.items() if state == "out"} == bad.truth, f"seed {seed}"
        assert list(states) == listed and set(states.values()) == {"out", "accepted"}


def test_hosts_that_are_all_bad_alike_accuse_none_of_them_and_miss_what_is_recorded_of_good_ones() -> None:
    hosts = names(16)
    usual = SimulatedCluster(Bad(), 1).climb(hosts).measured
    bad = Bad(slow_gpus=dict.fromkeys(hosts, SLOW_GPU), rate=dict.fromkeys(hosts, 0.7))
    slow = SimulatedCluster(bad, 5)
    slow.all_devices = True
    assert slow.climb(hosts).ready, "there is nothing to compare them with"
    again = SimulatedCluster(bad, 5)
    again.all_devices = True
    assert set(again.climb(hosts, usual).rungs[1].out) == set(hosts)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_healthy_hosts_are_never_taken_out(count: int) -> None:
    for seed in samples(3, 40):
        found = SimulatedCluster(Bad(), 1000 * seed).climb(names(count))
        assert all(rung.out == {} for rung in found.rungs) and found.ready == (count > 1), f"seed {seed}"
        assert found.rungs[2].verdict == ("pass" if count > 1 else "not run")
        assert (TWO_HOSTS in found.rungs[2].not_run) == (count == 2)


def test_a_host_that_dies_between_two_rungs_is_out_and_the_others_go_on() -> None:
    made = SimulatedCluster(Bad(), 7).climb(names(8))

    def gate(hosts: Sequence[str]) -> Looked:
        return Looked(sick={host: ["ssh: no route"] for host in hosts if host == "n3"})

    dying = replace(made, rungs=[], ran={}, measured={}, gate=gate)
    dying.step("single")
    dying.step("network")
    assert dying.rungs[0].out == {"n3": ["after run_single1, one round of ACCEPT_DEVICES: ssh: no route"]}
    assert dying.rungs[0].verdict == "fail"
    assert "n3" not in dying.rungs[1].hosts and dying.rungs[1].verdict == "pass"
