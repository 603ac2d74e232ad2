"""A case's measurements against its limits and a baseline: what is broken is named, what cannot be compared is said."""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from common.errors import InputProblems
from protocol.baseline_file import Baseline, CaseBaseline, save
from run_benchmarks.plan.resolve import resolve
from run_benchmarks.report.html import write_report
from run_benchmarks.results.comparison import BaselineRecord, BaselineRow
from run_benchmarks.results.records import CaseRecord, RoundRecord
from run_benchmarks.results.standards import Standards, against_baseline, case_baseline, expectations_of, refusal
from run_benchmarks.session.preparation import prepare
from tests.run_benchmarks.conftest import TEST, Load
from tests.run_benchmarks.results.network_rounds import a_round, case
from tests.run_benchmarks.results.rounds import run_record
from tests.training.benchmarks.network.synthetic import slowest_member, steps

FILE = Path("good.json")
PAIRS = case()


def values(seed: int, **factors: float) -> list[dict[str, Any]]:
    found = steps("pairs", 4, slowest_member(factors), noise=0.01, seed=seed)
    return [{**step, "collective": "all_reduce"} for step in found]


def learned(found: RoundRecord) -> CaseBaseline:
    return case_baseline("run1", PAIRS, [found])


def compared(found: RoundRecord, known: CaseBaseline) -> BaselineRecord:
    return against_baseline(PAIRS, [found], FILE, Baseline(saved_ms=0, cases=(known,)), 10)


def test_a_host_all_of_whose_pairs_fell_is_named_once() -> None:
    found = compared(a_round(values(2, node4=0.5)), learned(a_round(values(1))))
    assert found.is_below and len(found.rows) == 6 and sum(row.below for row in found.rows) == 3
    assert len(found.sentences) == 1 and found.sentences[0].startswith("host 10.0.0.4: all its 3 pairs take ")
    assert [row.ratio for row in found.rows if row.below] == pytest.approx([0.5] * 3, abs=0.05)
    assert {(row.unit, row.better) for row in found.rows} == {("us", "lower")}


def test_single_pairs_and_everybody_are_named_as_such() -> None:
    known = learned(a_round(values(1)))
    path = steps("pairs", 4, slowest_member({}, {frozenset({"node1", "node2"}): 0.5}), noise=0.01, seed=2)
    found = compared(a_round([{**step, "collective": "all_reduce"} for step in path]), known)
    assert len(found.sentences) == 1
    assert found.sentences[0].startswith("all_reduce 10.0.0.1-10.0.0.2 at 16M takes ")
    assert 80 < float(found.sentences[0].split()[5]) < 120, "half the rate, and the noise"
    everybody = dict.fromkeys(["node1", "node2", "node3", "node4"], 0.5)
    found = compared(a_round(values(2, **everybody)), known)
    assert len(found.sentences) == 6, "no host stands out where all pairs fell"


def test_what_holds_and_what_cannot_be_compared_is_said() -> None:
    known = learned(a_round(values(1)))
    found = compared(a_round(values(2)), known)
    assert not found.is_below and found.sentences == ["all 6 measurements are within 10 % of the baseline good.json"]
    found = against_baseline(PAIRS, [a_round(values(2))], FILE, Baseline(saved_ms=0, cases=()), 10)
    assert not found.is_below and "has no case of this name and model" in found.sentences[0]
    other = known.model_copy(update={"entries": {}})
    assert "holds none of this case's measurements" in compared(a_round(values(2)), other).sentences[0]
    odd: list[dict[str, Any]] = [
        {"groups": [3, {"time_us": {"p50": "x"}}]},
        {"groups": [{"node_ranks": [9], "hosts": 4}]},
        {"time_us": {"p50": 0.0}, "busbw_GBps": 1.0},
    ]
    assert learned(a_round(odd)).entries == {}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"device": "NVIDIA H200"}, "device AMD EPYC, in the baseline NVIDIA H200"),
        ({"conditions": {"backend": "nccl"}}, "backend None, in the baseline 'nccl'"),
    ],
)
def test_another_device_or_setting_is_said_and_not_compared(change: dict[str, Any], words: str) -> None:
    known = learned(a_round(values(1)))
    slow = a_round(values(2, node4=0.5)).model_copy(update={"devices": ["AMD EPYC"]})
    found = compared(slow, known.model_copy(update={"device": "AMD EPYC"} | change))
    assert found.rows == [] and not found.is_below
    assert found.sentences == [f"not compared with the baseline good.json: it is of {words}"]


