"""The order of an acceptance: gates, confirmation beside good hosts, the budget, and what ends it early."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from run_benchmarks.acceptance.climb import TWO_HOSTS, Climb, EndedError, Looked
from run_benchmarks.acceptance.rungs import (
    HEALTH,
    NETWORK,
    RAILS,
    RUNGS,
    SINGLE,
    Cases,
    Others,
    soak_of,
    soak_times,
    stages_of,
)
from run_benchmarks.acceptance.suspects import OfDevice, Suspects
from run_benchmarks.console.language import Words
from run_benchmarks.results.loading import LoadedRun
from run_benchmarks.results.records import FirstFailure, Verdict
from tests.run_benchmarks.acceptance.scripted_cluster import HOSTS, Cluster, fault, reason
from tests.run_benchmarks.results.network_rounds import a_round


def test_a_healthy_cluster_is_ready_and_nobody_is_tested_twice() -> None:
    cluster = Cluster({})
    found = cluster.climb()
    assert found.ready and set(found.states().values()) == {"accepted"}
    assert [cases for _, cases, _ in cluster.asked[3:]] == [["ACCEPT_TRAINING"], ["ACCEPT_SOAK"]]
    assert [name for name, _, _ in cluster.asked] == ["single1", "network1", "network2", "whole1", "whole2"]
    assert all(hosts == HOSTS for _, _, hosts in cluster.asked)


def test_a_host_that_a_rung_takes_out_takes_part_in_none_after_it() -> None:
    cluster = Cluster({"single": [{"n4"}, {"n4"}]}, sick={"n0": ["disk: full"]})
    found = cluster.climb()
    assert found.states() == {"n0": "out", "n4": "out"} | {f"n{n}": "accepted" for n in (1, 2, 3, 5)}
    assert not found.ready
    by_name = {name: hosts for name, _, hosts in cluster.asked}
    assert by_name["single1"] == ["n1", "n2", "n3", "n4", "n5"]
    assert by_name["single2"] == ["n1", "n2", "n3", "n4"], "the suspect again, beside three good hosts"
    assert by_name["whole1"] == ["n1", "n2", "n3", "n5"]
    assert found.proofs == [(run, "ACCEPT_DEVICES") for run in found.rungs[1].runs], "of the runs without it, none"


def diagnosed(cluster: Cluster) -> Climb:
    """A climb of hosts with a diagnosis for the rung of health."""
    made = cluster.begun()
    made.tools = {HEALTH: Others(names=["dcgmi"], missing=["rvs is not installed on any host"], commands=["dcgmi"])}
    return made


def test_the_diagnostics_of_the_vendor_are_a_run_of_health_whose_suspects_are_confirmed() -> None:
    cluster = Cluster({"health": [{"n2", "n3"}, {"n2"}]}, sick={"n0": ["disk: full"]})
    (made := diagnosed(cluster)).step(HEALTH)
    (health,) = made.rungs
    by_name = {name: (cases, hosts) for name, cases, hosts in cluster.asked}
    assert by_name == {
        "health1": (["ACCEPT_TOOLS"], ["n1", "n2", "n3", "n4", "n5"]),
        "health2": (["ACCEPT_TOOLS"], ["n1", "n2", "n3", "n4", "n5"]),
    }
    assert health.out == {"n0": ["disk: full"], "n2": ["health1: slow", "again: health2: slow"]}
    assert [*health.unsteady] == ["n3"] and health.verdict == "fail"
    assert health.not_run == ["clock of n0: no tool", "rvs is not installed on any host"]
    assert (health.runs, health.tools) == (["run_health1", "run_health2"], ["dcgmi"])
    (whole := diagnosed(Cluster({}))).step(HEALTH)
    assert whole.rungs[0].verdict == "pass" and whole.rungs[0].runs == ["run_health1"]
    (failing := Cluster({})).fails = {"health1"}
    (made := diagnosed(failing)).step(HEALTH)
    assert made.rungs[0].verdict == "fail" and reason(made.rungs[0]) == "PAIRS: rank 0 failed"


def test_who_is_sick_fails_health_though_its_diagnostics_end_early_and_nobody_is_accepted() -> None:
    cluster = Cluster({}, sick={"n0": ["disk: full"]})
    cluster.ends = "health1"
    made = diagnosed(cluster)
    with pytest.raises(EndedError):
        made.step(HEALTH)
    assert made.rungs[0].verdict == "fail" and "interrupted" in reason(made.rungs[0])
    assert made.states() == dict.fromkeys(HOSTS, "not tested") | {"n0": "out"}


def test_an_occasion_after_which_the_gate_ended_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster({"network": [{"n5"}, set()]})
    cluster.sees = {"network1": [fault("n1", "n2")]}
    made, gate = cluster.begun(), cluster.gate

    def ends(hosts: Sequence[str]) -> Looked:
        if cluster.asked[-1][0] == "network3":
            raise EndedError("no host answers")
        return gate(hosts)

    made.gate = ends
    with pytest.raises(EndedError):
        made.step(NETWORK)
    assert made.rungs[0].unsteady == {"n5": ["network1: slow", "named on 1 of 2 occasions"]}


def test_whom_each_occasion_names_for_another_device_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_devices(run: LoadedRun, limit: float, usual: object) -> Suspects:
        said = OfDevice(f"{run.folder.name}: slow")
        said.devices = frozenset([run.folder.name])
        return {"n2": [said]} if run.folder.name.startswith("run_single") else {}

    monkeypatch.setattr("run_benchmarks.acceptance.climb.suspects_of", of_devices)
    made = Cluster({}).begun()
    made.step(SINGLE)
    assert made.rungs[0].unsteady["n2"][2:] == ["named on 2 of 2 occasions", "each time another device"]
    assert Words("zh").reason("each time another device") == "每次都是另一个设备"


def test_a_soak_fills_what_is_left_of_the_budget_and_tells_of_suspects_like_a_training() -> None:
    assert [soak_times(room, 60) for room in (100, 200, 600, 1e6)] == [0, 0, 7, 30], "0.7 of the room, half an hour"
    (training,) = stages_of("whole", "cpu", HOSTS, 1)
    soak = soak_of(training, 7)["ACCEPT_SOAK"]
    case = training["ACCEPT_TRAINING"]
    assert soak == case | {"overrides": case["overrides"] | {"max_steps": 7 * case["overrides"]["max_steps"]}}
    short = Cluster({}).climb(budget=4.0)
    assert short.ready and len(short.rungs[3].runs) == 1 and short.rungs[3].soak_seconds == 0
    slow = Cluster({"whole": [set(), {"n2"}, {"n2"}]}).climb()
    assert list(slow.rungs[3].out) == ["n2"] and len(slow.rungs[3].runs) == 3 and not slow.ready


def test_a_soak_is_sized_by_the_training_that_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first training fails after 12 s; without the host that it suspects one passes in 200 s, with it, too."""
    clock = [0.0]
    monkeypatch.setattr("run_benchmarks.acceptance.climb.time.monotonic", lambda: clock[0])
    cluster = Cluster({"whole": [{"n2"}]})
    cluster.fails = {"whole1"}
    run = cluster.run

    def timed(name: str, cases: Cases, hosts: Sequence[str], seconds: int) -> LoadedRun:
        clock[0] += 12.0 if name == "whole1" else 200.0
        return run(name, cases, hosts, seconds)

    monkeypatch.setattr(cluster, "run", timed)
    cluster.climb(budget=7200.0)
    assert cluster.asked[-1][1] == ["ACCEPT_SOAK"] and [*clock] == [12.0 + 200.0 * (len(cluster.asked) - 1)]
    assert cluster.steps[-1] == 9 * cluster.steps[0], "half an hour of trainings of 200 s, not of 12"


