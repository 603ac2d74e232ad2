"""Findings of a benchmark degrade their round; from those of all rounds follow the drain list and the exit code."""

from typing import Any

import pytest

from protocol.finding import KINDS, SEVERITIES, FindingOutcome, PartFinding
from run_benchmarks.commands.diagnose import problem_of
from run_benchmarks.errors import InputProblems
from run_benchmarks.results.drain import drain_list, not_yet_said
from run_benchmarks.results.outcomes import MAX_FINDINGS, findings_in
from run_benchmarks.results.records import RoundRecord
from run_benchmarks.results.verdict import Verdict, worst
from run_benchmarks.rounds.recording import with_findings
from run_benchmarks.state.exit_codes import exit_code
from tests.run_benchmarks.conftest import TEST, Load
from tests.run_benchmarks.results.network_rounds import a_round, case
from tests.training.benchmarks.network.synthetic import slowest_member, steps
from training.benchmarks.network.pytorch.outcome import OUTCOME
from training.benchmarks.network.slow_parts.findings import to_json, worded


def found(**changes: Any) -> dict[str, Any]:
    """What FINISHED holds of a bad NIC of host n3, the third one."""
    values: dict[str, Any] = {
        "part": "device",
        "hosts": ("n3",),
        "node_ranks": (2,),
        "device": "mlx5_4",
        "kind": "intermittent",
        "symptoms": ("bandwidth",),
        "share_of_expected": 0.4,
        "p_value": 1e-5,
        "evidence": "60 % slow",
        "cause": "cable",
        "suggested_action": "replace the cable",
    }
    return to_json(worded(PartFinding(**{**values, **changes})))


def test_what_the_ranks_found_degrades_the_round_under_the_users_names() -> None:
    record = with_findings(
        case(), a_round([], findings=[found(), found(part="link", hosts=("n1", "n2"), node_ranks=(0, 1))])
    )
    assert record.verdict is Verdict.DEGRADED
    nic, link = record.findings
    assert (nic.part, nic.hosts, nic.device, nic.kind, nic.severity) == (
        "device",
        ("10.0.0.3",),
        "mlx5_4",
        "intermittent",
        "fault",
    )
    assert (nic.share_of_expected, nic.p_value, nic.suggested_action) == (0.4, 1e-5, "replace the cable")
    assert nic.sentence == "10.0.0.3 mlx5_4: 60 % slow: cable"
    assert record.reason.startswith(f"{nic.sentence} (and 1 more); ")
    assert nic.drained_hosts == ("10.0.0.3",) and link.drained_hosts == ()
    assert RoundRecord.model_validate_json(record.model_dump_json()) == record


def test_the_analysis_of_the_steps_is_a_finding_where_the_ranks_name_none() -> None:
    measured = steps("pairs", 4, slowest_member({"node3": 0.5}), noise=0.01, seed=1)
    (finding,) = with_findings(case(), a_round(measured)).findings
    assert (finding.part, finding.hosts, finding.drained_hosts) == ("host", ("10.0.0.3",), ("10.0.0.3",))
    healthy = steps("pairs", 4, slowest_member({}), noise=0.01, seed=1)
    assert with_findings(case(), a_round(healthy)).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("share", "is_missed"), [(0.0, True), (0.79, True), (0.8, False), (1.7, False), ("NaN", False)]
)
def test_a_missed_link_is_a_finding(share: object, is_missed: bool) -> None:
    config: dict[str, Any] = {"expected_link": 50.0, "expected_links": 8}
    findings, _ = findings_in(case(**config), a_round([], measured_over_expected=share))
    assert [finding.kind for finding in findings] == ["below_expected"] * is_missed
    assert findings_in(case(), a_round([], measured_over_expected=0.1)) == ((), []), "no expected_link"


@pytest.mark.parametrize("sent", ["slow", [1], [{"part": "planet"}], [found() | {"hosts": []}]])
def test_findings_that_are_none_are_a_warning_and_do_not_change_the_verdict(sent: Any) -> None:
    record = with_findings(case(), a_round([], findings=sent))
    assert record.verdict is Verdict.PASS and record.findings == []
    assert "its measurements cannot be analysed: ValueError: findings: " in record.warnings[-1]


def test_a_host_cannot_fill_a_record_with_findings() -> None:
    findings, warnings = findings_in(case(), a_round([], findings=[found()] * (MAX_FINDINGS + 5)))
    assert len(findings) == MAX_FINDINGS
    assert warnings == [f"5 of {MAX_FINDINGS + 5} findings are not in this record"]
    (long,), _ = findings_in(case(), a_round([], findings=[found(evidence="x" * 5000)]))
    assert len(long.evidence) == 1000 and len(long.sentence) == 1000


