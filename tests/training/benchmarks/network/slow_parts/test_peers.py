"""The pattern peers: every two ranks of a host, and the matrix of each host."""

import random
from itertools import combinations, product
from typing import Any

import pytest

from protocol.outcome import MeasuredCase, MeasuredRound, Paragraph, Table
from tests.tiers import samples
from training.benchmarks.network.patterns.schedule import HostRanks, rounds
from training.benchmarks.network.pytorch.outcome import OUTCOME
from training.benchmarks.network.slow_parts.analysis import analyse
from training.benchmarks.network.slow_parts.findings import told
from training.benchmarks.network.slow_parts.peers import peer_blocks, peer_rates

HOSTS = [HostRanks(node_rank=node, name=f"n{node}", ranks=tuple(range(4 * node, 4 * node + 4))) for node in range(3)]


def steps(slow: tuple[int, int] | None = None) -> list[dict[str, Any]]:
    """What rank 0 logs of two sizes and three repeats: 10 GB/s, 2 GB/s between the ranks `slow`; no times."""
    found = []
    for repeat in (1, 2, 3):
        for each in rounds("peers", HOSTS):
            for size in (8, 1 << 20):
                groups = [
                    {
                        "group": group.label,
                        "hosts": [host.name for host in group.hosts],
                        "node_ranks": [host.node_rank for host in group.hosts],
                        "ranks": list(group.ranks),
                        "size_bytes": size,
                        "busbw_GBps": (2.0 if group.ranks == slow else 10.0) + 0.1 * repeat if size > 8 else 0.01,
                    }
                    for group in each.groups
                ]
                found.append({"pattern": "peers", "repeat": repeat, "round": each.name, "groups": groups})
    return found


def test_every_pair_of_a_hosts_ranks_meets_once_alone_on_its_host() -> None:
    found = rounds("peers", HOSTS)
    for host in HOSTS:
        met = [group.ranks for each in found for group in each.groups if group.hosts[0].name == host.name]
        assert met == list(combinations(host.ranks, 2))
    assert all([group.hosts[0].name for group in each.groups] == ["n0", "n1", "n2"] for each in found)
    assert found[1].groups[2].label == "n2 0-2"


@pytest.mark.parametrize("ranks", [(1, 1), (2, 3)])
def test_hosts_without_pairs_are_refused(ranks: tuple[int, int]) -> None:
    hosts = [HostRanks(node_rank=n, name=f"n{n}", ranks=tuple(range(count))) for n, count in enumerate(ranks)]
    with pytest.raises(ValueError, match="pattern 'peers' needs"):
        rounds("peers", hosts)


def test_the_host_with_the_slowest_pair_is_shown_first_by_local_ranks() -> None:
    assert peer_rates(steps((5, 7)))[1][5, 7] == 2.2
    table, *others = peer_blocks(steps((5, 7)), {0: "a", 1: "b", 2: "c"}, most=2)
    assert isinstance(table, Table) and table.title.startswith("b: busbw between its ranks")
    assert table.columns == ("", "0", "1", "2", "3")
    assert [[cell.value for cell in row] for row in table.rows] == [
        ["0", "", 10.2, 10.2, 10.2],
        ["1", 10.2, "", 10.2, 2.2],
        ["2", 10.2, 10.2, "", 10.2],
        ["3", 10.2, 2.2, 10.2, ""],
    ]
    assert len(others) == 2 and isinstance(others[1], Paragraph) and others[1].text.startswith("1 more hosts")


def test_console_and_report_show_the_matrices_and_nothing_else_is_compared() -> None:
    case = MeasuredCase(name="P", config={"slow_percent": 15.0, "pattern": "peers"}, nnodes=3, nproc=4)
    measured = MeasuredRound(number=1, metrics={}, steps=steps(), hosts={0: "a", 1: "b", 2: "c"})
    assert OUTCOME.findings(case, measured) == []
    for blocks in (OUTCOME.console(case, measured), OUTCOME.report(case, measured)):
        assert sum(isinstance(block, Table) and "between its ranks" in block.title for block in blocks) == 3


Rates = dict[tuple[int, ...], float]  # by (node rank), (node rank, local rank) or (node rank, two local ranks)


