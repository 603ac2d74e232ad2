"""Groups, rings and trees: right at any size, and the original's mistakes in its dialect alone."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from simulation.flows.groups import ParallelSizes, megatron_group, megatron_groups, original_group, original_groups
from simulation.flows.names import EVERY_KIND, GROUP_KINDS
from simulation.flows.rings import all_rings
from simulation.flows.trees import all_trees, server_tree

UNTIMED = settings(deadline=None)
RECORDED = Path(__file__).parents[2] / "data" / "aicb" / "unit" / "rank_groups_tp-cp-ep-dp-pp.json"
NAMES = {"TP": "tp", "DP": "dp", "PP": "pp", "EP": "ind_ep", "DP_EP": "ind_dp"}


@pytest.mark.parametrize("case", [case for case in json.loads(RECORDED.read_text()) if case.endswith("cp1")])
def test_groups_are_those_of_megatron(case: str) -> None:
    recorded = json.loads(RECORDED.read_text())[case]
    ranks, tp, pp, ep, _cp = (int(word.lstrip("wstpe")) if word[:2] != "cp" else 1 for word in case.split("_"))
    sizes = ParallelSizes(ranks=ranks, per_server=ranks, tp=tp, pp=pp, ep=ep)
    for kind in GROUP_KINDS:
        found = sorted(list(group.members) for group in megatron_groups(sizes) if group.kind == kind)
        assert found == (sorted(recorded[NAMES[kind]]) if sizes.rank_count(kind) > 1 else [])


@st.composite
def parallel_sizes(draw: st.DrawFn) -> ParallelSizes:
    tp, pp, ep, expert_dp = (draw(st.integers(1, 6)) for _ in range(4))
    ranks = tp * pp * ep * expert_dp
    assume(1 < ranks <= 400)
    per_server = draw(st.sampled_from([size for size in range(1, ranks + 1) if ranks % size == 0]))
    return ParallelSizes(ranks=ranks, per_server=per_server, tp=tp, pp=pp, ep=ep)


@UNTIMED
@given(parallel_sizes())
def test_groups_of_a_kind_hold_every_rank_once_and_stay_in_their_stage(sizes: ParallelSizes) -> None:
    assert not sizes.mistakes().mistakes
    groups = list(megatron_groups(sizes))
    assert [group.number for group in groups] == list(range(len(groups)))
    per_stage = sizes.ranks // sizes.pp
    for kind in GROUP_KINDS:
        of_kind = [group for group in groups if group.kind == kind]
        assert sorted(rank for group in of_kind for rank in group.members) == list(
            range(sizes.ranks if sizes.rank_count(kind) > 1 else 0)
        )
        for group in of_kind:
            assert group == megatron_group(sizes, kind, group.members[-1])
            assert list(group.members) == sorted(group.members)
            assert [rank for ranks in group.servers for rank in ranks] == list(group.members)
            assert all(len({rank // sizes.per_server for rank in ranks}) == 1 for ranks in group.servers)
            assert group.switches == tuple(sizes.ranks + ranks[0] // sizes.per_server for ranks in group.servers)
            stages = [rank // per_stage for rank in group.members]
            assert stages == list(range(sizes.pp)) if kind == "PP" else len(set(stages)) == 1


@UNTIMED
@given(parallel_sizes())
def test_each_ring_visits_every_rank_and_each_tree_spans_them(sizes: ParallelSizes) -> None:
    for kind in GROUP_KINDS:
        if sizes.rank_count(kind) == 1:
            continue
        group = megatron_group(sizes, kind, 0)
        for hops in all_rings(group):
            following = {hop.rank: hop.following for hop in hops}
            rank, seen = group.members[0], []
            for _ in group.members:
                seen.append(rank)
                rank = following[rank]
            assert rank == group.members[0] and sorted(seen) == list(group.members)
            assert all(following[hop.previous] == hop.rank for hop in hops)
            server = [hop.rank // sizes.per_server for hop in hops]
            crossings = sum(1 for hop in hops if hop.rank // sizes.per_server != hop.following // sizes.per_server)
            assert crossings == (0 if len(set(server)) == 1 else len(set(server)))
        entries = [hop.entry for hops in all_rings(group) for hop in hops if hop.rank == hop.entry]
        assert len(set(entries)) == len(entries), "two rings enter a server at the same rank"
        for tree in all_trees(group):
            assert [rank for rank, up in tree.up.items() if up is None] == [tree.root]
            assert sorted(rank for below in tree.down.values() for rank in below) == sorted(
                set(group.members) - {tree.root}
            )


@pytest.mark.parametrize("servers", [1, 2, 3, 4, 5, 6, 7, 8, 16, 17, 100, 1000])
def test_the_two_trees_are_shallow_and_complement_each_other(servers: int) -> None:
    inner = []
    for shift in (0, 1):
        root, children = server_tree(servers, shift)
        level, depth = [root], 0
        reached = [root]
        while level := [child for server in level for child in children[server]]:
            reached += level
            depth += 1
        assert sorted(reached) == list(range(servers)) and depth <= math.ceil(math.log2(servers)) + 1
        inner.append({server for server, below in enumerate(children) if below})
        assert max(map(len, children)) <= 2
    if servers % 2 == 0:
        assert not inner[0] & inner[1], "a server is an inner node of both trees"


def test_expert_groups_exist_at_tp_1_but_not_in_the_original() -> None:
    sizes = ParallelSizes(ranks=16, per_server=8, tp=1, ep=8)
    assert megatron_group(sizes, "EP", 9).members == tuple(range(8, 16))
    assert megatron_group(sizes, "DP_EP", 9).members == (1, 9)
    assert original_group(sizes, "EP", 0) is None and original_group(sizes, "DP_EP", 0) is None


def test_the_groups_of_frameworks_are_unions_and_ends_of_megatrons() -> None:
    sizes = ParallelSizes(ranks=32, per_server=8, tp=2, ep=2, pp=4)
    assert megatron_group(sizes, "ALL", 9).members == tuple(range(32))
    assert megatron_group(sizes, "EP_TP", 9).members == (8, 9, 10, 11)
    assert megatron_group(sizes, "EMBEDDING", 25).members == (1, 25)
    assert [sizes.holds("EMBEDDING", rank) for rank in (7, 8, 23, 24)] == [True, False, False, True]
    found = [group.number for group in megatron_groups(sizes, EVERY_KIND)]
    assert found == list(range(len(found)))
    assert megatron_group(sizes, "ALL", 9).number == found[-1]


def test_tp_24_spans_three_servers() -> None:
    group = megatron_group(ParallelSizes(ranks=72, per_server=8, tp=24), "TP", 30)
    assert group.members == tuple(range(24, 48)) and [len(ranks) for ranks in group.servers] == [8, 8, 8]


def test_a_group_spread_unevenly_loses_ranks_in_the_original_alone() -> None:
    sizes = ParallelSizes(ranks=24, per_server=8, tp=3)
    ours, theirs = megatron_group(sizes, "DP", 0), original_group(sizes, "DP", 0)
    assert theirs is not None and ours.members == theirs.members == tuple(range(0, 24, 3))
    assert [len(ranks) for ranks in ours.servers] == [3, 3, 2]
    assert theirs.servers == ((0, 3), (6, 9), (12, 15))


def test_the_original_repeats_expert_groups_and_lets_them_cross_stages() -> None:
    sizes = ParallelSizes(ranks=16, per_server=8, tp=2, pp=2, ep=2)
    members = [group.members for group in original_groups(sizes) if group.kind == "DP_EP"]
    assert members.count((0, 4)) == 2 and (6, 10) in members  # ranks 0 to 7 and 8 to 15 are stages
    assert all(
        rank // 8 == group.members[0] // 8
        for group in megatron_groups(sizes)
        if group.kind == "DP_EP"
        for rank in group.members
    )
