"""A finding as data: its form in JSON and back, its words, whom it takes out of service, and what is no finding."""

import json
from typing import Any

import pytest

from protocol.finding import PartFinding
from run_benchmarks.results.judge import MAX_METRIC_CHARACTERS
from training.benchmarks.network.slow_parts.findings import (
    MAX_CHARACTERS_TOLD,
    findings_of,
    recorded,
    to_json,
    told,
    worded,
)


def a_finding(**fields: Any) -> PartFinding:
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
    return worded(PartFinding(**(values | fields)))


# Two findings as logs of all versions have them in FINISHED.
LOGGED = """[
{"part": "host", "hosts": ["node3"], "node_ranks": [2], "device": "", "kind": "constant", "symptoms": ["bandwidth"],
 "share_of_expected": 0.5, "p_value": 1e-09, "evidence": "all its pairs are 50 % slow", "cause": "NIC",
 "suggested_action": "take the host out of service",
 "sentence": "host node3: all its pairs are 50 % slow: NIC"},
{"part": "rail", "hosts": ["node1", "node3"], "node_ranks": [0, 2], "device": "rail 4", "kind": "stalls",
 "symptoms": ["latency", "stalls"], "share_of_expected": null, "p_value": null, "evidence": "2 % stall",
 "cause": "its leaf switch", "suggested_action": "check the switch of the rail",
 "sentence": "rail 4 (node1, node3): 2 % stall: its leaf switch"}]"""


def test_a_finding_is_in_finished_as_it_has_always_been_and_in_a_round_without_what_it_alone_says() -> None:
    logged = json.loads(LOGGED)
    host, rail = findings_of(logged)
    assert host == a_finding() and told([host, rail]) == {"findings": logged}
    assert json.dumps([to_json(host), to_json(rail)]) == json.dumps(logged), "in the same order"
    renamed, _ = findings_of(logged, {2: "10.0.0.3", 0: "10.0.0.1"})
    assert renamed.sentence.startswith("host 10.0.0.3: ") and renamed.drained_hosts == ("10.0.0.3",)
    general = recorded(rail)
    assert (general.part, general.hosts, general.device, general.sentence) == (
        "group",
        *(rail.hosts, "rail 4", rail.sentence),
    )
    assert general == PartFinding.model_validate_json(general.model_dump_json())
    assert recorded(a_finding(evidence="x" * 2000)).sentence == f"host node3: {'x' * 985}..."


def test_a_log_can_claim_no_more_than_that_a_part_is_slow() -> None:
    """Nor is it obeyed if it says whom to take out of service."""
    (link,) = findings_of([json.loads(LOGGED)[1] | {"part": "link", "drained_hosts": ["node9"], "severity": "warning"}])
    assert (link.drained_hosts, link.severity) == ((), "fault")


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
        [{**to_json(a_finding()), "part": "moon"}],
        [{**to_json(a_finding()), "kind": "lost"}],
        [{**to_json(a_finding()), "node_ranks": [1, 2]}],
        [{**to_json(a_finding()), "hosts": [], "node_ranks": []}],
        [{**to_json(a_finding()), "p_value": 2}],
        [{**to_json(a_finding()), "part": "group"}],
        *(
            [{key: value for key, value in to_json(a_finding()).items() if key != name}]
            for name in ("cause", "symptoms", "share_of_expected", "p_value")
        ),
        [{**to_json(a_finding()), "share_of_expected": float("nan")}],
    ],
)
def test_what_is_no_finding_is_an_error(value: object) -> None:
    with pytest.raises(ValueError, match=r"^findings: "):
        findings_of(value)


def test_more_findings_than_round_json_has_room_for_are_counted() -> None:
    """A metric that is too long is left out as a whole; the controller would search again, without the topology."""
    assert told([a_finding()]) == {"findings": [to_json(a_finding())]}
    many = told([a_finding(evidence="x" * 900)] * 100)
    kept = many["findings"]
    assert isinstance(kept, list) and many["findings_left_out"] == 100 - len(kept) > 0
    assert MAX_CHARACTERS_TOLD - 2000 < len(json.dumps(kept)) <= MAX_CHARACTERS_TOLD < MAX_METRIC_CHARACTERS
    assert len(findings_of(kept)) == len(kept)