def test_a_file_may_have_a_case_once_for_each_device() -> None:
    known = learned(a_round(values(1)))
    theirs = known.model_copy(update={"device": "NVIDIA H200", "entries": {}})
    mine = known.model_copy(update={"device": "AMD EPYC"})
    both = Baseline(saved_ms=0, cases=(theirs, mine))
    found = against_baseline(PAIRS, [a_round(values(2)).model_copy(update={"devices": ["AMD EPYC"]})], FILE, both, 10)
    assert (found.device, len(found.rows)) == ("AMD EPYC", 6)


def test_a_pair_is_compared_in_whichever_round_and_order_it_was_measured() -> None:
    """One host less, or another order of HOSTS, shifts both."""
    three = [host for host in a_round([]).nodes if host.node_rank < 3]
    shifted: list[dict[str, Any]] = []
    for step in values(2, node2=0.5):
        groups = [
            {**group, "group": "-".join(reversed(group["hosts"]))}
            | {name: list(reversed(group[name])) for name in ("hosts", "node_ranks")}
            for group in step["groups"]
            if 3 not in group["node_ranks"]
        ]
        shifted.append({**step, "round": "pairs 9", "groups": groups})
    fewer = a_round(shifted).model_copy(update={"nodes": three})
    found = compared(fewer, learned(a_round(values(1))))
    assert len(found.rows) == 3
    assert found.sentences[0].startswith("host 10.0.0.2: all its 2 pairs take ")
    assert found.sentences[1:] == ["3 more of the measurements in good.json were not made in this run"]


def test_all_hosts_bear_the_cluster_config_s_names() -> None:
    (step,) = steps("all", 2, slowest_member({}), noise=0, seed=1, repeats=1)
    (entry,) = learned(a_round([{**step, **step["groups"][0], "groups": None}])).entries.values()
    assert entry.details["hosts"] == ["10.0.0.1", "10.0.0.2"] and entry.details["group"] == "all"


def test_what_only_a_part_of_is_in_the_file_is_said() -> None:
    known = learned(a_round(values(1)))
    some = known.model_copy(update={"entries": dict(list(known.entries.items())[:4])})
    said = compared(a_round(values(2)), some).sentences
    assert said[0].startswith("all 4 measurements are within") and said[1].startswith("2 more of this case's")


def test_the_report_shows_measured_over_baseline(tmp_path: Path) -> None:
    slow = a_round(values(2, node4=0.5))
    record = PAIRS.model_copy(update={"baseline": compared(slow, learned(a_round(values(1))))})
    page = write_report(tmp_path, run_record({}).model_copy(update={"cases": [record]}), [slow]).read_text()
    assert "host 10.0.0.4: all its 3 pairs take" in page and "10.0.0.1-10.0.0.4" in page


def test_a_baseline_that_could_not_be_saved_is_refused_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "b.json"
    assert refusal(file, overwrite=False) is None
    assert "existing folder" in str(refusal(tmp_path / "no" / "b.json", overwrite=False))
    file.write_text("{}")
    assert "--force" in str(refusal(file, overwrite=False))
    assert refusal(file, overwrite=True) is None
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    assert str(refusal(file, overwrite=True)).endswith("b.json: nothing can be written in its folder")