def test_a_host_that_falls_ill_during_a_run_is_taken_out_by_the_gate_after_it() -> None:
    cluster = Cluster({})
    cluster.falls_ill = {"network1": "n2"}
    found = cluster.climb()
    (said,) = found.rungs[2].out["n2"]
    assert said == "after run_network1, one round of ACCEPT_PAIRS: XID: 79"
    assert Words("zh").reason(said) == "run_network1（ACCEPT_PAIRS 各一轮）之后：XID：79"
    other = Cluster({})
    other.falls_ill = {"network2": "n3"}
    (said,) = other.climb().rungs[2].out["n3"]
    assert said == "after run_network2, one round of ACCEPT_ALL_REDUCE, ACCEPT_ALL_TO_ALL: XID: 79"
    assert [hosts for name, _, hosts in cluster.asked if name == "network2"] == [["n0", "n1", "n3", "n4", "n5"]]
    assert found.states()["n2"] == "out" and not found.ready


def test_what_could_not_be_looked_at_is_in_the_record() -> None:
    found = Cluster({}, sick={"n0": ["disk: full"]}).climb()
    assert found.rungs[0].not_run == ["clock of n0: no tool"]
    assert found.rungs[1].not_run == ["data_read, data_write: no case of CASES has a data_dir_host"]


