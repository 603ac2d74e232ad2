"""The adaptive search in a modelled cluster; the table of the documentation is adaptive_simulation.py's."""

import csv
import random
import re
from dataclasses import replace
from itertools import combinations
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.docs.pages import ROOT
from tests.tiers import samples
from tests.training.benchmarks.network.adaptive_simulation import (
    COLUMNS,
    COUNTS,
    KINDS,
    Cluster,
    Faults,
    Racks,
    drawn,
    search,
    table,
)
from tests.training.benchmarks.network.simulation import BUSY, QUIET
from training.benchmarks.network.patterns.designs import batches, meetings
from training.benchmarks.network.patterns.tiers import Tiers
from training.benchmarks.network.patterns.topology import Topology
from training.benchmarks.network.pytorch.config import Config
from training.benchmarks.network.pytorch.summing import derived
from training.benchmarks.network.slow_parts import adaptive
from training.benchmarks.network.slow_parts.adaptive import VERSION, AdaptiveSearch, ScanResult, Search, expected_rounds
from training.benchmarks.network.slow_parts.chance import ALPHA, alpha_of_round
from training.benchmarks.network.slow_parts.comparison import PeerComparison, Times
from training.benchmarks.network.slow_parts.ground import ground_of, searched
from training.benchmarks.network.slow_parts.judge import Bounds
from training.benchmarks.network.slow_parts.search_rows import search_figures

NETWORKS = {"quiet": QUIET, "busy": BUSY}
BOUNDS = Bounds(slow_percent=15)


@given(st.integers(4, 1100))
def test_batches_are_disjoint_alike_and_hold_every_host(count: int) -> None:
    rounds = batches([(*range(count),)])
    assert len(rounds) <= 2
    assert {host for groups in rounds for group in groups for host in group} == set(range(count))
    assert len({len(group) for groups in rounds for group in groups}) == 1
    for groups in rounds:
        assert len({host for group in groups for host in group}) == sum(map(len, groups))


@given(st.integers(4, 200))
def test_in_a_search_for_links_every_two_hosts_meet_once(count: int) -> None:
    rounds = meetings(count)
    met = [pair for groups in rounds for group in groups for pair in combinations(sorted(group), 2)]
    assert sorted(met) == list(combinations(range(count), 2))
    for groups in rounds:
        assert len({host for group in groups for host in group}) == sum(map(len, groups))


def test_a_thousand_hosts_meet_in_38_rounds() -> None:
    assert len(meetings(512)) == 24 and len(meetings(1024)) == 38


@pytest.mark.parametrize("bad", [1, 2, 5])
@pytest.mark.parametrize("network", NETWORKS)
def test_bad_hosts_among_512_take_few_rounds(network: str, bad: int) -> None:
    noise = NETWORKS[network]
    for kind in ("host, rate -30 %", "host, delay"):
        for seed in samples(1, 40):
            faults = drawn(kind, bad, 512, noise, seed)
            found = search(512, noise, faults, seed, "hosts")
            assert found.named == faults.truth, f"{kind}, seed {seed}"
            assert found.rounds <= 40


@pytest.mark.parametrize("network", NETWORKS)
def test_a_bad_link_among_64_is_named(network: str) -> None:
    noise, named = NETWORKS[network], 0
    for seed in samples(6, 60):
        faults = drawn("link, delay", 1, 64, noise, seed)
        found = search(64, noise, faults, seed, "links")
        assert found.named <= faults.truth, f"seed {seed}"
        named += found.named == faults.truth
    assert named >= len(samples(6, 60)) * 2 // 3