def test_rows_of_schema_version_2_are_read() -> None:
    old = {"collective": "all_reduce", "size_bytes": 8, "group": "all", "p50_us": 4.0, "baseline_us": 2.0}
    row = BaselineRow.model_validate({**old, "ratio": 0.5, "below": True})
    assert (row.what, row.unit, row.measured, row.baseline, row.below) == ("all_reduce all 8", "us", 4.0, 2.0, True)


def mistakes(load: Load, *lines: str, **fields: object) -> str:
    """What is said of test_conf.py with this case and these lines; "" where nothing is wrong."""
    case = {"model": "network", "framework": "pytorch", "config": "config_CPUx1x2", "nproc": 2} | fields
    try:
        resolve(load("\n".join([*TEST.splitlines()[:3], f"ONE = {case}", *lines]) + "\n"), local_python="python3")
    except InputProblems as error:
        return str(error)
    return ""


def test_a_baseline_setting_that_would_do_nothing_is_an_error(load: Load, tmp_path: Path) -> None:
    good = tmp_path / "good.json"
    (of_one,) = [learned(a_round(values(1))).model_copy(update={"case": "ONE"})]
    save([of_one], good)
    assert mistakes(load, f"BASELINE = {str(good)!r}", "BASELINE_PERCENT = 5") == ""
    save([of_one.model_copy(update={"case": "OTHER"})], good)
    said = mistakes(load, f"BASELINE = {str(good)!r}")
    assert "BASELINE" in said and "it has OTHER; ONE is not compared" in said
    save([of_one.model_copy(update={"conditions": {"backend": "nccl"}})], good)
    assert "is of other settings: backend None, in the baseline 'nccl'" in mistakes(load, f"BASELINE = {str(good)!r}")
    assert "is no baseline" in mistakes(load, f"BASELINE = {str(tmp_path / 'none.json')!r}")
    assert "nothing without BASELINE" in mistakes(load, "BASELINE_PERCENT = 5")


def test_mistakes_in_limits_and_baseline_are_told_with_all_others(load: Load, tmp_path: Path) -> None:
    good = tmp_path / "good.json"
    save([learned(a_round(values(1))).model_copy(update={"case": "OTHER"})], good)
    expect = {"max_busbw_GBsp": ">= 1"}
    said = mistakes(load, f"BASELINE = {str(good)!r}", expect=expect, overrides={"iteratons": 3})
    assert "ONE.overrides.iteratons" in said and "it has OTHER; ONE is not compared" in said
    assert "ONE.expect.max_busbw_GBsp" in said and "did you mean 'max_busbw_GBps'?" in said
    said = mistakes(load, "VENDOR = 'cpuu'", expect=expect)
    assert "VENDOR = 'cpuu'" in said and "did you mean 'max_busbw_GBps'?" in said
    said = mistakes(load, expect=expect, config="config_CPUx9x9")
    assert "config_CPUx9x9" in said and "max_busbw" not in said, "the metrics depend on a file that is not there"


