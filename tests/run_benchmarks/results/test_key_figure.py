"""What run.json says of a case and a host at one glance: the key figure, percent of expected, joules, the state."""

from typing import Any

import pytest

from protocol.finding import PartFinding
from run_benchmarks.results.comparison import BaselineRecord, BaselineRow, ExpectationRecord
from run_benchmarks.results.drain import drain_list
from run_benchmarks.results.first_failure import FirstFailure
from run_benchmarks.results.key_figure import energy_of, key_figure
from run_benchmarks.results.metrics import combine
from run_benchmarks.results.records import RoundRecord, Verdict
from run_benchmarks.session.run_record import host_state
from tests.run_benchmarks.results.network_rounds import a_round, case

TOKENS = "throughput(sps)_raw"


def trained(number: int, value: float) -> RoundRecord:
    return a_round([], **{TOKENS: value}).model_copy(update={"round": number})


def limit(text: str) -> ExpectationRecord:
    return ExpectationRecord(metric=TOKENS, unit="samples/s", limit=text, measured=90.0, met=True)


@pytest.mark.parametrize(
    ("texts", "percent", "expected"),
    [
        ((">= 80",), 112.5, "expect >= 80"),
        (("120 -30 % +20 %",), 75.0, "expect 120 -30 % +20 %"),
        (("< 500", "within 50 % of 100"), 90.0, "expect within 50 % of 100"),
        (("< 500",), 50.0, "baseline b.json"),
    ],
)
def test_the_key_figure_is_in_percent_of_what_is_expected(
    texts: tuple[str, ...], percent: float, expected: str
) -> None:
    rounds = [trained(1, 80.0), trained(2, 100.0)]
    metrics, _ = combine([each.metrics for each in rounds])
    row = BaselineRow(what=TOKENS, unit="samples/s", better="higher", measured=90, baseline=180, ratio=0.5, below=True)
    against = BaselineRecord(file="b.json", percent=5, sentences=[], rows=[row])
    key = key_figure(case("bert"), rounds, metrics, [limit(text) for text in texts], against)
    assert key is not None and key.better == "higher" and key.unit
    assert (key.metric, key.value, key.of_rounds) == (TOKENS, 90.0, [80.0, 100.0])
    assert key.percent_of_expected == pytest.approx(percent) and key.expected == expected
    assert key_figure(case("bert"), [], {}) is None


@pytest.mark.parametrize(("steady", "told"), [(98.0, None), (99.1, 99.1), (220.0, 220.0), (70.0, 70.0), (None, None)])
def test_the_rate_after_the_warm_up_stands_beside_a_key_figure_from_which_it_differs(
    steady: float | None, told: float | None
) -> None:
    key = key_figure(case("bert"), [trained(1, 90.0)], {TOKENS: 90.0, "throughput(sps)_steady": steady})
    assert key is not None and (key.value, key.steady) == (90.0, told)


def with_joules(*of_nodes: dict[str, Any]) -> RoundRecord:
    record = a_round([])
    nodes = [
        node.model_copy(update={"monitor": {"phase": {"power": {m: {"joules": j} for m, j in meters.items()}}}})
        for node, meters in zip(record.nodes, of_nodes, strict=False)
    ]
    return record.model_copy(update={"nodes": nodes})


def test_the_energy_of_a_case_is_of_the_meters_that_every_host_of_every_round_has() -> None:
    rounds = [with_joules({"gpu": 10.0, "bmc": 3.0}, {"gpu": 30.0}), with_joules({"gpu": 20.0}, {"gpu": 30.0})]
    assert energy_of(rounds) == {"gpu": 45.0}
    assert energy_of([]) == {}


def a_finding(part: str, **changes: Any) -> PartFinding:
    values = {
        "part": part,
        "hosts": ("n1",),
        "kind": "constant",
        "evidence": "busbw 40 % of its peers",
        "suggested_action": "replace the cable",
        "sentence": "n1 mlx5_4: slow",
        **changes,
    }
    return PartFinding.model_validate(values)


def test_a_host_is_healthy_degraded_or_lost_and_a_bad_link_degrades_neither_end() -> None:
    bad = a_round([]).model_copy(update={"findings": [a_finding("device"), a_finding("link", hosts=("n2", "n3"))]})
    failure = FirstFailure(
        host="n4", rank=None, exit_code=None, signal=None, message="its engine died", log_tail="", lost=True
    )
    lost = a_round([]).model_copy(update={"verdict": Verdict.FAIL, "first_failure": failure})
    states = {host: host_state(host, {"n5": "n5: no sshd"}, [bad, lost]) for host in ("n1", "n2", "n3", "n4", "n5")}
    assert states == {
        "n1": ("degraded", "PAIRS round 1: n1 mlx5_4: slow"),
        "n2": ("healthy", ""),
        "n3": ("healthy", ""),
        "n4": ("lost", "PAIRS round 1: its engine died"),
        "n5": ("lost", "n5: no sshd"),
    }


def test_the_drain_list_has_evidence_and_action_beside_its_sentences() -> None:
    finding = a_finding("device", device="mlx5_4", drained_hosts=("n1",))
    rounds = [a_round([]).model_copy(update={"round": number, "findings": [finding]}) for number in (1, 3)]
    (drained,) = drain_list({"PAIRS": rounds})
    (seen,) = drained.evidence
    assert (seen.case, seen.rounds, seen.part, seen.device) == ("PAIRS", [1, 3], "device", "mlx5_4")
    assert (seen.evidence, seen.action) == ("busbw 40 % of its peers", "replace the cable")
