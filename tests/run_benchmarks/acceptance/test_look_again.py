"""Faults that accuse no host are looked at on another occasion before they fail a rung."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import pytest

from run_benchmarks.acceptance.climb import Climb, EndedError, Looked
from run_benchmarks.acceptance.rungs import (
    NETWORK,
)
from run_benchmarks.console.language import Words
from tests.run_benchmarks.acceptance.scripted_cluster import Cluster, fault, reason


def test_a_bad_link_fails_its_rung_though_no_host_is_guilty_once_it_is_seen_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("run_benchmarks.acceptance.climb.time.monotonic", count().__next__)
    cluster = Cluster({})
    cluster.sees = {"network1": [fault("n1", "n2")], "network2": [fault("n2", "n1")]}
    found = cluster.climb()
    assert (found.rungs[2].verdict, reason(found.rungs[2])) == ("fail", "pair n1-n2: 60 % slow") and not found.ready
    assert set(found.states().values()) == {"accepted"}, "no host is named"
    assert [name for name, *_ in cluster.asked] == ["single1", "network1", "network2", "network3", "whole1", "whole2"]
    assert found.rungs[2].again_seconds > 0 and found.rungs[1].again_seconds == 0


def test_a_bad_link_that_is_not_seen_again_is_told_and_passes() -> None:
    cluster = Cluster({})
    cluster.sees = {"network1": [fault("n1", "n2")], "network2": [fault("n3", "n4")]}
    found = cluster.climb()
    assert found.ready and found.rungs[2].verdict == "pass"
    (told, later) = found.warned.records()
    assert told.hosts["n1"] == ["seen once: pair n1-n2: 60 % slow"]
    assert later.hosts["n3"] == ["seen once, on the second occasion: pair n3-n4: 60 % slow"]


def told_of(found: Climb, host: str) -> list[str]:
    return [said for each in found.warned.records() for said in each.hosts.get(host, [])]


@pytest.mark.parametrize("again", [True, False])
def test_what_the_second_occasion_beside_suspects_alone_shows_comes_and_goes_and_is_said(again: bool) -> None:
    cluster = Cluster({"network": [{"n2"}, {"n1", "n2"} if again else {"n1"}]})
    cluster.sees = {"network2": [fault("n0", "n3"), fault(part="rack", sentence="rack 7: slow")]}
    network = (found := cluster.climb()).rungs[2]
    assert network.unsteady["n1"] == ["network2: slow", "named on 1 of 2 occasions"]
    assert ([*network.out], "n2" in network.unsteady) == ((["n2"], False) if again else ([], True))
    assert (network.verdict, reason(network)) == ("fail" if again else "pass", "") and not found.ready
    assert found.states()["n1"] == "comes and goes" and "n1" in found.rungs[3].hosts
    assert told_of(found, "n3") == ["seen once, on the second occasion: pair n0-n3: 60 % slow"]
    assert told_of(found, "-") == ["seen once, on the second occasion: rack 7: slow"]
    assert [each.count for each in found.warned.records()] == [0, 2]
    chinese = Words("zh").reason(told_of(found, "-")[0])
    assert chinese == "只出现一次，在第二次测试中：rack 7：slow"
    assert [name for name, *_ in cluster.asked if name.startswith("network")] == ["network1", "network2", "network3"]


def test_a_link_that_two_of_three_occasions_show_fails_its_rung() -> None:
    cluster = Cluster({"network": [{"n2"}, {"n2"}]})
    cluster.sees = {"network1": [fault("n0", "n1")], "network2": [fault("n1", "n0")]}
    network = cluster.climb().rungs[2]
    assert (reason(network), len(network.runs)) == ("pair n0-n1: 60 % slow", 3), "it needs no occasion of its own"
    cluster = Cluster({"network": [{"n2"}, {"n2"}]})
    cluster.sees = {name: [fault(*pair)] for name, pair in zip(
        ("network1", "network2", "network3"), (("n0", "n1"), ("n0", "n3"), ("n3", "n0")), strict=True
    )}  # fmt: skip
    found = cluster.climb()
    assert reason(found.rungs[2]) == "pair n0-n3: 60 % slow" and len(found.rungs[2].runs) == 4
    assert told_of(found, "n1") == ["seen once: pair n0-n1: 60 % slow"] and told_of(found, "n3") == []


def test_a_bad_link_of_a_run_that_failed_with_a_host_alone_is_said() -> None:
    cluster = Cluster({"whole": [{"n3"}]})
    cluster.guilty, cluster.sees = {"n3"}, {"whole1": [fault("n0", "n1")]}
    found = cluster.climb()
    assert [*found.rungs[3].out] == ["n3"] and told_of(found, "n1") == ["seen once: pair n0-n1: 60 % slow"]


@pytest.mark.parametrize(
    ("first", "second", "is_seen"),
    [
        (["n1", "n2"], [["n1", "n3"], ["n2", "n4"]], False),
        (["n1", "n2", "n3"], [["n2", "n3"]], True),
        (["n1"], [["n1"]], True),
        ([], [["n1", "n2"]], False),
        ([], [[]], True),
    ],
)
def test_a_fault_is_seen_again_if_one_of_the_second_occasion_is_like_it(
    first: list[str], second: list[list[str]], is_seen: bool
) -> None:
    cluster = Cluster({})
    cluster.sees = {"network1": [fault(*first)], "network2": [fault(*hosts) for hosts in second]}
    assert (cluster.climb().rungs[2].verdict == "fail") is is_seen
    cluster.sees["network2"] = [fault(*hosts, part="device") for hosts in second]
    assert cluster.climb().rungs[2].verdict == "pass", "another kind of part"


@pytest.mark.parametrize("fails", [False, True])
def test_whom_the_second_look_at_a_link_suspects_comes_and_goes_or_is_not_tested_again(fails: bool) -> None:
    cluster = Cluster({"network": [{"n5"}, set(), {"n4"}]})
    cluster.sees = {"network1": [fault("n1", "n2")]}
    cluster.fails = {"network3"} if fails else set()
    found = cluster.climb()
    once = "named on 1 of {} occasions"  # n4 was not beside n5 on the second one
    said = {"n5": ["network1: slow", once.format(3)]} | ({} if fails else {"n4": ["network3: slow", once.format(2)]})
    assert found.rungs[2].unsteady == said
    assert ("n4: suspected, left in doubt: network3: slow" in found.rungs[2].not_run) is fails
    assert (found.rungs[2].verdict == "fail") is fails


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("at", [0, 1])
def test_whom_two_of_three_occasions_name_is_out(at: int, fails: bool) -> None:
    first = [{"n2"}, {"n1"}]
    cluster = Cluster({"network": [*first, first[at]]})
    cluster.sees = {"network1": [fault("n0", "n3")]}
    cluster.fails = {"network3"} if fails else set()
    found = cluster.climb()
    (host,), (other,) = first[at], first[1 - at]
    often = "named on 2 of 3 occasions"
    assert found.rungs[2].out == {host: [f"network{at + 1}: slow", "again: network3: slow", often]}
    assert found.rungs[2].unsteady == {other: [f"network{2 - at}: slow", "named on 1 of 3 occasions"]}
    assert found.states()[host] == "out" and Words("zh").reason(often) == "3 次测试中有 2 次被指出"
    assert not found.rungs[2].not_run


def test_a_fault_of_a_host_that_the_second_look_takes_out_went_with_it() -> None:
    for seen in ({"network1"}, {"network1", "network2"}):
        cluster = Cluster({})
        cluster.sees = {name: [fault("n1", "n2")] for name in seen}
        cluster.falls_ill = {"network2": "n1"}
        found = cluster.climb()
        assert [*found.rungs[2].out] == ["n1"] and reason(found.rungs[2]) == "" and told_of(found, "n2") == []


def test_a_run_that_failed_is_not_run_again_for_a_link() -> None:
    cluster = Cluster({})
    cluster.sees, cluster.fails = {"network1": [fault("n1", "n2")]}, {"network1"}
    (pairs, *_) = (found := cluster.climb().rungs[2]).runs
    assert reason(found) == "PAIRS: rank 0 failed; pair n1-n2: 60 % slow: not tested again: its run failed"
    assert (pairs, len(found.runs)) == ("run_network1", 2), "one of pairs, one of all links"


@pytest.mark.parametrize("how", ["interrupted", "spent"])
def test_a_bad_link_that_could_not_be_looked_at_again_passes_nothing(how: str) -> None:
    cluster = Cluster({})
    cluster.sees = {"network1": [fault("n1", "n2")]}
    made = cluster.begun()
    if how == "interrupted":
        cluster.ends = "network2"
        with pytest.raises(EndedError):
            made.step(NETWORK)
    else:

        def gate(hosts: Sequence[str]) -> Looked:
            made.budget_s = 0.0
            return Looked()

        made.gate = gate
        made.step(NETWORK)
    (rung,) = made.rungs
    assert rung.verdict != "pass" and reason(rung).startswith("pair n1-n2: 60 % slow: not tested again: ")


def test_a_bad_link_of_a_host_that_is_out_went_with_it() -> None:
    cluster = Cluster({"network": [{"n1"}, {"n1"}]})
    cluster.sees = {"network1": [fault("n1", "n2"), fault("n1", drained=True)]}
    found = cluster.climb()
    assert [*found.rungs[2].out] == ["n1"] and not reason(found.rungs[2])


def test_two_hosts_whose_bits_differ_are_not_ready_though_nobody_knows_which_one_is_wrong() -> None:
    cluster = Cluster({})
    unlike = fault(
        "n1", "n2", part="group", kind="different_results", severity="warning", sentence="n1, n2: bits differ"
    )
    cluster.sees = {"single1": [unlike]}
    found = cluster.climb()
    assert (found.rungs[1].verdict, reason(found.rungs[1])) == ("fail", "n1, n2: bits differ") and not found.ready
    assert found.rungs[1].runs == ["run_single1"], "they are no matter of chance"
    quiet = Cluster({})
    rows = fault("n1", part="device", kind="memory_errors", severity="warning")
    quiet.sees = {
        "single1": [fault("n1", kind="not_run"), fault("n1", severity="warning"), fault("n1", drained=True), rows]
    }
    assert quiet.climb().ready
    later = Cluster({"single": [{"n0"}]})
    later.sees = {"single1": [], "single2": [unlike]}
    assert reason(later.climb().rungs[1]) == "n1, n2: bits differ", "those of a second occasion, too"
    later.fails, later.sees = {"single1"}, {"single1": [unlike], "single2": [unlike]}
    assert reason(later.climb().rungs[1]) == "n1, n2: bits differ", "and of a run that failed, once"
