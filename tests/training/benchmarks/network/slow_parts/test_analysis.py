"""Who is named and who never is, on clusters whose truth is known."""

import random
from typing import Any

import pytest

from common.statistics import median_of
from tests.tiers import samples
from tests.training.benchmarks.network.synthetic import slowest_member, steps
from training.benchmarks.network.slow_parts.analysis import Analysis, analyse, analyse_scan
from training.benchmarks.network.slow_parts.judge import Bounds
from training.benchmarks.network.slow_parts.readings import scan_of

SEEDS = samples(6, 100)
SLOW_PERCENT = 15.0
HEALTHY = slowest_member({})


def look(values: list[dict[str, Any]], **known: Any) -> Analysis:
    found = analyse(values, slow_percent=SLOW_PERCENT, **known)
    assert found is not None
    return found


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.05, 0.1, 0.3])
@pytest.mark.parametrize("count", [3, 4, 8, 16])
@pytest.mark.parametrize("pattern", ["pairs", "each", "halves", "k_batch", "rail"])
def test_a_healthy_cluster_raises_no_alarm(pattern: str, count: int, noise: float) -> None:
    for seed in SEEDS:
        found = look(steps(pattern, count, HEALTHY, noise=noise, seed=seed))
        assert found.findings == (), f"seed {seed}: {found.sentences}"
        assert found.sentences == (found.note, *found.remarks)
        assert len(found.remarks) == (pattern == "pairs" and count >= 6), "no racks show"


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.05])
@pytest.mark.parametrize("count", [3, 4, 5, 8, 16])
def test_a_slow_host_is_named_and_nobody_else(count: int, noise: float) -> None:
    repeats = 5 if count == 3 and noise == 0.05 else 3  # three pairs tell less of the noise than six
    for seed in SEEDS:
        speed = slowest_member({"node2": 0.62})
        found = look(steps("pairs", count, speed, noise=noise, seed=seed, repeats=repeats))
        assert [(f.part, f.hosts) for f in found.findings] == [("host", ("node2",))], f"seed {seed}"
        assert found.findings[0].share_of_expected == pytest.approx(0.62, abs=0.12)


def test_the_sentences() -> None:
    found = look(steps("pairs", 4, slowest_member({"node3": 0.62}), noise=0, seed=0))
    assert found.sentences == ("host node3: all its pairs are 38 % slow at 16M: NIC, cable or PCIe",)
    path = slowest_member({}, {frozenset({"node1", "node4"}): 0.5})
    found = look(steps("pairs", 4, path, noise=0, seed=0))
    assert found.sentences == ("pair node1-node4 alone: 50 % slow at 16M: the path between them",)
    found = look(steps("pairs", 4, HEALTHY, noise=0, seed=0))
    assert found.sentences == ("no host or path stands out (noise from repeat to repeat 0.0 %)",)


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.05])
@pytest.mark.parametrize("count", [3, 4, 8, 16])
def test_a_slow_path_is_named_and_no_host(count: int, noise: float) -> None:
    for seed in SEEDS:
        path = slowest_member({}, {frozenset({"node1", "node3"}): 0.5})
        found = look(steps("pairs", count, path, noise=noise, seed=seed))
        assert [(f.part, set(f.hosts)) for f in found.findings] == [("link", {"node1", "node3"})], f"seed {seed}"


def test_two_slow_hosts_and_a_slow_path_at_once() -> None:
    speed = slowest_member({"node2": 0.5, "node7": 0.3}, {frozenset({"node4", "node5"}): 0.4})
    found = look(steps("pairs", 9, speed, noise=0.03, seed=1))
    named = {(f.part, frozenset(f.hosts)) for f in found.findings}
    assert named == {
        ("host", frozenset({"node2"})),
        ("host", frozenset({"node7"})),
        ("link", frozenset({"node4", "node5"})),
    }


def test_one_bad_moment_blames_nobody() -> None:
    """Interference slows every pair of a round once; the median over the repeats does not see it."""
    values = steps("pairs", 4, HEALTHY, noise=0.02, seed=3)
    for group in values[0]["groups"]:
        group["time_us"]["p50"] *= 5
    assert look(values).findings == ()


@pytest.mark.parametrize("pattern", ["pairs", "each"])
def test_one_lucky_iteration_of_many_acquits_nobody(pattern: str) -> None:
    """A host is 10 times slower in all its measurements: one iteration of hundreds that is as fast as the others'."""
    values = steps(pattern, 8, HEALTHY, noise=0.02, seed=4, repeats=5)
    slow = [group for step in values for group in step["groups"] if "node2" in group["hosts"]]
    assert len(slow) == (35 if pattern == "pairs" else 5)
    for number, group in enumerate(slow):
        group["time_us"]["p50"] *= 10
        group["time_us"]["min"] *= 10 if number else 1
    (found,) = look(values).findings
    assert (found.part, found.hosts, found.kind) == ("host", ("node2",), "constant")
    assert found.share_of_expected == pytest.approx(0.1, rel=0.1) and found.p_value is not None
    assert found.p_value < 1e-6


@pytest.mark.parametrize("count", [3, 8])
@pytest.mark.parametrize("pattern", ["pairs", "each"])
def test_a_host_with_fast_operations_in_every_measurement_is_slow_at_times(pattern: str, count: int) -> None:
    values = steps(pattern, count, HEALTHY, noise=0.02, seed=4, repeats=5)
    for group in (group for step in values for group in step["groups"]):
        if "node2" in group["hosts"]:
            group["time_us"]["p50"] *= 3
    (found,) = look(values).findings
    assert (found.part, found.hosts, found.kind) == ("host", ("node2",), "intermittent")
    assert "some operations are as fast as the others'" in found.evidence