def test_a_relative_baseline_is_relative_to_the_file_that_names_it(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save([learned(a_round(values(1))).model_copy(update={"case": "ONE"})], tmp_path / "good.json")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert tmp_path / "good.json" == load(f"{TEST}BASELINE = 'good.json'\n").test.BASELINE


@pytest.mark.parametrize(
    ("expect", "said"),
    [
        ({"max_busbw_GBps": ">= 1", "min_p50_us": "<= 5 us"}, []),
        ({"max_busbw_GBsp": ">= 1"}, ["ONE.expect.max_busbw_GBsp", "unknown metric; did you mean 'max_busbw_GBps'?"]),
        ({"bisection_GBps": ">= 1"}, ["unknown metric", "metrics of network:pytorch with these settings: "]),
        ({"max_busbw_GBps": ">= 1 us"}, ["expected GB/s as its unit"]),
        ({"max_busbw_GBps": 560}, ["max_busbw_GBps = 560: expected a text such as '>= 560'"]),
        ({"max_busbw_GBps": "about 5"}, ["max_busbw_GBps = 'about 5': expected a text such as"]),
        ({"max_busbw_GBps": "within 200 % of 5"}, ["200 % is no tolerance"]),
        ({"NVIDIA H200": {"max_busbw": ">= 1"}}, ["expect['NVIDIA H200'].max_busbw", "did you mean 'max_busbw_GBps'?"]),
        ({"H200": {}}, ["'H200': expected words of a device's name"]),
        ({"H200": {"e2e_time": "< 9"}, "h200": {"e2e_time": "< 8"}}, ["'h200': the same device as 'H200'"]),
        ({"max_busbw_GBps": ">= 1", "max busbw GBps": ">= 2"}, ["the same metric as 'max_busbw_GBps'"]),
    ],
)
def test_limits_that_mean_nothing_are_refused_before_a_host_is_touched(
    load: Load, expect: dict[str, object], said: list[str]
) -> None:
    found = mistakes(load, expect=expect)
    assert all(words in found for words in said) and bool(found) == bool(said), found


def expectations(
    load: Load, expect: Mapping[str, object], metrics: Mapping[str, Any], device: str = "cpu"
) -> dict[str, tuple[bool, str]]:
    """Whether each limit is met, and the sentence on it, by metric; a list in `metrics` has a value for each round."""
    case = {"model": "network", "framework": "pytorch", "config": "config_CPUx1x2", "nproc": 2, "expect": expect}
    plan = prepare(load("\n".join([*TEST.splitlines()[:3], f"ONE = {case}"]) + "\n"), "run1").plan
    number = max((len(value) for value in metrics.values() if isinstance(value, list)), default=1)
    rounds = [
        {name: value[index] if isinstance(value, list) else value for name, value in metrics.items()}
        for index in range(number)
    ]
    passed = [
        a_round([], **values).model_copy(update={"round": index, "devices": [device]})
        for index, values in enumerate(rounds, start=1)
    ]
    found = expectations_of(plan.cases[0], passed, metrics)
    return {each.metric: (each.met, each.sentence) for each in found}


def test_a_broken_limit_names_metric_value_unit_and_what_was_expected(load: Load) -> None:
    expect = {
        "max_busbw_GBps": "within 5 % of 380",
        "avg_busbw_GBps": ">= 560",
        "min_p50_us": "< 4 us",
        "e2e_time": "< 9",
    }
    metrics = {"max_busbw_GBps": 360.9, "avg_busbw_GBps": 560, "min_p50_us": 4.0, "e2e_time": "NaN"}
    assert expectations(load, expect, metrics) == {
        "max_busbw_GBps": (False, "max_busbw_GBps is 360.9 GB/s, expected within 5 % of 380 (361 to 399 GB/s)"),
        "avg_busbw_GBps": (True, "avg_busbw_GBps is 560 GB/s, expected >= 560 GB/s"),
        "min_p50_us": (False, "min_p50_us is 4 us, expected < 4 us"),
        "e2e_time": (False, "e2e_time was not measured, expected < 9 s"),
    }


def test_each_of_several_values_must_meet_a_limit(load: Load) -> None:
    """Counts are not averaged: a case has the list of them where its rounds differ."""
    found = expectations(load, {"min_p50_us": "< 4", "e2e_time": "< 4"}, {"min_p50_us": [3, 5], "e2e_time": [3, 2]})
    assert found["min_p50_us"] == (False, "min_p50_us is 5 us, expected < 4 us")
    assert found["e2e_time"] == (True, "e2e_time is 3 s, expected < 4 s")


@pytest.mark.parametrize("value", [None, "NaN", math.nan, math.inf, True])
def test_a_limit_is_broken_where_a_round_has_no_number(load: Load, value: object) -> None:
    found = expectations(load, {"min_p50_us": "< 4", "e2e_time": "< 4"}, {"min_p50_us": [3, value], "e2e_time": [3, 3]})
    said = "min_p50_us is 3 us, and was not measured in round 2, expected < 4 us"
    assert found == {"min_p50_us": (False, said), "e2e_time": (True, "e2e_time is 3 s, expected < 4 s")}


def test_of_two_keys_with_as_many_words_both_limits_count(load: Load) -> None:
    """No order of the keys in the file decides which of them is checked."""
    for keys in (("NVIDIA", "H200"), ("H200", "NVIDIA")):
        expect = {key: {"e2e_time": "< 9" if key == "H200" else "< 2"} for key in keys}
        case = {"model": "network", "framework": "pytorch", "config": "config_CPUx1x2", "nproc": 2, "expect": expect}
        plan = prepare(load("\n".join([*TEST.splitlines()[:3], f"ONE = {case}"]) + "\n"), "run1").plan
        ran = a_round([], e2e_time=5).model_copy(update={"devices": ["NVIDIA H200"]})
        held = Standards(None, 10.0).hold(plan.cases[0], [ran], {"e2e_time": 5})
        assert {each.limit: each.met for each in held.expectations} == {"< 9": True, "< 2": False}
        assert held.failures == ("e2e_time is 5 s, expected < 2 s",)


def test_limits_are_per_type_of_device(load: Load) -> None:
    expect = {
        "max_busbw_GBps": ">= 1",
        "NVIDIA": {"max_busbw_GBps": ">= 2"},
        "H200": {"min_p50_us": "< 1"},
        "NVIDIA H200": {"max_busbw_GBps": ">= 3"},
    }

    def limits(device: str) -> list[str]:
        return sorted(
            sentence.partition("expected ")[2] for _, sentence in expectations(load, expect, {}, device).values()
        )

    assert limits("AMD EPYC 7763") == [">= 1 GB/s"]
    assert limits("NVIDIA A100-SXM4-80GB") == [">= 2 GB/s"]
    assert limits("NVIDIA H200") == ["< 1 us", ">= 3 GB/s"]


def test_limits_are_those_of_the_devices_of_all_rounds(load: Load) -> None:
    """A spare host with another device may take part from the second round on."""
    case = {"model": "network", "framework": "pytorch", "config": "config_CPUx1x2", "nproc": 2}
    case["expect"] = {"NVIDIA": {"e2e_time": "< 9"}, "NVIDIA H200": {"e2e_time": "< 4"}}
    plan = prepare(load("\n".join([*TEST.splitlines()[:3], f"ONE = {case}"]) + "\n"), "run1").plan

    def limits(*devices: str) -> set[str]:
        passed = [a_round([], e2e_time=5).model_copy(update={"devices": [name]}) for name in devices]
        return {each.limit for each in expectations_of(plan.cases[0], passed, {"e2e_time": 5})}

    assert limits("NVIDIA H200") == limits("NVIDIA H200", "NVIDIA H200") == {"< 4"}
    assert limits("NVIDIA A100", "NVIDIA H200") == limits("NVIDIA H200", "NVIDIA A100") == {"< 9"}
    assert limits("NVIDIA H200", "AMD EPYC") == set()


def test_limits_for_another_device_are_said_not_to_be_checked(load: Load) -> None:
    case = {"model": "network", "framework": "pytorch", "config": "config_CPUx1x2", "nproc": 2}
    case["expect"] = {"H200": {"max_busbw_GBps": ">= 3"}}
    plan = prepare(load("\n".join([*TEST.splitlines()[:3], f"ONE = {case}"]) + "\n"), "run1").plan
    mine = a_round([]).model_copy(update={"devices": ["AMD EPYC"]})
    held = Standards(None, 10.0).hold(plan.cases[0], [mine], {"max_busbw_GBps": 1.0})
    assert held.failures == () and held.expectations == ()
    assert held.warnings == ("no limit was checked: expect has some for H200, this ran on AMD EPYC",)


def test_case_records_of_schema_version_2_are_read() -> None:
    old = CaseRecord.model_validate(PAIRS.model_dump(exclude={"expectations", "sentences", "warnings"}))
    assert (old.expectations, old.sentences, old.warnings) == ([], [], [])