@pytest.mark.parametrize("verdict", [each for each in Verdict if each is not Verdict.PASS])
def test_only_a_round_that_passed_is_degraded(verdict: Verdict) -> None:
    record = a_round([], findings=[found()]).model_copy(update={"verdict": verdict})
    assert with_findings(case(), record) is record


def test_a_benchmark_without_findings_has_none() -> None:
    assert isinstance(OUTCOME, FindingOutcome)
    assert findings_in(case(model="bert"), a_round([], findings=[found()])) == ((), [])


def part(host: str, sentence: str, **changes: Any) -> PartFinding:
    values: dict[str, Any] = {
        "part": "host",
        "hosts": (host,),
        "kind": "constant",
        "evidence": "slow",
        "suggested_action": "drain",
    }
    return PartFinding(**{**values, "drained_hosts": (host,), "sentence": sentence, **changes})


def test_the_drain_list_has_each_host_once_with_all_its_reasons() -> None:
    def record(number: int, *findings: PartFinding) -> RoundRecord:
        return a_round([]).model_copy(update={"round": number, "findings": list(findings)})

    one, other, link = part("n1", "n1 is slow"), part("n1", "n1 stalls"), part("n2", "the link", drained_hosts=())
    rounds = {"A": [record(1, one), record(2, one, link)], "B": [record(1, other, part("n0", "n0 is slow"))]}
    assert [(each.host, each.reasons) for each in drain_list(rounds)] == [
        ("n1", ["A rounds 1, 2: n1 is slow", "B round 1: n1 stalls"]),
        ("n0", ["B round 1: n0 is slow"]),
    ]
    assert list(not_yet_said(["round 1: n1 is slow"], rounds["A"])) == ["round 2: the link"]


@pytest.mark.parametrize(
    ("verdict", "fail_on", "code"),
    [
        (Verdict.PASS, SEVERITIES, 0),
        (Verdict.DEGRADED, ("fault",), 1),
        (Verdict.DEGRADED, ("constant",), 1),
        (Verdict.DEGRADED, ("warning", "stalls"), 0),
        (Verdict.DEGRADED, (), 0),
        (Verdict.SKIPPED, (), 1),
        (Verdict.FAIL, (), 1),
        (Verdict.ABORTED, (), 130),
    ],
)
def test_fail_on_decides_the_exit_code_of_a_degraded_run(verdict: Verdict, fail_on: tuple[str, ...], code: int) -> None:
    assert exit_code(verdict, [part("n1", "slow")], fail_on) == code


def test_a_failure_is_worse_than_a_finding() -> None:
    assert worst([Verdict.DEGRADED, Verdict.PASS]) is Verdict.DEGRADED
    for worse in (Verdict.SKIPPED, Verdict.FAIL, Verdict.TIMEOUT, Verdict.ABORTED):
        assert worst([worse, Verdict.DEGRADED]) is worse


@pytest.mark.parametrize("value", ["()", "['fault', 'warning']", "'stalls'", "('link_errors', 'warning')"])
def test_fail_on_takes_severities_and_kinds(load: Load, value: str) -> None:
    assert set(load(f"{TEST}FAIL_ON = {value}\n").test.FAIL_ON) <= {*KINDS, *SEVERITIES}


def test_names_that_fail_on_does_not_know_are_refused_at_once(load: Load) -> None:
    with pytest.raises(InputProblems) as caught:
        load(f"{TEST}FAIL_ON = ['fault', 'slow', 7]\n")
    assert "FAIL_ON" in str(caught.value) and "found 'slow', 7" in str(caught.value)
    assert "constant" in str(caught.value) and "warning" in str(caught.value)


def test_a_rung_of_diagnose_fails_by_the_findings_that_fail_on_names() -> None:
    record = a_round([]).model_copy(update={"verdict": Verdict.DEGRADED, "findings": [part("n1", "n1 is slow")]})
    assert problem_of(record, ("fault",)) == "n1 is slow"
    assert problem_of(record, ("warning",)) == problem_of(a_round([]), ("fault",)) == ""
    failed = record.model_copy(update={"verdict": Verdict.FAIL, "reason": "rank 1 ended"})
    assert problem_of(failed, ()) == "fail: rank 1 ended"


def test_a_probe_holds_its_small_message_against_no_link() -> None:
    probe = OUTCOME.probe({"expected_link": 50.0, "expected_links": 8})
    assert probe is not None and (probe["expected_link"], probe["expected_links"]) == (None, 1)
