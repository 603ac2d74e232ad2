from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.benchmarks.network.patterns.schedule import HostRanks, rounds


def cluster(count: int, width: int = 2) -> list[HostRanks]:
    """Hosts h0, h1, ... with `width` ranks each."""
    return [HostRanks(node_rank=k, name=f"h{k}", ranks=tuple(range(k * width, (k + 1) * width))) for k in range(count)]


@given(st.integers(2, 33))
def test_every_pair_meets_exactly_once_and_rounds_are_disjoint(count: int) -> None:
    found = rounds("pairs", cluster(count))
    met = [tuple(host.node_rank for host in group.hosts) for each in found for group in each.groups]
    assert sorted(met) == list(combinations(range(count), 2))
    for each in found:
        assert len(each.groups) == count // 2
        ranks = [rank for group in each.groups for rank in group.ranks]
        assert len(ranks) == len(set(ranks))
    assert len(found) == (count - 1 if count % 2 == 0 else count)


def test_one_rank_or_all_of_a_host() -> None:
    (only,) = rounds("pairs", cluster(2, 4), ranks_per_host="one")
    assert only.groups[0].ranks == (0, 4) and only.groups[0].label == "h0-h1"
    (only,) = rounds("pairs", cluster(2, 4))
    assert only.groups[0].ranks == tuple(range(8))


def test_halves_are_measured_within_and_across() -> None:
    within, across = rounds("halves", cluster(5), ranks_per_host="one")
    assert [group.ranks for group in within.groups] == [(0, 2), (4, 6, 8)]
    assert [group.label for group in across.groups] == ["h0-h2", "h1-h3"]


def test_batches_leave_no_host_alone() -> None:
    def sizes(count: int, batch: int) -> list[int]:
        (only,) = rounds("k_batch", cluster(count), batch_hosts=batch)
        return [len(group.hosts) for group in only.groups]

    assert (sizes(8, 4), sizes(6, 4), sizes(9, 4), sizes(2, 4)) == ([4, 4], [4, 2], [4, 5], [2])


def test_each_and_rails_and_all() -> None:
    hosts = cluster(3, 2)
    assert [group.ranks for group in rounds("each", hosts)[0].groups] == [(0, 1), (2, 3), (4, 5)]
    assert [group.ranks for group in rounds("rail", hosts)[0].groups] == [(0, 2, 4), (1, 3, 5)]
    assert rounds("all", hosts)[0].groups[0].ranks == tuple(range(6))


def test_what_cannot_be_scheduled_is_refused() -> None:
    with pytest.raises(ValueError, match="'pairs' needs 2 hosts or more, found 1"):
        rounds("pairs", cluster(1))
    with pytest.raises(ValueError, match="unknown pattern 'ring'; known: all, each, rail, peers, pairs"):
        rounds("ring", cluster(2))
    with pytest.raises(ValueError, match=r"as many ranks on every host, found \[1, 2\]"):
        rounds("rail", [*cluster(1, 2), HostRanks(node_rank=1, name="h1", ranks=(2,))])


def test_rounds_of_racks_load_their_uplinks_equally() -> None:
    """Of 16 hosts in racks of 4, each round has pairs within the racks alone, or across them alone."""
    for each in rounds("pairs", cluster(16)):
        across = [len({host.node_rank // 4 for host in group.hosts}) == 2 for group in each.groups]
        assert all(across) or not any(across), each.name


def test_every_rail_of_a_pair_is_a_group() -> None:
    found = rounds("rail_pairs", cluster(4, 2))
    assert len(found) == 3 and all(len(each.groups) == 4 for each in found)
    first = found[0].groups[:2]
    assert [(group.label, group.ranks, group.rail) for group in first] == [
        ("h0-h1 rail 0", (0, 2), 0),
        ("h0-h1 rail 1", (1, 3), 1),
    ]
    with pytest.raises(ValueError, match=r"'rail_pairs' needs as many ranks on every host, found \[1, 2\]"):
        rounds("rail_pairs", [*cluster(1, 2), HostRanks(node_rank=1, name="h1", ranks=(2,))])
