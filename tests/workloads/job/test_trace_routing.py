"""Tests the routing of a traced job: what one rank sends to another is what the other receives."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.job.routing import Routing, routing


@st.composite
def routings(draw: st.DrawFn) -> tuple[Routing, int, int, str]:
    ep, etp, local = draw(st.integers(1, 6)), draw(st.integers(1, 4)), draw(st.integers(1, 5))
    experts = ep * local
    topk, tokens = draw(st.integers(1, experts)), draw(st.integers(1, 97))
    text = draw(st.sampled_from(["balanced", "zipf:1.2", "zipf:0", "zipf:9"]))
    return routing(text, tokens=tokens, topk=topk, experts=experts, ep=ep, etp=etp), tokens, topk, text


def check_pairs(route: Routing) -> None:
    for tensor in range(route.etp):
        for source in range(route.ep):
            for target in range(route.ep):
                sent = route.sent(source * route.etp + tensor)[target]
                assert sent == route.received(target * route.etp + tensor)[source]
    for rank in range(route.ep * route.etp):
        together = route.received_by_tensor_ranks(rank)
        assert together[rank % route.etp] == sum(route.received(rank))
        assert sum(route.tokens_per_expert(rank)) == sum(together) == sum(map(sum, route.chunks(rank)))


@given(routings())
def test_what_a_rank_sends_is_what_the_other_receives_over_all_pairs(drawn: tuple[Routing, int, int, str]) -> None:
    route, tokens, topk, text = drawn
    check_pairs(route)
    for row in route.counts:
        assert sum(row) == tokens * topk and min(row) >= 0 and max(row) <= tokens
        assert list(row) == sorted(row, reverse=True)
        assert text != "balanced" or max(row) - min(row) <= 1


@given(st.data())
def test_a_file_keeps_uneven_rows_of_each_rank(data: st.DataObject) -> None:
    ep, etp, local = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    tokens = 20
    rows = [
        data.draw(st.permutations([tokens] + [0] * (ep * local - 1)).map(list)) for _ in range(ep * etp)
    ]  # fmt: skip
    check_pairs(Routing(tuple(map(tuple, rows)), ep, etp))


def test_a_file_of_counts_is_read_and_checked(tmp_path: Path) -> None:
    path = tmp_path / "counts.json"
    sizes = {"tokens": 10, "topk": 2, "experts": 4, "ep": 2}
    path.write_text(json.dumps([[10, 6, 4, 0], [0, 0, 10, 10]]))
    route = routing(f"file:{path}", **sizes)
    assert (route.sent(0), route.received(0), route.sent(1), route.received(1)) == ((16, 4), (16, 0), (0, 20), (4, 20))
    path.write_text("[10, 6, 4, 0]")
    assert routing(f"file:{path}", **sizes).counts == ((10, 6, 4, 0),) * 2
    for text in (
        "[11, 5, 4, 0]",
        "[10, 6, 4]",
        "[[10, 6, 4, 0]]",
        "{",
        '["a", 1, 2, 3]',
        "[true, 9, 10, 0]",
        "[]",
        "[" * 100_000,
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"counts\.json"):
            routing(f"file:{path}", **sizes)


@pytest.mark.parametrize("text", ["even", "zipf", "zipf:x", "zipf:-1", "zipf:inf", "file:/nowhere.json", "balanced:1"])
def test_a_routing_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="routing"):
        routing(text, tokens=4, topk=1, experts=2, ep=2)