def test_a_suspect_that_is_good_on_the_second_occasion_comes_and_goes() -> None:
    cluster = Cluster({"network": [{"n2"}, set()]})
    found = cluster.climb()
    assert found.states()["n2"] == "comes and goes"
    assert not found.ready and found.rungs[2].verdict == "pass"
    assert "n2" in {name: hosts for name, _, hosts in cluster.asked}["whole1"], "it is not taken out"


def test_wrong_bits_take_a_host_out_at_once_as_they_may_not_come_again() -> None:
    cluster = Cluster({"single": [{"n2"}]})
    cluster.kind = "different_results"
    found = cluster.climb()
    assert found.rungs[1].out == {"n2": ["single1: slow"]}
    assert "single2" not in [name for name, _, _ in cluster.asked] and found.states()["n2"] == "out"


def test_the_network_is_loaded_as_a_whole_by_the_hosts_that_the_pairs_left() -> None:
    cluster = Cluster({"network": [{"n1"}, {"n1"}]})
    found = cluster.climb()
    asked = [(name, cases, hosts) for name, cases, hosts in cluster.asked if name.startswith("network")]
    assert [cases for _, cases, _ in asked] == [
        ["ACCEPT_PAIRS"], ["ACCEPT_PAIRS"], ["ACCEPT_ALL_REDUCE", "ACCEPT_ALL_TO_ALL"],
    ]  # fmt: skip
    assert "n1" not in asked[2][2]
    assert found.rungs[2].runs == ["run_network1", "run_network2", "run_network3"]


def test_a_rung_that_fails_without_a_suspect_says_why() -> None:
    cluster = Cluster({})
    cluster.fails = {"whole1"}
    found = cluster.climb()
    assert (found.rungs[3].verdict, reason(found.rungs[3])) == ("fail", "PAIRS: rank 0 failed")
    assert not found.ready


def test_a_failure_that_goes_with_a_host_takes_it_out_and_the_others_are_tested() -> None:
    cluster = Cluster({"whole": [{"n3"}]})
    cluster.guilty = {"n3"}
    found = cluster.climb()
    assert found.rungs[3].out == {"n3": ["whole1: slow", "again: it fails with this host: PAIRS: rank 0 failed"]}
    asked = {name: hosts for name, _, hosts in cluster.asked}
    assert asked["whole2"] == ["n0", "n1", "n2", "n4", "n5"] and asked["whole3"] == ["n0", "n1", "n2", "n3"]
    assert set(found.states().values()) == {"out", "accepted"} and not reason(found.rungs[3])


