"""A lossy link beside busy hosts: what nobody can judge is looked at again, and passes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from run_benchmarks.acceptance.climb import Looked
from run_benchmarks.acceptance.page import left_out_of
from run_benchmarks.acceptance.rungs import NETWORK, Cases
from run_benchmarks.acceptance.stalls import stalls_of_nobody
from run_benchmarks.acceptance.suspects import suspects_of
from run_benchmarks.console.language import Words
from run_benchmarks.results.drain import drain_list
from run_benchmarks.results.loading import LoadedRun
from run_benchmarks.results.outcomes import findings_in
from run_benchmarks.results.records import RoundRecord
from tests.run_benchmarks.acceptance.scripted_cluster import Cluster
from tests.run_benchmarks.results.network_rounds import a_round, case
from tests.run_benchmarks.results.recorded_runs import a_run
from tests.training.benchmarks.network.simulation import BUSY, QUIET, Fault, steps

HOSTS = [f"10.0.0.{number}" for number in range(1, 5)]
LOSSY = HOSTS[1]
SAID = "% of all operations stall, and nobody stands out: a host that loses packets is not told from busy ones"
BESIDE_LOAD = Fault(loss={"node1": 0.02, "node2": 0.05, "node3": 0.02, "node4": 0.02})
FEW = Fault(loss={"node2": 0.01})
ALONE = Fault(loss={"node2": 0.05})


def measured(fault: Fault, seed: int) -> RoundRecord:
    """The pairs of four busy hosts as an acceptance measures them, and what the network benchmark finds."""
    record = a_round(steps(4, replace(BUSY, hiccups=0.0), fault, seed, repeats=5))
    findings, problems = findings_in(case(), record)
    assert not problems
    return record.model_copy(update={"findings": list(findings)})


def a_run_of(record: RoundRecord) -> LoadedRun:
    rounds = {"PAIRS": [record]}
    made = a_run("run1", [1.0])
    return replace(made, rounds=rounds, record=made.record.model_copy(update={"drain": drain_list(rounds)}))


def test_stalls_everywhere_are_a_fault_of_nobody_and_those_of_one_host_name_it() -> None:
    beside, alone = a_run_of(measured(BESIDE_LOAD, 0)), a_run_of(measured(ALONE, 0))
    assert suspects_of(beside, 25.0) == {} and [*suspects_of(alone, 25.0)] == [LOSSY]
    (found,) = stalls_of_nobody(beside)
    assert (
        found.severity == "fault"
        and found.sentence.endswith(SAID)
        and found.hosts == tuple(HOSTS)
        and not found.drained_hosts
    )
    assert Words("zh").reason(found.sentence).endswith("无法区分丢包的主机与繁忙的主机")
    assert stalls_of_nobody(alone) == [], "they are explained"
    for noise in (QUIET, BUSY):
        healthy = a_round(steps(4, noise, Fault(), 1, repeats=5))
        assert stalls_of_nobody(a_run_of(healthy)) == []


def test_stalls_of_a_search_among_many_hosts_are_counted_but_for_single_ones() -> None:
    values = [each | {"pattern": "adaptive"} for each in steps(18, replace(BUSY, hiccups=0.0), Fault(), 0, repeats=5)]
    assert stalls_of_nobody(a_run_of(a_round(values))) == []
    for share, severity in ((0.0, ""), (0.005, "warning"), (0.05, "fault")):
        groups = [group for each in values for group in each["groups"]]
        for group in groups:
            group["stalled_iterations"] = 0
        for group in (
            groups[:: max(1, round(1 / share / groups[0]["iterations"]))] if share else groups[:: len(groups) // 2]
        ):
            group["stalled_iterations"] = 1
        found = stalls_of_nobody(a_run_of(a_round(values)))
        assert [each.severity for each in found] == ([severity] if severity else [])
        assert not found or found[0].evidence.startswith(f"{100 * share:.1f} %")


@pytest.mark.parametrize("made_up", [[{"pattern": "pairs"}], [{"pattern": "pairs", "groups": 3}], [{"pattern": []}]])
def test_what_hosts_make_up_of_their_pairs_is_passed_over(made_up: list[dict[str, Any]]) -> None:
    assert stalls_of_nobody(a_run_of(a_round(made_up))) == []


@dataclass
class Lossy(Cluster):
    """A cluster whose runs measured what `of_runs` has."""

    of_runs: Mapping[str, RoundRecord] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__({})

    def run(self, name: str, cases: Cases, hosts: Sequence[str], seconds: int) -> LoadedRun:
        loaded, own = super().run(name, cases, hosts, seconds), self.of_runs.get(name)
        if own is None:
            return loaded
        rounds = {"PAIRS": [own]}
        record = loaded.record.model_copy(update={"drain": drain_list(rounds)})
        return replace(loaded, record=record, rounds=rounds)


def too_few() -> RoundRecord:
    """Pairs of a lossy host that stalls too seldom to be named, as in two of three such runs."""
    return next(found for seed in range(9) if not (found := measured(FEW, seed)).findings)


def test_a_host_whose_stalls_are_too_few_to_be_named_is_looked_at_again_and_said() -> None:
    few, seen = too_few(), measured(ALONE, 0)
    (found,) = stalls_of_nobody(a_run_of(few))
    assert found.severity == "warning"
    made = Lossy({"network1": few, "network2": seen}).begun(HOSTS)
    assert [*made.step(NETWORK).unsteady] == [LOSSY] and made.states()[LOSSY] == "comes and goes"
    made = Lossy({"network1": few, "network2": few}).begun(HOSTS)
    rung = made.step(NETWORK)
    assert (rung.verdict, rung.not_run, len(rung.runs)) == ("pass", [found.sentence], 3)
    made = Lossy({"network1": few}).begun(HOSTS)

    def gate(hosts: Sequence[str]) -> Looked:
        made.budget_s = 0.0
        return Looked()

    made.gate = gate
    rung = made.step(NETWORK)
    assert rung.not_run == [f"{found.sentence}: not tested again: the budget of 0 s is spent"]


def test_a_lossy_host_that_a_busy_occasion_hides_comes_and_goes_or_its_rung_fails() -> None:
    hidden, seen, few = measured(BESIDE_LOAD, 0), measured(ALONE, 0), too_few()
    made = Lossy({"network1": hidden, "network2": seen}).begun(HOSTS)
    rung = made.step(NETWORK)
    assert [*rung.unsteady] == [LOSSY] and rung.unsteady[LOSSY][-1] == "named on 1 of 2 occasions"
    assert made.states()[LOSSY] == "comes and goes" and not made.ready
    made = Lossy({"network1": hidden, "network2": measured(BESIDE_LOAD, 1)}).begun(HOSTS)
    rung = made.step(NETWORK)
    assert rung.verdict == "fail" and len(rung.runs) == 3 and not rung.out and not rung.unsteady
    (why,) = rung.reasons
    assert why.endswith(SAID)
    (said,) = (found.sentence for found in stalls_of_nobody(a_run_of(few)))
    for first, second in ((hidden, few), (few, hidden)):
        made = Lossy({"network1": first, "network2": second}).begun(HOSTS)
        rung = made.step(NETWORK)
        assert rung.verdict == "pass", "one occasion alone shows so many"
        assert said in rung.not_run, "two show some"
        assert left_out_of(said, Words("en")) == said, "it was run"
    made = Lossy({"network1": hidden}).begun(HOSTS)
    rung = made.step(NETWORK)
    assert rung.verdict == "pass" and any(SAID in said for said in made.warned.records()[0].hosts[HOSTS[0]])