def timed(hosts: int, width: int, factors: Rates, seed: int, *, is_numa: bool = False) -> list[dict[str, Any]]:
    """Steps with times: 20 GB/s and 4 us, times the least of the factors that apply; 2 % noise.

    `is_numa`: half of that, and 2 us more, between the first and the second half of a host's ranks.
    """
    draw = random.Random(seed)
    line = [
        HostRanks(node_rank=node, name=f"n{node}", ranks=tuple(range(width * node, width * (node + 1))))
        for node in range(hosts)
    ]
    found = []
    for repeat, each in product((1, 2, 3), rounds("peers", line)):
        for size in (8, 4 << 20):
            groups = []
            for group in each.groups:
                node = group.hosts[0].node_rank
                one, other = (rank - width * node for rank in group.ranks)
                keys = [(node,), (node, one), (node, other), (node, one, other)]
                factor = min(factors.get(key, 1.0) for key in keys)
                is_far = is_numa and (one < width // 2) != (other < width // 2)
                middle = (4.0 + 2.0 * is_far) + size / (20e3 * factor * (0.5 if is_far else 1.0))
                middle *= draw.lognormvariate(0, 0.02)
                groups.append(
                    {
                        "group": group.label,
                        "hosts": [host.name for host in group.hosts],
                        "node_ranks": [node],
                        "ranks": list(group.ranks),
                        "world_size": 2,
                        "size_bytes": size,
                        "iterations": 20,
                        "busbw_GBps": size / middle / 1e3,
                        "time_us": {"p25": 0.98 * middle, "p50": middle, "p75": 1.02 * middle, "max": 1.1 * middle},
                    }
                )
            found.append(
                {"pattern": "peers", "repeat": repeat, "round": each.name, "size_bytes": size, "groups": groups}
            )
    return found


def named(values: list[dict[str, Any]]) -> list[str]:
    found = analyse(values, slow_percent=15.0)
    assert found is not None
    return [each.subject for each in found.findings]


@pytest.mark.parametrize("is_numa", [False, True])
@pytest.mark.parametrize(("hosts", "width"), [(1, 4), (1, 8), (2, 4), (4, 2), (4, 4), (16, 8)])
def test_healthy_hosts_raise_no_alarm(hosts: int, width: int, is_numa: bool) -> None:
    for seed in samples(2, 50):
        assert named(timed(hosts, width, {}, seed, is_numa=is_numa)) == [], f"seed {seed}"


@pytest.mark.parametrize("is_numa", [False, True])
@pytest.mark.parametrize(
    ("hosts", "width", "factors", "subject"),
    [
        (4, 4, {(2, 1): 0.5}, "n2 local rank 1"),
        (4, 4, {(2, 1, 3): 0.5}, "n2 local ranks 1-3"),
        (4, 4, {(2,): 0.5}, "host n2"),
        (4, 2, {(3, 0, 1): 0.5}, "n3 local ranks 0-1"),
        (1, 8, {(0, 5): 0.4}, "n0 local rank 5"),
        (1, 8, {(0, 2, 3): 0.4}, "n0 local ranks 2-3"),
        (16, 8, {(9, 7): 0.7}, "n9 local rank 7"),
    ],
)
def test_a_bad_rank_link_or_host_is_named_and_nothing_else(
    hosts: int, width: int, factors: Rates, subject: str, is_numa: bool
) -> None:
    for seed in samples(2, 30):
        assert named(timed(hosts, width, factors, seed, is_numa=is_numa)) == [subject], f"seed {seed}"


def test_a_bad_link_within_a_host_goes_from_rank_0_to_the_drain_list() -> None:
    values = timed(4, 4, {(2, 1, 3): 0.5}, 1)
    found = analyse(values, slow_percent=15.0)
    assert found is not None and found.groups == ()
    (finding,) = found.findings
    assert finding.evidence.endswith("slow at 4M") and finding.share_of_expected == pytest.approx(0.5, abs=0.05)
    case = MeasuredCase(name="P", config={"slow_percent": 15.0, "pattern": "peers"}, nnodes=4, nproc=4)
    names = {node: f"10.0.0.{node}" for node in range(4)}
    measured = MeasuredRound(number=1, metrics=told(found.findings), steps=values, hosts=names)
    (passed_on,) = OUTCOME.findings(case, measured)
    assert (passed_on.part, passed_on.device) == ("device", "local ranks 1-3")
    assert passed_on.drained_hosts == ("10.0.0.2",)
    assert OUTCOME.assess(case, [measured]).sentences == (passed_on.sentence,)
    titles = [block.title for block in OUTCOME.report(case, measured) if isinstance(block, Table)]
    assert titles[0].startswith("10.0.0.2: ") and len(titles) == 4, "the matrices, and no table of groups"


@pytest.mark.parametrize("label", ["n0", "n0 1-1", "n0 a-b", "n0 1-2-3", ""])
def test_labels_that_tell_no_two_ranks_are_passed_over(label: str) -> None:
    values = timed(3, 2, {}, 1)
    for step in values:
        for group in step["groups"]:
            group["group"] = label
    assert named(values) == []


@pytest.mark.parametrize("groups", [None, 3, [None], [{"node_ranks": [0]}], [{"node_ranks": 1, "ranks": [1]}]])
def test_what_is_no_group_is_passed_over(groups: Any) -> None:
    assert list(peer_blocks([{"pattern": "peers", "groups": groups}], {}, most=3)) == []
