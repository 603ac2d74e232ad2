"""Packed steps: what they keep of the groups, how small they are, and what a damaged one does."""

import json
from collections.abc import Iterator, Sequence
from statistics import fmean, median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.benchmarks.network.synthetic import slowest_member, steps
from training.benchmarks.network.pytorch import summing
from training.benchmarks.network.pytorch.summing import rows_of
from training.benchmarks.network.reporting import references
from training.benchmarks.network.reporting.references import median_busbw_gbps, named_references
from training.benchmarks.network.slow_parts import packing, readings
from training.benchmarks.network.slow_parts.analysis import analyse
from training.benchmarks.network.slow_parts.packing import (
    PACKED_FROM,
    Packer,
    decode,
    encode,
    time_code,
    time_us_of,
    unpacked,
)
from training.benchmarks.network.slow_parts.readings import scan_of

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


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from([0, 1, 8, 16, 32]), st.sampled_from(["", "reversed", "twice"])),
        min_size=1,
        max_size=6,
    ),
    st.booleans(),
)
def test_packed_groups_find_their_places(drawn: list[tuple[int, int, str]], with_rails: bool) -> None:
    """Rounds whose pairs were there before, in another order, in part, or are there twice."""
    plain = []
    for number, (repeat, begin, order) in enumerate(drawn):
        pairs = [(host, host + 1, host) for host in range(begin, begin + PACKED_FROM)]
        if order:
            pairs = pairs[::-1] if order == "reversed" else pairs[:-1] + pairs[:1]
        times = [dict.fromkeys(packing.TIMES, time_us_of(1000 * number + place + 1)) for place in range(len(pairs))]
        groups = [
            {
                "group": f"node{one}-node{other}" + (f" rail {rail % 2}" if with_rails else ""),
                "hosts": [f"node{one}", f"node{other}"],
                "node_ranks": [one, other],
                **({"rail": rail % 2} if with_rails else {}),
                "world_size": 2,
                "size_bytes": 8000,
                "iterations": 5,
                "stalled_iterations": place % 3,
                "algbw_GBps": 8.0 / own["p50"],
                "busbw_GBps": 8.0 / own["p50"],
                "time_us": own,
            }
            for place, ((one, other, rail), own) in enumerate(zip(pairs, times, strict=True))
        ]
        plain.append({"pattern": "pairs", "round": f"{number}", "repeat": repeat, "size_bytes": 8000, "groups": groups})
    kept = packed(plain)
    assert all("packed" in step for step in kept)
    want, found = (scan_of(steps, None).sizes[8000] for steps in (plain, kept))
    assert found.members == want.members and found.rails == want.rails and found.rounds == want.rounds
    assert found.world_sizes == want.world_sizes and list(found.work) == pytest.approx(list(want.work))
    for name, columns in want.columns.items():
        for one, other in zip(columns, found.columns[name], strict=True):
            assert list(other) == pytest.approx(list(one), rel=1e-6, nan_ok=True)


@pytest.mark.parametrize(
    "damage",
    [
        {"groups": 3},
        {"p50": "AAAA"},
        {"p50": "AAA="},
        {"p50": "not base64"},
        {"p50": None},
        {"world_size": 1 << 40},
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
    once = [step for step in kept if step["repeat"] == 1]
    assert len(scan_of(once, None).of_size(size)) < len(whole.sizes[size]), "no group is there without a time"
    assert analyse(once, slow_percent=15) is not None


def test_groups_without_a_time_in_any_repeat_are_left_out() -> None:
    once = [step for step in packed(logged()) if step["repeat"] == 1]
    every = len(scan_of(once, None).of_size(1 << 24))
    once[0]["packed"] |= {"p50": encode([0] * (HOSTS // 2))}
    assert len(scan_of(once, None).of_size(1 << 24)) == every - HOSTS // 2
    assert analyse(once, slow_percent=15) is not None


def test_more_groups_than_fit_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = packed(logged())
    monkeypatch.setattr(readings, "_MAX_CELLS", 100)
    scan = scan_of(kept, None)
    assert 0 < len(scan.of_size(1 << 24)) * scan.sizes[1 << 24].repeats <= 100
    assert analyse(kept, slow_percent=15) is not None


@pytest.mark.parametrize("damage", [{"groups": 3}, {"groups": 18, "stalled_iterations": {"17": 1}}, {"p50": "AAAA"}])
def test_a_damaged_step_of_a_later_repeat_is_skipped(damage: dict[str, Any]) -> None:
    kept = packed(logged())
    last = kept[-1]
    assert any(step["packed"]["node_ranks"] == last["packed"]["node_ranks"] for step in kept[:-1])
    last["packed"] = last["packed"] | damage
    found, want = (scan_of(steps, None).sizes[1 << 24] for steps in (kept, kept[:-1]))
    found.complete()
    want.complete()
    assert found.columns == want.columns


@pytest.mark.parametrize("is_barrier", [False, True])
@pytest.mark.parametrize("wrong", [False, True])
def test_finished_and_each_host_s_figure_are_those_of_a_loop_over_all_rows(
    wrong: bool, is_barrier: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of packed steps no more than the fastest row is unpacked: a scan of 1,024 hosts has three million."""
    whole = logged(node7=0.5)
    for step in whole if is_barrier else ():
        step["size_bytes"] = 0
        for group in step["groups"]:
            group |= {"size_bytes": 0, "algbw_GBps": 0.0, "busbw_GBps": 0.0}
    if wrong:
        whole[3]["groups"][5]["correct"] = whole[3]["correct"] = "fail"
    kept = json.loads(json.dumps(packed(whole)))
    every = [row for step in kept for row in rows_of(step)]
    of_host: dict[str, list[float]] = {}
    for row, own in zip(every, (group for step in whole for group in step["groups"]), strict=True):
        for host in own["hosts"]:
            of_host.setdefault(f"user's {host}", []).append(row["busbw_GBps"])
    asked: list[int] = []

    def few(step: dict[str, Any], names: dict[int, str], places: Sequence[int]) -> Iterator[dict[str, Any]]:
        asked.append(len(places))
        return unpacked(step, names, places)

    monkeypatch.setattr(summing, "unpacked", few)
    found, sizes = summing.summary(kept)
    assert found == {
        "correct": "fail" if wrong else "pass",
        "max_busbw_GBps": max(row["busbw_GBps"] for row in every),
        "peak_size_bytes": 0 if is_barrier else 1 << 24,
        "avg_busbw_GBps": pytest.approx(fmean(row["busbw_GBps"] for row in every), rel=1e-12),
        "max_algbw_GBps": max(row["algbw_GBps"] for row in every),
        "min_p50_us": min(row["time_us"]["p50"] for row in every),
    }
    assert sizes == [0 if is_barrier else 1 << 24] * wrong and asked == [1] * len(kept)
    monkeypatch.setattr(references, "unpacked", None)
    names = {rank: f"user's node{rank + 1}" for rank in range(HOSTS)}
    assert median_busbw_gbps(kept, names) == pytest.approx({host: median(own) for host, own in of_host.items()})
    assert median_busbw_gbps(whole, names) == pytest.approx(median_busbw_gbps(kept, names), rel=1e-3)


def test_a_damaged_packed_step_has_no_host_s_figure() -> None:
    kept, names = packed(logged()), {rank: f"host {rank}" for rank in range(HOSTS)}
    for damage in ({"groups": 5}, {"p50": "?"}, {"size_bytes": None}):
        step = kept[0] | {"packed": kept[0]["packed"] | damage}
        assert median_busbw_gbps([step, *kept[1:]], names) == median_busbw_gbps(kept[1:], names)