@pytest.mark.parametrize(
    ("seed", "find", "rate", "delay_us"),
    [
        (12, "links", {(1,): 0.1, (0,): 0.85}, {(2, 38): 100.0, (2,): 300.0}),
        (81, "links", {(3,): 0.7, (2,): 0.85}, {(0, 1): 500.0, (0,): 300.0}),
        (21, "hosts", {(1,): 0.85, (0,): 0.3, (3,): 0.85}, {(2, 34): 100.0, (2,): 50.0}),
    ],
)
def test_batches_are_measured_again_without_their_bad_hosts(
    seed: int,
    find: Search,
    rate: dict[tuple[int, ...], float],
    delay_us: dict[tuple[int, ...], float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A host that is 15 % slower goes unnoticed beside worse ones, on a busy network."""
    faults = Faults(rate=rate, delay_us=delay_us)
    assert search(64, BUSY, faults, seed, find).named >= {*rate}
    monkeypatch.setattr(adaptive, "PASSES", 1)
    assert not search(64, BUSY, faults, seed, find).named >= {*rate}


@pytest.mark.parametrize("count", [8, 64, 512])
@pytest.mark.parametrize("network", NETWORKS)
def test_nothing_wrong_raises_no_alarm(network: str, count: int) -> None:
    for seed in samples(5, 100):
        for find in ("hosts", "links"):
            assert not search(count, NETWORKS[network], Faults(), seed, find).named, f"{find}, seed {seed}"


def test_a_bad_host_hides_no_other() -> None:
    """Three in one batch; a late link beside a slow host."""
    both = Faults(rate={(16,): 0.5, (17,): 0.5, (22,): 0.5})
    assert search(512, QUIET, both, 1, "hosts").named == both.truth
    beside = Faults(rate={(3,): 0.5}, delay_us={(4, 40): 500.0})
    assert search(64, QUIET, beside, 1, "links").named == beside.truth


def test_a_host_within_the_users_bound_is_not_named() -> None:
    """10 % slow is far beyond the noise of a quiet network, and below 15 %."""
    for seed in range(5):
        assert not search(64, QUIET, Faults(rate={(5,): 0.9}), seed, "hosts").named


def test_a_drift_that_all_groups_share_hides_nobody() -> None:
    """Every repeat takes half as long again as the one before; one of eight pairs is 40 % slower than the others."""
    pairs = [(host, host + 1) for host in range(0, 16, 2)]
    times: list[Times] = [
        {pair: {"bandwidth": 100.0 * 1.5**repeat * (1.4 if pair == (4, 5) else 1.0)} for pair in pairs}
        for repeat in range(5)
    ]
    found = PeerComparison(BOUNDS).suspicious(pairs, pairs, times)
    assert list(found) == [(4, 5)]
    assert found[4, 5][0].ratio == pytest.approx(1.4)


def test_a_host_that_is_late_with_one_host_and_slow_with_another_is_not_named() -> None:
    """Of three known-good hosts; only a symptom that it shows with most of them is its own."""

    def searched(late_with: set[int], slow_with: set[int]) -> ScanResult:
        steps = AdaptiveSearch(6, PeerComparison(BOUNDS)).run()
        this_round = next(steps)
        while True:
            times: Times = {
                group: {
                    "latency": 5.0 if group in {(other, 5) for other in late_with} else 1.0,
                    "bandwidth": 500.0 if group in {(other, 5) for other in slow_with} else 100.0,
                }
                for group in this_round.groups
            }
            try:
                this_round = steps.send([times] * 3)
            except StopIteration as end:
                result: ScanResult = end.value
                return result

    mixed = searched(late_with={4, 3}, slow_with={2})
    assert mixed.bad == () and mixed.undecided == ((4, 5),)
    (found,) = searched(late_with={4, 3, 2}, slow_with={2}).bad
    assert found.members == (5,) and [each.symptom for each in found.excesses] == ["latency"]


@given(count=st.integers(4, 9), find=st.sampled_from(["hosts", "links"]), seed=st.integers(0, 10**9))
def test_whatever_is_named_shows_a_symptom(count: int, find: Search, seed: int) -> None:
    """Where every group is another factor of about 3 late and slow in each round, too."""
    chance = random.Random(seed)
    steps = AdaptiveSearch(count, PeerComparison(BOUNDS), find).run()
    this_round = next(steps)
    while True:
        times: Times = {
            group: {"latency": chance.lognormvariate(0, 1), "bandwidth": chance.lognormvariate(0, 1)}
            for group in this_round.groups
        }
        try:
            this_round = steps.send([times] * 3)
        except StopIteration as end:
            assert all(bad.excesses for bad in end.value.bad)
            return


def test_where_most_hosts_are_bad_nobody_is_named() -> None:
    for seed in range(10):
        faults = drawn("host, rate -30 %", 6, 8, QUIET, seed)
        assert search(8, QUIET, faults, seed, "hosts").named <= faults.truth


def test_rounds_are_known_before() -> None:
    """Batches, halves of 4, pairs, three partners, and the batches once more without the bad host."""
    assert expected_rounds(512, "hosts") == (1, 7)
    assert expected_rounds(512, "links") == (1 + 24, 7 + 24)
    assert expected_rounds(8, "hosts") == (1, 4)


def test_the_chance_of_a_round_makes_that_of_most_of_its_rounds() -> None:
    for rounds, most in ((3, 2), (5, 3)):
        each = alpha_of_round(rounds)
        terms = [comb(rounds, k) * each**k * (1 - each) ** (rounds - k) for k in range(most, rounds + 1)]
        assert sum(terms) == pytest.approx(ALPHA, rel=0.2), "to one digit of the chance of a round"
    assert (alpha_of_round(1), alpha_of_round(3)) == (ALPHA, 0.02)


def test_too_few_hosts_are_refused() -> None:
    with pytest.raises(ValueError, match="3 hosts: a search compares groups and needs 4 hosts or more"):
        next(AdaptiveSearch(3, PeerComparison(BOUNDS)).run())


def test_the_table_of_the_documentation_is_made_here() -> None:
    made = [*csv.reader(table(1, counts=(8,)).splitlines())]
    assert len(made) == 1 + 2 * (2 + 3 * len(KINDS)) and {len(row) for row in made} == {len(COLUMNS)}
    stored = [*csv.reader((ROOT / "docs" / "data" / "adaptive-search.csv").read_text(encoding="utf-8").splitlines())]
    assert stored[0] == made[0] and len(stored) == 1 + len(COUNTS) * (len(made) - 1)
    assert {(row[0], *row[2:4]) for row in stored} == {(row[0], *row[2:4]) for row in made}


def test_a_round_of_few_groups_is_held_against_those_of_earlier_rounds() -> None:
    """Two pairs that both take twice as long as six others did: beside each other, nothing is seen of it."""

    def round_of(us: dict[tuple[int, ...], float]) -> list[Times]:
        return [{pair: {"bandwidth": value * (1 + noise / 1000)} for pair, value in us.items()} for noise in range(4)]

    healthy: dict[tuple[int, ...], float] = {(n, n + 1): 100.0 + n / 10 for n in range(0, 12, 2)}
    slow: dict[tuple[int, ...], float] = {(12, 13): 200.0, (14, 15): 201.0}
    comparison = PeerComparison(BOUNDS)
    assert comparison.suspicious([*healthy], [*healthy], round_of(healthy)) == {}
    found = comparison.suspicious([*slow], [*slow], round_of(slow))
    assert {pair: round(excess.ratio, 1) for pair, (excess,) in found.items()} == dict.fromkeys(slow, 2.0)
    alone = PeerComparison(BOUNDS)
    assert alone.suspicious([*slow], [*slow], round_of(slow)) == {}


# Racks of 4:1 whose hosts stand in random order in the list; learnt racks: at least so many of 100 bad hosts are named.
RACKS = [(64, 8), (64, 16), (128, 16)]


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize(("count", "of_rack"), RACKS)
def test_a_bad_host_is_named_within_racks_that_stand_in_another_order(count: int, of_rack: int, network: str) -> None:
    """Across racks a host at 70 % is as fast as every other."""
    noise, named, draws = NETWORKS[network], 0, samples(3, 100)
    for seed in draws:
        faults = drawn("host, rate -30 %", 1, count, noise, seed)
        racks = Racks.drawn(count, of_rack, seed)
        told = search(count, noise, faults, seed, "hosts", racks, told=True)
        learnt = search(count, noise, faults, seed, "hosts", racks)
        assert told.named == faults.truth and told.rounds <= 12, f"seed {seed}"
        assert learnt.named <= faults.truth and learnt.rounds <= 70, f"seed {seed}"
        assert told.unseen.startswith(f"hosts are compared within {count // of_rack} racks ()")
        assert learnt.named or re.search("a host .* is not seen", learnt.unseen), f"seed {seed}"
        named += learnt.named == faults.truth
    assert named >= 0.6 * len(draws)


@pytest.mark.parametrize("network", NETWORKS)
def test_healthy_racks_raise_no_alarm_and_a_flat_fabric_takes_two_rounds_more(network: str) -> None:
    noise = NETWORKS[network]
    for seed in samples(1, 100):
        for count, of_rack in RACKS:
            racks = Racks.drawn(count, of_rack, seed)
            for told in (True, False):
                assert not search(count, noise, Faults(), seed, "hosts", racks, told=told).named, f"seed {seed}"
        flat = search(64, noise, Faults(), seed, "hosts", Racks(of=(0,) * 64))
        assert flat.named == frozenset() and flat.rounds <= 2 + 4
        assert flat.unseen == "no racks show: a host behind uplinks that are slower than it is not seen"


def test_hosts_that_are_alone_in_their_rack_are_compared_across_racks() -> None:
    of = (*(rack for rack in range(8) for _ in range(8)), 8, 9, 10)
    for bad in (64, 3):
        found = search(67, QUIET, Faults(rate={(bad,): 0.5}), 1, "hosts", Racks(of=of), told=True)
        assert found.named == {(bad,)}
        assert found.unseen.endswith("alone in a rack, or slow to everybody, and compared across racks: 64, 65, 66")


@pytest.mark.parametrize("bad", [138, 3])
def test_a_rack_of_fewer_hosts_than_all_others_is_compared_with_as_many_hosts_of_others(bad: int) -> None:
    of = (*(rack for rack in range(17) for _ in range(8)), *[17] * 5)
    found = search(len(of), QUIET, Faults(rate={(bad,): 0.5}), 1, "hosts", Racks(of=of), told=True)
    assert found.named == {(bad,)} and found.unseen.endswith("are not searched")


def test_a_host_that_is_compared_with_nobody_is_measured_once_and_not_named() -> None:
    """Racks of 8 hosts and of 1, whose only uplink takes 30 % longer each time that it is used."""
    around = Topology(tiers=Tiers(blocks=(dict(enumerate([*[0] * 8, 1])),)))
    steps = searched(ground_of(range(9), around), PeerComparison(BOUNDS), "hosts")
    this_round, crossing = next(steps), 100.0
    while True:
        times: Times = {group: {"bandwidth": crossing if 8 in group else 100.0} for group in this_round.groups}
        crossing *= 1.3 if any(8 in group for group in this_round.groups) else 1.0
        try:
            this_round = steps.send([times] * 3)
        except StopIteration as end:
            result, ground = end.value
            break
    assert result == ScanResult(bad=(), rounds=2)
    assert ground.unseen("abcdefghi").endswith("are not searched; compared with nobody, for too few are like them: i")
    doubted = replace(result, undecided=((0, 1), (2, 4)))
    assert search_figures(doubted, ground, "abcdefghi", [8])["not_judged"] == [
        "compared with nobody, for too few are like them: i",
        "pair a-b, c-e: slow, and neither host is slow with the others: measure it again",
    ]
    flat = ground_of(range(9), Topology())
    assert "not_judged" not in search_figures(result, flat, "abcdefghi", [8])


def test_a_group_without_any_peer_is_not_held_against_its_own_first_time() -> None:
    comparison = PeerComparison(BOUNDS)
    for us in (100.0, 130.0):
        assert comparison.suspicious([(7, 8)], [(7, 8)], [{(7, 8): {"bandwidth": us}}] * 3) == {}


@pytest.mark.parametrize("said", [{}, {"search_version": VERSION - 1}, {"search_version": VERSION}])
def test_a_log_of_a_search_of_another_version_is_of_other_settings_and_no_contradiction(said: dict[str, int]) -> None:
    """Its rounds are others than this version asks for. A ValidationError accuses nobody, see ClaimsOutcome."""
    row: dict[str, object] = {"size_bytes": 8, "world_size": 2, "hosts": ["a", "b"], "node_ranks": (0, 1)}
    row |= {"busbw_GBps": 1.0, "algbw_GBps": 1.0, "time_us": {"p50": 1.0}, "correct": "pass"}
    step = {
        "pattern": "adaptive",
        "round": "1: of another version",
        "size_bytes": 8,
        "correct": "pass",
        "groups": [row],
    }
    started = {"around": Topology().to_json(), "hosts": ["a", "b", "c", "d"], **said}
    with pytest.raises(
        ValueError, match="has other groups" if VERSION in said.values() else "search_version"
    ) as caught:
        derived(Config.model_validate({"pattern": "adaptive"}), 4, [step], started)
    assert isinstance(caught.value, ValidationError) == (VERSION not in said.values())


def test_hosts_that_are_like_no_others_are_told_and_a_search_among_such_alone_is_refused() -> None:
    """Of a kind with two hosts neither can be compared."""
    ground = ground_of(range(7), Topology(kinds=dict(enumerate("aaaabbc"))))
    assert ground.unseen("tuvwxyz").endswith("; compared with nobody, for too few are like them: x, y, z")
    for kinds in ("abcd", "aabb"):
        layout = ground_of(range(4), Topology(kinds=dict(enumerate(kinds)))).layout
        with pytest.raises(ValueError, match=r"^4 hosts of which too few are alike: a search compares hosts of one"):
            expected_rounds(4, "hosts", layout)
    in_racks = Tiers(blocks=(dict(enumerate([0, 0, 1, 2])),))
    with pytest.raises(ValueError, match="of one kind, within racks or across them"):
        expected_rounds(4, "hosts", ground_of(range(4), Topology(tiers=in_racks)).layout)


def test_kinds_of_hosts_are_batches_of_their_own() -> None:
    """A quarter of the hosts has half of the rate, and one of each kind is bad."""
    old = range(48, 64)
    kinds = {host: "old" if host in old else "new" for host in range(64)}
    rate: dict[tuple[int, ...], float] = {(host,): 0.5 for host in old}
    for bad in ({}, {(50,): 0.3, (5,): 0.6}):
        cluster = Cluster(QUIET, Faults(rate=rate | bad), 1)
        ground = ground_of(range(64), Topology(kinds=kinds))
        steps = searched(ground, PeerComparison(BOUNDS), "hosts")
        this_round = next(steps)
        while True:
            try:
                this_round = steps.send(cluster.measure(this_round))
            except StopIteration as end:
                assert {each.members for each in end.value[0].bad} == {*bad}
                break
