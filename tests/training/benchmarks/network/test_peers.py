"""The pattern peers: every two ranks of a host, and the matrix of each host."""

from itertools import combinations
from typing import Any

import pytest

from training.benchmarks.driver.protocol.outcome import MeasuredCase, MeasuredRound, Paragraph, Table
from training.benchmarks.network.peers import peer_blocks, peer_rates
from training.benchmarks.network.pytorch.outcome import OUTCOME
from training.benchmarks.network.schedule import HostRanks, rounds

HOSTS = [HostRanks(node_rank=node, name=f"n{node}", ranks=tuple(range(4 * node, 4 * node + 4))) for node in range(3)]


def steps(slow: tuple[int, int] | None = None) -> list[dict[str, Any]]:
    """What rank 0 logs of two sizes and three repeats: 10 GB/s, 2 GB/s between the ranks `slow`."""
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


@pytest.mark.parametrize("groups", [None, 3, [None], [{"node_ranks": [0]}], [{"node_ranks": 1, "ranks": [1]}]])
def test_what_is_no_group_is_passed_over(groups: Any) -> None:
    assert list(peer_blocks([{"pattern": "peers", "groups": groups}], {}, most=3)) == []
