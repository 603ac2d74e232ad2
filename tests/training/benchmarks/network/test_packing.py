"""Packed steps: what they keep of the groups, how small they are, and what a damaged one does."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.benchmarks.network.synthetic import slowest_member, steps
from training.benchmarks.network import packing
from training.benchmarks.network.analysis import analyse
from training.benchmarks.network.packing import Packer, decode, encode, time_code, time_us_of, unpacked
from training.benchmarks.network.readings import scan_of
from training.benchmarks.network.references import named_references

HOSTS = 34  # 17 groups a round


def logged(pattern: str = "pairs", **faults: float) -> list[dict[str, Any]]:
    """Steps as rank 0 makes them, before they are packed."""
    found = steps(pattern, HOSTS, slowest_member(faults), noise=0.02, seed=1)
    for step in found:
        step["size_bytes"], step["correct"] = 1 << 24, "pass"
        for number, group in enumerate(step["groups"]):
            p50 = group["time_us"]["p50"]
            group["time_us"] = {name: p50 * (0.97 + 0.01 * k) for k, name in enumerate(packing.TIMES)} | {"p50": p50}
            group |= {
                "iterations": 20,
                "stalled_iterations": int(number == 3 and step is found[0]),
                "correct": "pass",
                "dtype": "float32",
            }
            group["algbw_GBps"] = group["busbw_GBps"]
    return found


def packed(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    packer = Packer()
    return [packer.packed(step) for step in found]


@given(st.floats(2e-3, 1e9))
def test_a_time_keeps_its_value_within_a_fiftieth_of_a_percent(time_us: float) -> None:
    assert time_us_of(time_code(time_us)) == pytest.approx(time_us, rel=2.2e-4)


@given(st.lists(st.integers(0, 0xFFFF)))
def test_a_column_holds_its_numbers(numbers: list[int]) -> None:
    assert list(decode(encode(numbers))) == numbers


def test_a_packed_step_keeps_its_groups_in_few_bytes() -> None:
    whole = logged()
    names: dict[int, str] = {}
    for step, kept in zip(whole, json.loads(json.dumps(packed(whole))), strict=True):
        names |= packing.host_names(kept)
        assert "groups" not in kept
        assert len(json.dumps(kept["packed"])) < 30 * len(step["groups"]) + 500
        for before, after in zip(step["groups"], unpacked(kept, names), strict=True):
            for name in ("group", "hosts", "node_ranks", "size_bytes", "world_size", "stalled_iterations", "correct"):
                assert after[name] == before[name]
            assert after["time_us"] == pytest.approx(before["time_us"], rel=1e-3)
            assert after["busbw_GBps"] == pytest.approx(before["busbw_GBps"], rel=1e-3)
    assert names == {rank: f"node{rank + 1}" for rank in range(HOSTS)}


def test_packed_and_plain_steps_give_the_same_findings() -> None:
    whole = logged(node7=0.5)
    plain, kept = analyse(whole, slow_percent=15), analyse(packed(whole), slow_percent=15)
    assert plain is not None and kept is not None
    assert [(each.subject, each.kind) for each in kept.findings] == [("host node7", "constant")]
    assert kept.findings[0].subject == plain.findings[0].subject
    assert kept.findings[0].share_of_expected == pytest.approx(plain.findings[0].share_of_expected, rel=1e-3)
    assert len(kept.groups) == HOSTS * (HOSTS - 1) // 2 and kept.hosts == plain.hosts


def test_packed_steps_give_the_references_of_a_baseline() -> None:
    whole = logged()
    names = {rank: f"10.0.0.{rank}" for rank in range(HOSTS)}
    plain, kept = named_references([(whole, names)]), named_references([(packed(whole), names)])
    pairs = HOSTS * (HOSTS - 1) // 2
    assert len(plain) == len(kept) == pairs
    for before, after in zip(plain.values(), kept.values(), strict=True):
        assert (
            after.value == pytest.approx(before.value, rel=1e-3) and after.details["hosts"] == before.details["hosts"]
        )
    damaged = [step | {"packed": {}} for step in packed(whole)]
    assert named_references([(damaged, names)]) == {}


def test_few_or_unlike_groups_stay_as_they_are() -> None:
    step = logged()[0]
    few = step | {"groups": step["groups"][:4]}
    assert Packer().packed(few) == few
    step["groups"][2]["world_size"] = 3
    assert Packer().packed(step) == step


def test_groups_with_wrong_data_are_kept_whole() -> None:
    step = logged()[0]
    step["correct"] = step["groups"][5]["correct"] = "fail"
    step["groups"][5]["wrong_elements"] = 7
    kept = Packer().packed(step)
    assert kept["wrong"] == [step["groups"][5]]
    assert [row["correct"] for row in unpacked(kept, {})].index("fail") == 5
    assert [row["correct"] for row in unpacked(kept, {})].count("fail") == 1


@pytest.mark.parametrize(
    "damage",
    [
        {"groups": 3},
        {"p50": "AAAA"},
        {"p50": "not base64"},
        {"p50": None},
        {"hosts": 0},
        {"node_ranks": ""},
        {"stalled_iterations": [1]},
        {"stalled_iterations": {"x": 1}},
        {"size_bytes": None},
        {"busbw_over_algbw": "much"},
    ],
)
def test_a_damaged_step_is_skipped(damage: dict[str, Any]) -> None:
    kept = packed(logged())
    whole = scan_of(kept, None)
    kept[0]["packed"] = kept[0]["packed"] | damage
    kept[0]["host_names"] = {"9" * 5000: "no rank", "x": "none"}
    del kept[0]["size_bytes"]
    found = scan_of(kept, None)
    (size,) = whole.sizes
    assert len(found.sizes[size]) == len(whole.sizes[size])
    assert (found.sizes[size].stalled[0], whole.sizes[size].stalled[0]) == ({}, {3: 1})
    assert analyse(kept, slow_percent=15) is not None