@pytest.mark.parametrize("count", [3, 4, 8])
@pytest.mark.parametrize("pattern", ["pairs", "each", "k_batch", "rail"])
def test_bursts_of_interference_blame_nobody(pattern: str, count: int) -> None:
    """One in ten measurements, wherever it falls, is two to ten times slower.

    All three of a group are hit, by chance, in one of a thousand groups; of 28 pairs one is named in 1 % of the runs.
    """
    blamed = []
    for seed in samples(25, 400):
        draw = random.Random(seed)
        values = steps(pattern, count, HEALTHY, noise=0.03, seed=seed)
        for group in (group for step in values for group in step["groups"]):
            if draw.random() < 0.1:
                group["time_us"]["p50"] *= draw.uniform(2, 10)
        if look(values).findings:
            blamed.append(f"seed {seed}: {look(values).sentences}")
    assert len(blamed) <= len(samples(25, 400)) // 50, blamed


@pytest.mark.parametrize(
    ("pattern", "kind", "hosts"),
    [
        ("each", "host", {"node2"}),
        ("k_batch", "batch", {"node1", "node2"}),
        ("halves", "half", {"node1", "node2", "node3", "node4"}),
    ],
)
def test_other_patterns_name_the_group(pattern: str, kind: str, hosts: set[str]) -> None:
    for seed in SEEDS:
        found = look(steps(pattern, 8, slowest_member({"node2": 0.5}), noise=0.03, seed=seed))
        assert (found.findings[0].part, set(found.findings[0].hosts)) == (kind, hosts), f"seed {seed}"
        assert all("node2" in finding.hosts for finding in found.findings)


def test_chunks_that_round_a_size_differently_are_one_size() -> None:
    """Of four batches the last has a host more, and its ranks make another S of the size that was asked for."""
    asked = 6_291_462 * 4
    values = steps("k_batch", 9, slowest_member({"node2": 0.5}), noise=0.01, seed=1, size=asked)
    for step in values:
        step["size_bytes"] = asked
        for group in step["groups"]:
            group["size_bytes"] = asked // 4 // group["world_size"] * group["world_size"] * 4
    found = look(values)
    assert len(found.groups) == 4 and [set(each.hosts) for each in found.findings] == [{"node1", "node2"}]


def test_the_bisection_is_the_sum_across_the_cut() -> None:
    assert look(steps("halves", 8, HEALTHY, noise=0, seed=0)).bisection_gbps == pytest.approx(40)


def test_what_cannot_be_told_is_said() -> None:
    few = look(steps("pairs", 4, slowest_member({"node3": 0.1}), noise=0, seed=0, repeats=2))
    assert few.findings == () and "set repeats = 3" in few.sentences[0]
    two = look(steps("pairs", 2, HEALTHY, noise=0, seed=0))
    assert "too few groups to compare" in two.sentences[0]
    assert analyse([{"loss": 1.0}, {"groups": [{"hosts": 3}]}], slow_percent=15) is None
    assert analyse([], slow_percent=15) is None


def test_names_of_the_cluster_config_replace_the_hosts_own() -> None:
    values = steps("pairs", 3, slowest_member({"node3": 0.5}), noise=0, seed=0)
    scan = scan_of(values, {0: "10.0.0.1", 1: "10.0.0.2", 2: "10.0.0.3"})
    found = analyse_scan(scan, Bounds(slow_percent=SLOW_PERCENT))
    assert found is not None
    assert found.findings[0].hosts == ("10.0.0.3",)
    cell = found.pair("10.0.0.2", "10.0.0.1")
    assert cell is not None and cell.group == "10.0.0.1-10.0.0.2"
    assert found.pair("10.0.0.1", "10.0.0.1") is None


def test_a_median_has_an_interval_that_says_how_sure_it_is() -> None:
    three = median_of([3.0, 1.0, 2.0])
    assert (three.value, three.low, three.high, three.confidence) == (2.0, 1.0, 3.0, 0.75)
    many = median_of([float(value) for value in range(1, 21)])
    assert (many.value, many.low, many.high) == (10.5, 6.0, 15.0)  # the table of binomial confidence limits
    assert many.confidence == pytest.approx(0.9586, abs=1e-4)
    thousands = median_of([float(value) for value in range(1, 2001)])
    assert (thousands.low, thousands.high) == (956.0, 1045.0)  # 1000.5 -+ 1.96 * sqrt(2000) / 2
    assert median_of([5.0]).confidence == 0
    with pytest.raises(ValueError, match="none given"):
        median_of([])


@pytest.mark.parametrize("pattern", ["each", "k_batch", "pairs"])
def test_older_hosts_alone_or_in_batches_are_compared_with_their_like(pattern: str) -> None:
    old = {f"node{number}": 0.5 for number in (9, 10, 11, 12)}
    kinds = {rank: "new" if rank < 8 else "old" for rank in range(12)}
    for seed in SEEDS:
        values = steps(pattern, 12, slowest_member(old), noise=0.02, seed=seed)
        found = look(values, kinds=kinds)
        assert found.findings == (), f"seed {seed}: {found.sentences}"
        assert found.remarks[0] == "hosts are compared with hosts of their kind: 8 x new, 4 x old"
        assert look(values).findings, "as one kind they are slow"


def test_a_host_without_another_of_its_kind_is_told_and_compared_with_nobody() -> None:
    found = look(
        steps("each", 4, slowest_member({"node4": 0.5}), noise=0, seed=0),
        kinds={0: "new", 1: "new", 2: "new", 3: "old"},
    )
    assert found.findings == ()
    assert found.remarks == (
        "hosts are compared with hosts of their kind: 3 x new, 1 x old; old: with no host of its own kind",
    )
