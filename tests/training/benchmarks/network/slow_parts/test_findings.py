"""A finding as data: its form in JSON and back, its words, whom it takes out of service, and what is no finding."""

import json
from typing import Any

import pytest

from run_benchmarks.results.judge import MAX_METRIC_CHARACTERS
from training.benchmarks.network.slow_parts.findings import MAX_CHARACTERS_TOLD, NetworkFinding, findings_of, told


def a_finding(**fields: Any) -> NetworkFinding:
    values: dict[str, Any] = {
        "part": "host",
        "hosts": ("node3",),
        "node_ranks": (2,),
        "kind": "constant",
        "symptoms": ("bandwidth",),
        "share_of_expected": 0.5,
        "p_value": 1e-9,
        "evidence": "all its pairs are 50 % slow",
        "cause": "NIC",
        "suggested_action": "take the host out of service",
    }
    return NetworkFinding(**(values | fields))


def test_json_holds_the_whole_finding() -> None:
    found = a_finding()
    sent = json.loads(json.dumps([found.to_json()], allow_nan=False))
    assert sent[0]["sentence"] == "host node3: all its pairs are 50 % slow: NIC"
    assert findings_of(sent) == (found,)
    assert findings_of(sent, {2: "10.0.0.3", 0: "10.0.0.1"})[0].sentence.startswith("host 10.0.0.3: ")


@pytest.mark.parametrize(
    ("fields", "subject", "drained"),
    [
        ({}, "host node3", ("node3",)),
        ({"part": "device", "device": "mlx5_4"}, "node3 mlx5_4", ("node3",)),
        ({"part": "link", "hosts": ("node1", "node3"), "node_ranks": (0, 2)}, "pair node1-node3 alone", ()),
        ({"part": "pair", "hosts": ("node1", "node3"), "node_ranks": (0, 2)}, "pair node1-node3", ()),
        (
            {"part": "rail", "device": "rail 4", "hosts": ("node1", "node3"), "node_ranks": (0, 2)},
            "rail 4 (node1, node3)",
            (),
        ),
    ],
)
def test_the_subject_and_the_hosts_to_drain(fields: dict[str, Any], subject: str, drained: tuple[str, ...]) -> None:
    found = a_finding(**fields)
    assert (found.subject, found.drained_hosts) == (subject, drained)


@pytest.mark.parametrize(
    "value",
    [
        "findings",
        {"part": "host"},
        [3],
        [{**a_finding().to_json(), "part": "moon"}],
        [{**a_finding().to_json(), "node_ranks": [1, 2]}],
        [{**a_finding().to_json(), "hosts": [], "node_ranks": []}],
        [{**a_finding().to_json(), "p_value": 2}],
        [{**a_finding().to_json(), "share_of_expected": float("nan")}],
    ],
)
def test_what_is_no_finding_is_an_error(value: object) -> None:
    with pytest.raises(ValueError, match=r"^findings: "):
        findings_of(value)


def test_more_findings_than_round_json_has_room_for_are_counted() -> None:
    """A metric that is too long is left out as a whole; the controller would search again, without the topology."""
    assert told([a_finding()]) == {"findings": [a_finding().to_json()]}
    many = told([a_finding(evidence="x" * 900)] * 100)
    kept = many["findings"]
    assert isinstance(kept, list) and many["findings_left_out"] == 100 - len(kept) > 0
    assert MAX_CHARACTERS_TOLD - 2000 < len(json.dumps(kept)) <= MAX_CHARACTERS_TOLD < MAX_METRIC_CHARACTERS
    assert len(findings_of(kept)) == len(kept)