def test_a_failure_that_does_not_come_again_takes_nobody_out() -> None:
    """A healthy host may be the first to end; that the next run passes without it proves nothing."""
    cluster = Cluster({"whole": [{"n3"}]})
    cluster.fails = {"whole1"}
    found = cluster.climb()
    assert (found.rungs[3].out, found.rungs[3].unsteady) == (
        {},
        {"n3": ["whole1: slow", "named on 1 of 2 occasions"]},
    )
    assert found.states()["n3"] == "comes and goes" and not found.ready


def test_two_hosts_with_which_a_rung_fails_are_found_one_after_the_other() -> None:
    cluster = Cluster({"whole": [{"n1"}, {"n4"}, set(), {"n1", "n4"}]})
    cluster.guilty = {"n1", "n4"}
    found = cluster.climb()
    assert set(found.rungs[3].out) == {"n1", "n4"}
    assert [hosts for name, _, hosts in cluster.asked if name == "whole3"] == [["n0", "n2", "n3", "n5"]]
    assert {state for host, state in found.states().items() if host not in ("n1", "n4")} == {"accepted"}


@pytest.mark.parametrize("how", ["skipped", "another is named", "another falls ill", "two may be guilty"])
def test_a_second_failure_that_may_have_another_cause_takes_nobody_out_for_the_first(how: str) -> None:
    cluster = Cluster({"whole": [{"n3"}, set(), {"n1"} if how == "another is named" else set()]})
    cluster.guilty = {"n3"}
    if how == "two may be guilty":
        cluster.bad["whole"][0] = {"n3", "n4"}
    elif how == "skipped":
        cluster.skipped = {"whole3"}
    elif how == "another falls ill":
        cluster.falls_ill = {"whole3": "n0"}
    found = cluster.climb()
    assert [name for name, _, _ in cluster.asked][3:6] == ["whole1", "whole2", "whole3"]
    assert list(found.rungs[3].out) == (["n0"] if how == "another falls ill" else [])
    assert found.states()["n3"] == "not tested" and not found.ready
    assert "n3: suspected, left in doubt: whole1: slow" in found.rungs[3].not_run


