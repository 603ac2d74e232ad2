"""Alarms where nothing is wrong, and faults that go unnamed: counted over runs that are drawn with realistic noise.

Larger figures: docs/data/named-by-pairs.csv, from `python -m tests.training.benchmarks.network.simulation`.
"""

import csv
import itertools
import math

import pytest

from tests.docs.pages import ROOT
from tests.tiers import NIGHTLY, samples
from tests.training.benchmarks.network.simulation import (
    BUSY,
    FAULTS,
    QUIET,
    SIZES_OF_CLUSTERS,
    Fault,
    Noise,
    look,
    named,
    scaled,
    table,
)
from tests.training.benchmarks.network.simulation import NETWORKS as ALL_NETWORKS
from training.benchmarks.network.slow_parts.chance import ALPHA

RUNS = len(samples(6, 12))
NETWORKS = {"quiet": QUIET, "busy": BUSY}


@pytest.mark.parametrize("repeats", [3, 5])
@pytest.mark.parametrize(("count", "runs"), [(3, 40), (4, 30), (8, 10), (32, 1)])
@pytest.mark.parametrize("network", NETWORKS)
def test_nothing_wrong_raises_no_alarm(network: str, count: int, runs: int, repeats: int) -> None:
    seeds = samples(runs, 20 * runs)
    found = {seed: look(count, NETWORKS[network], Fault(), seed, repeats=repeats) for seed in seeds}
    alarms = {seed: each.sentences for seed, each in found.items() if each.findings}
    assert len(alarms) <= (tolerated(len(seeds)) if NIGHTLY else 0), alarms


def tolerated(runs: int) -> int:
    """False alarms that so many runs exceed with a probability below 0.001 where each has one with `ALPHA`."""
    below, count = 0.0, -1
    while below < 0.999:
        count += 1
        below += math.comb(runs, count) * ALPHA**count * (1 - ALPHA) ** (runs - count)
    return count


def test_tolerated() -> None:
    assert (tolerated(10), tolerated(800)) == (1, 5)


STEADY = [name for name in FAULTS if name != "stalls 1 %: host" and "a tenth" not in name]
NAMED = [*itertools.product(NETWORKS, (3, 4, 8), STEADY)]
# By day every other one, in which each fault is in both networks.
BY_DAY = [each for place, each in enumerate(NAMED) if (place + place // len(STEADY)) % 2 == 0]


@pytest.mark.parametrize(("network", "count", "name"), NAMED if NIGHTLY else BY_DAY)
def test_a_fault_is_named_and_nobody_else(network: str, count: int, name: str) -> None:
    """Among three busy hosts many faults go unnamed in 5 repeats: see the documentation."""
    fault = scaled(FAULTS[name], NETWORKS[network])
    truth = fault.truth
    found = [named(look(count, NETWORKS[network], fault, seed, repeats=5)) for seed in range(RUNS)]
    assert not any(each - truth for each in found)
    is_hard = network == "busy" and count == 3 and not fault.delay_us
    needed = RUNS // 3 if is_hard else RUNS - 2
    assert sum(each == truth for each in found) >= needed


@pytest.mark.parametrize("name", [name for name in FAULTS if "a tenth" in name and ", 1 %" not in name])
@pytest.mark.parametrize("network", NETWORKS)
def test_a_fault_that_comes_and_goes_is_named_as_such(network: str, name: str) -> None:
    """Of 8 hosts, in 5 repeats. An operation of 56 ms that takes 10 times as long stalls."""
    found = [look(8, NETWORKS[network], FAULTS[name], seed, repeats=5) for seed in range(RUNS)]
    assert not any(named(each) - {"node2"} for each in found)
    right = [finding for each in found for finding in each.findings]
    assert len(right) >= RUNS - 2
    assert {each.kind for each in right} <= {"intermittent", "stalls" if network == "busy" else "intermittent"}
    assert all(each.p_value is not None and each.p_value < ALPHA for each in right)
    assert all(0.05 < each.share_of_expected < 0.95 for each in right if each.share_of_expected is not None)


@pytest.mark.parametrize("count", [4, 8, 16])
def test_bursts_in_one_measurement_of_twenty_hide_no_host(count: int) -> None:
    """They hit one of 120 pairs in all three repeats in one run of 70, but not all pairs of a host; of four hosts each
    has three alone.
    """
    seeds = samples(4, 50)
    found = [named(look(count, ALL_NETWORKS["bursts"], FAULTS["rate -30 %: host"], seed)) for seed in seeds]
    assert all("-" in other for each in found for other in each - {"node2"})
    assert sum("node2" in each for each in found) >= (1.0 if count > 4 else 0.75) * len(seeds)


def test_the_repeat_from_which_a_host_is_slow_is_told() -> None:
    (finding,) = look(8, QUIET, Fault(since={"node2": 4}), 1, repeats=5).findings
    assert finding.kind == "intermittent" and " from repeat 4 on (of the others' 0 %)" in finding.evidence


@pytest.mark.parametrize("network", NETWORKS)
def test_two_late_hosts_are_named_and_not_the_pair_that_adds_them_up(network: str) -> None:
    noise = NETWORKS[network]
    fault = scaled(Fault(delay_us={"node2": 1.0, "node5": 1.0}), noise)
    for seed in range(RUNS):
        assert named(look(8, noise, fault, seed, repeats=5)) == {"node2", "node5"}, f"seed {seed}"


def test_the_table_of_the_documentation_is_made_here() -> None:
    made = [*csv.reader(table(1, ((3, 3),)).splitlines())]
    stored = [*csv.reader((ROOT / "docs" / "data" / "named-by-pairs.csv").read_text(encoding="utf-8").splitlines())]
    assert stored[0] == made[0] and {row[0] for row in stored} == {row[0] for row in made}
    assert [tuple(map(int, row[1:3])) for row in stored[1:]] == [*SIZES_OF_CLUSTERS] * (len(made) - 1)


def still(noise: Noise) -> Noise:
    """The same network without noise."""
    return Noise(noise.latency_us, noise.rate_gbps, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def test_the_sentences() -> None:
    quiet = still(QUIET)
    late = look(4, quiet, Fault(delay_us={"node2": 5100.0}), 1)
    assert late.sentences == (
        "host node2: small messages (4K) on all its pairs take 5.1 ms longer than 20.1 us; all its pairs are 92 % slow"
        " at 16M: a late link: cable, port, or interrupts and power saving of the host",
    )
    assert late.findings[0].symptoms == ("latency", "bandwidth")
    path = look(4, quiet, Fault(delay_us={"node1-node3": 15.0}), 1)
    assert path.sentences == (
        "pair node1-node3 alone: small messages (4K) take 15 us longer than 20.1 us: the path between them",
    )
    lossy = look(4, quiet, Fault(loss={"node4": 0.05}), 1, repeats=5)
    assert lossy.findings[0].symptoms == ("stalls",) and lossy.findings[0].share_of_expected is None
    assert lossy.sentences[0].endswith(
        "% of the operations on all its pairs stall (190 ms and more): packet loss, or a host that makes no progress"
    )


def test_two_hosts_can_only_be_told_that_they_stall() -> None:
    found = look(2, still(QUIET), Fault(loss={"node2": 0.05}), 1, repeats=5)
    assert found.findings == () and "packet loss or overloaded hosts" in found.sentences[0]
    found = look(2, still(QUIET), Fault(rate={"node2": 0.5}), 1, repeats=5)
    assert "too few groups to compare" in found.sentences[0]