def test_a_run_that_was_not_made_says_of_no_host_that_it_fails_without_it_and_suspects_are_noted() -> None:
    cluster = Cluster({"network": [set(), {"n0"}]})
    cluster.fails, cluster.skipped = {"network1", "network2"}, {"network3"}
    found = cluster.climb()
    network = found.rungs[2]
    assert network.runs == ["run_network1", "run_network2", "run_network3"]
    assert reason(network) == "PAIRS: rank 0 failed; PAIRS: rank 0 failed", "of the pairs, and of all hosts together"
    assert network.not_run == ["n0: suspected, left in doubt: network2: slow"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_hosts_whose_health_was_not_looked_at_are_not_accepted_and_fail_their_rung(when: str) -> None:
    cluster = Cluster({})
    looked = Looked(
        sick={"n5": ["ssh: no route"]}, unasked={"n0": ["kernel log: no journal"], "n1": [], "n5": ["health"]}
    )
    made, gates = cluster.begun(), [Looked(), looked, looked] if when == "after" else []
    made.examine = lambda hosts: looked if when == "before" else Looked()
    made.gate = lambda hosts: gates.pop(0) if gates else Looked()
    for rung in RUNGS:
        made.step(rung)
    (failed,) = (rung for rung in made.rungs if rung.verdict == "fail")
    assert failed.rung == (HEALTH if when == "before" else NETWORK)
    assert failed.reasons == ["not looked at on n0: kernel log: no journal"] and [*failed.out] == ["n5"]
    assert made.states() == dict.fromkeys(HOSTS, "accepted") | {"n0": "not tested", "n5": "out"} and not made.ready
    assert Words("zh").reason(failed.reasons[0]) == "在 n0 上未检查：内核日志：没有日志记录"


def test_hosts_that_say_in_many_words_why_they_were_not_looked_at_are_one_reason() -> None:
    cluster = Cluster({})
    made = cluster.begun()
    unasked = {host: [f"health: {host} took too long", "NVLinks: no answer"] for host in HOSTS}
    made.examine = lambda hosts: Looked(unasked=unasked)
    named = ", ".join(HOSTS[:5]) + " and 1 more"
    assert made.step(HEALTH).reasons == [
        f"not looked at on {named}: {what}" for what in ("NVLinks: no answer", "health")
    ]


@pytest.mark.parametrize("how", ["comes and goes", "is left in doubt"])
def test_a_suspect_is_tested_beside_hosts_that_no_rung_doubts(how: str) -> None:
    cluster = Cluster({"single": [{"n1"}], "network": [{"n0"}, {"n0"}]})
    cluster.skipped = {"single2"} if how == "is left in doubt" else set()
    cluster.climb()
    assert {name: hosts for name, _, hosts in cluster.asked}["network2"] == ["n0", "n2", "n3", "n4"]
    few = Cluster({"single": [{"n1"}], "network": [{"n0"}, {"n0"}]})
    few.climb(hosts=["n0", "n1", "n2"])
    assert {name: hosts for name, _, hosts in few.asked}["network2"] == ["n0", "n1", "n2"], "there are no others"


def test_pairs_of_a_suspect_alone_prove_nothing() -> None:
    cluster = Cluster({"network": [{"n1"}, {"n1"}]})
    cluster.falls_ill = {"network1": "n0"}
    found = cluster.climb(hosts=["n0", "n1"])
    assert [name for name, _, _ in cluster.asked] == ["single1", "network1", "whole1", "whole2"]
    assert list(found.rungs[2].out) == ["n0"] and found.states()["n1"] == "not tested"
    assert "no other host is left" in reason(found.rungs[2])


def test_the_host_that_is_left_alone_in_a_rung_of_pairs_is_not_accepted() -> None:
    """All hosts together, the next stage, it was not tested in."""
    cluster = Cluster({})
    cluster.falls_ill = {"network1": "n0"}
    found = cluster.climb(hosts=["n0", "n1"])
    assert reason(found.rungs[2]) == "1 of 2 hosts left; it needs 2"
    assert found.states() == {"n0": "out", "n1": "not tested"}


@pytest.mark.parametrize("run", ["single1", "single2", "network1", "network2", "whole1", "whole2"])
def test_hosts_that_slurm_takes_out_of_service_before_a_run_one_by_one_are_out_and_the_rest_go_on(run: str) -> None:
    cluster = Cluster({"single": [{"n3"}, {"n3"}]})
    gone = ["n2", "n4"] if run != "single2" else ["n2"]  # of those with whom the suspect is tried again
    cluster.drained = {run: {*gone}}
    found = cluster.climb()
    (record,) = (rung for rung in found.rungs if rung.rung == run[:-1])
    assert all(record.out[host] == ["Slurm: drained"] for host in gone) and not record.reasons
    assert found.states() == dict.fromkeys(HOSTS, "accepted") | dict.fromkeys((*gone, "n3"), "out")
    asked = {name: hosts for name, _, hosts in cluster.asked}
    assert (
        {*gone}.isdisjoint(asked[run])
        and len(asked[run]) > 1
        and all(each.verdict != "not run" for each in found.rungs)
    )


def test_a_rung_for_which_too_few_are_left_as_slurm_takes_others_out_ends_and_the_next_begins() -> None:
    cluster = Cluster({})
    cluster.drained = {"network1": {"n1"}}
    found = cluster.climb(hosts=["n0", "n1"])
    assert reason(found.rungs[2]) == "1 of 2 hosts left; it needs 2" and found.rungs[2].verdict == "fail"
    assert cluster.asked[-1][0].startswith("whole") and found.states() == {"n0": "not tested", "n1": "out"}


def test_a_run_that_gets_no_nodes_though_none_is_out_of_service_ends_the_acceptance() -> None:
    cluster = Cluster({})
    cluster.drained, cluster.hides = {"network1": {"n1"}}, True
    with pytest.raises(EndedError, match="run_network1 got no nodes"):
        cluster.climb()


def test_nothing_is_ready_before_the_last_planned_rung() -> None:
    cluster = Cluster({})
    climb = replace(cluster.climb(), rungs=[], planned=RUNGS)
    for rung in RUNGS:
        assert not climb.ready and set(climb.states().values()) == {"not tested"}, f"before {rung}"
        climb.step(rung)
    assert climb.ready and set(climb.states().values()) == {"accepted"}


def test_hosts_that_die_in_a_rung_are_out_and_it_runs_again_with_the_others() -> None:
    cluster = Cluster({})
    cluster.fails, cluster.falls_ill = {"network1"}, {"network1": "n2"}
    found = cluster.climb()
    assert list(found.rungs[2].out) == ["n2"] and not reason(found.rungs[2])
    asked = {name: (cases, hosts) for name, cases, hosts in cluster.asked}
    assert asked["network2"] == (["ACCEPT_PAIRS"], ["n0", "n1", "n3", "n4", "n5"]), "the pairs of the others, too"


@pytest.mark.parametrize("rung", ["single", "network", "whole"])
def test_a_run_that_was_not_made_passes_nothing_and_accepts_nobody(rung: str) -> None:
    """A time limit that ends before the first round, or a check that fails, skips the cases."""
    cluster = Cluster({})
    cluster.skipped = {f"{rung}1"}
    found = cluster.climb()
    (record,) = (each for each in found.rungs if each.rung == rung)
    assert (record.verdict, reason(record)) == ("fail", "PAIRS: rank 0 failed")
    assert set(found.states().values()) == {"not tested"} and not found.ready


@pytest.mark.parametrize("how", ["skipped", "fails"])
def test_a_second_occasion_that_measures_nothing_leaves_its_suspects_in_doubt(how: str) -> None:
    cluster = Cluster({"network": [{"n2", "n4"}, {"n4"} if how == "fails" else set()]})
    setattr(cluster, how, {"network2"})
    found = cluster.climb()
    network = found.rungs[2]
    assert "n2: suspected, left in doubt: network1: slow" in network.not_run and not network.unsteady
    assert network.verdict == "fail" and "suspects are left in doubt: PAIRS: rank 0 failed" in reason(network)
    assert found.states()["n2"] == "not tested" and found.states()["n0"] == "accepted"
    assert list(network.out) == (["n4"] if how == "fails" else [])


@pytest.mark.parametrize(("at", "doubtful"), [("network1", False), ("network2", True), ("whole1", False)])
def test_what_was_measured_before_an_interruption_is_kept_and_what_was_not_judged_is_said(
    at: str, doubtful: bool
) -> None:
    cluster = Cluster({"single": [{"n0"}, {"n0"}], "network": [{"n2"}, {"n2"}] if doubtful else []})
    cluster.ends = at
    climb = Climb(
        vendor="cpu", nproc=1, hosts=HOSTS, budget_s=3600, run=cluster.run, examine=lambda names: Looked(),
        gate=cluster.gate,
    )  # fmt: skip
    with pytest.raises(EndedError):
        for rung in RUNGS:
            climb.step(rung)
    climb.leave(RUNGS[len(climb.rungs) :], "the acceptance ended before it")
    assert [rung.rung for rung in climb.rungs] == [*RUNGS] and list(climb.rungs[1].out) == ["n0"]
    ended, *rest = (rung for rung in climb.rungs if rung.verdict == "not run")
    assert ended.rung == at[:-1] and f"run_{at} was interrupted" in reason(ended)
    assert ("n2: suspected, left in doubt: network1: slow" in ended.not_run) == doubtful
    assert all(reason(rung) == "the acceptance ended before it" for rung in rest)
    assert climb.states() == dict.fromkeys(HOSTS, "not tested") | {"n0": "out"} and not climb.ready


def test_a_failure_that_stays_without_its_suspect_is_the_workloads_and_nobody_is_taken_out() -> None:
    cluster = Cluster({"whole": [{"n0"}, {"n1"}]})
    cluster.fails = {"whole1", "whole2", "whole3"}
    found = cluster.climb()
    assert found.rungs[3].out == {} and found.rungs[3].unsteady == {}
    assert reason(found.rungs[3]) == "PAIRS: rank 0 failed; also without n0, n1"
    assert set(found.states().values()) == {"not tested"} and not found.ready


def test_two_hosts_of_a_run_that_failed_are_not_said_to_be_measured() -> None:
    cluster = Cluster({})
    cluster.fails = {"network1", "network2"}
    (made := cluster.begun(HOSTS[:2])).step(NETWORK)
    assert made.rungs[0].verdict == "fail" and TWO_HOSTS not in made.rungs[0].not_run


def test_too_few_hosts_and_a_spent_budget_are_told() -> None:
    one = Cluster({}).climb(hosts=["n0"])
    assert reason(one.rungs[2]) == "one host has no network: name another beside it, or leave it out of --rungs"
    assert one.states() == {"n0": "not tested"} and not one.ready
    spent = Cluster({}).climb(budget=0.5)
    assert {reason(rung) for rung in spent.rungs} == {"the budget of 0.5 s is spent"}


@pytest.mark.parametrize("fails", [set(), {"network1"}])
def test_a_stage_for_which_nothing_of_the_budget_is_left_does_not_begin_and_accuses_nobody(
    fails: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr("run_benchmarks.acceptance.climb.time.monotonic", lambda: clock[0])
    cluster = Cluster({})
    cluster.fails, run = fails, cluster.run

    def timed(name: str, cases: Cases, hosts: Sequence[str], seconds: int) -> LoadedRun:
        clock[0] += seconds
        return run(name, cases, hosts, seconds)

    cluster.run = timed  # type: ignore[method-assign]  # it takes all the time that it is given
    (made := cluster.begun(budget=100.0)).step(NETWORK)
    assert [name for name, _, _ in cluster.asked] == ["network1"]
    (network,) = made.rungs
    assert network.verdict == "fail" and network.reasons[-1:] == ["the budget of 100 s is spent"]
    assert len(network.reasons) == 1 + len(fails) and not any("suspected" in each for each in network.not_run)
    assert {*made.states().values()} == {"not tested"}


def test_rungs_that_do_not_fit_into_a_small_budget_are_shrunk_and_say_what_they_did_not_look_at() -> None:
    cluster = Cluster({})
    found = cluster.climb(budget=100.0, expected={"health": 0.0, "single": 60.0, "network": 70.0, "whole": 20.0})
    assert [rung.shrunk for rung in found.rungs] == [
        [],
        ["ACCEPT_DEVICES: without disk_write, disk_read"],
        [],
        [],
    ], "no time passed: what is left of the estimates, 90 s, has room"
    small = Cluster({})
    found = small.climb(budget=10.0, expected={"health": 0.0, "single": 60.0, "network": 70.0, "whole": 20.0})
    assert [rung.shrunk for rung in found.rungs[2:]] == [
        ["ACCEPT_PAIRS: repeats 3 of 5", "ACCEPT_ALL_TO_ALL: not run"],
        ["ACCEPT_TRAINING: max_steps 20 of 60"],
    ]
    assert [cases for _, cases, _ in small.asked] == [
        ["ACCEPT_DEVICES"], ["ACCEPT_PAIRS"], ["ACCEPT_ALL_REDUCE"], ["ACCEPT_TRAINING"],
    ], "and no soak"  # fmt: skip
    assert found.ready, "what was looked at is good"
    assert all(rung.shrunk == [] for rung in Cluster({}).climb(expected={"single": 60.0, "whole": 20.0}).rungs)


def test_whom_a_second_occasion_that_fails_names_first_is_in_doubt() -> None:
    cluster = Cluster({"network": [{"n2"}, {"n1"}]})
    cluster.fails = {"network2"}
    found = cluster.climb()
    said = "n1: suspected, left in doubt: network2: slow"
    assert said in found.rungs[2].not_run and found.states()["n1"] == "not tested"
    assert "tested again" not in "; ".join([reason(found.rungs[2]), *found.rungs[2].not_run]), "it was, and failed"


def test_what_a_run_proves_is_kept_though_the_second_occasion_is_interrupted() -> None:
    cluster = Cluster({"single": [{"n2"}]})
    cluster.rounds = {"DEVICES": [a_round([{"test": "memory", "unit": "GB/s", "values_of_ranks": ["NaN"] * 4}])]}
    cluster.ends = "single2"
    made = cluster.begun()
    with pytest.raises(EndedError):
        made.step(SINGLE)
    assert "memory: 4 of 4 devices sent no result" in reason(made.rungs[0])


def test_hosts_and_pairs_of_which_a_search_says_nothing_are_told() -> None:
    said = ["compared with nobody, for too few are like them: n5", "pair n0-n1: slow, and neither host is slow"]
    cluster = Cluster({})
    cluster.rounds = {"PAIRS": [a_round([], not_judged=said), a_round([], not_judged="n5")]}
    assert [each for each in cluster.climb().rungs[1].not_run if each in said] == said


def test_a_device_alone_of_its_kind_has_compared_bits_with_nobody_and_it_is_said() -> None:
    cluster = Cluster({})
    cluster.rounds = {
        "DEVICES": [
            a_round(
                [{"test": test, "not_compared": test != "memory"} for test in ("training", "memory", "matmul_fp32")]
            )
        ]
    }
    said = "training, matmul_fp32: the bits of one device were compared with none: it is alone of its kind"
    assert said in cluster.climb().rungs[1].not_run


def test_a_check_that_did_not_run_on_one_look_is_said_of_its_host_which_stays_accepted() -> None:
    cluster = Cluster({})
    made = cluster.begun()
    made.examine = lambda hosts: Looked(missed={"n0": ["names"], "n1": []})
    looks = [Looked(missed={"n0": ["clock synchronisation", "names"]}), Looked()]
    made.gate = lambda hosts: looks.pop(0) if looks else Looked()
    for rung in RUNGS:
        made.step(rung)
    assert made.missed == {"n0": ["names", "clock synchronisation"]}
    assert made.ready and made.states()["n0"] == "accepted"


def test_a_second_occasion_of_which_the_rails_alone_fail_counts_and_says_so() -> None:
    class RailsFail(Cluster):
        def run(self, name: str, cases: Cases, hosts: Sequence[str], seconds: int) -> LoadedRun:
            made = super().run(name, cases, hosts, seconds)
            if name == "network2":
                rails = self._case(Verdict.FAIL).model_copy(update={"name": RAILS})
                record = made.record.model_copy(update={"verdict": Verdict.FAIL, "cases": [*made.record.cases, rails]})
                first = FirstFailure(host="n2", rank=0, exit_code=1, signal=None, message="", log_tail="")
                blamed = a_round([]).model_copy(update={"verdict": Verdict.FAIL, "first_failure": first})
                made = replace(made, record=record, rounds={**made.rounds, RAILS: [blamed]})
            return made

    found = RailsFail({"network": [{"n1", "n2"}, {"n1"}]}).climb()
    states = found.states()
    assert [host for host, state in states.items() if state == "out"] == ["n1"] and states["n2"] != "not tested"
    assert "ACCEPT_RAILS: rank 0 failed" in found.rungs[2].not_run and "n2" in found.rungs[2].unsteady
