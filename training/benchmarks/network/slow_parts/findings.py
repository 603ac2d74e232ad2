"""Puts findings of the network benchmark into words, into FINISHED and into a round, and reads them from FINISHED."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from pydantic import JsonValue, ValidationError

from protocol.default_outcome import is_measured
from protocol.finding import FindingPart, PartFinding
from training.benchmarks.network.hosts.links import FINE_SHARE, advertised_gbps, judge_share

# The FindingKinds of a slow part.
FaultKind = Literal["constant", "intermittent", "stalls"]
# round.json takes 64 Ki characters of a metric (run_benchmarks.results.judge).
MAX_CHARACTERS_TOLD = 60 << 10
_TOLD = (
    *("part", "hosts", "node_ranks", "device", "kind", "symptoms", "share_of_expected", "p_value", "evidence", "cause"),
    *("suggested_action", "sentence"),
)
_MAY_LACK = ("device", "sentence")
_GROUPS: tuple[FindingPart, ...] = ("pair", "rail", "batch", "half")
_ACTION = (
    "check the speed and number of links that the case expects, then NIC, PCIe, cables and the library's transport"
)


def worded(found: PartFinding) -> PartFinding:
    """The finding with its whole sentence, and with the hosts to take out of service: that of a bad host or device.

    A bad link, rack or group accuses no host.
    """
    drained = found.hosts if found.part in ("host", "device") else ()
    sentence = f"{found.subject}: {found.evidence}: {found.cause}"
    return found.model_copy(update={"drained_hosts": drained, "sentence": sentence})


def recorded(found: PartFinding) -> PartFinding:
    """The finding as a round's record holds it: with a cut sentence, and a pair, rail, batch or half as a group."""
    return PartFinding.model_validate(found.model_dump() | ({"part": "group"} if found.part in _GROUPS else {}))


def to_json(found: PartFinding) -> dict[str, JsonValue]:
    """The finding as FINISHED holds it."""
    values = ((name, getattr(found, name)) for name in _TOLD)
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values}


def told(findings: Sequence[PartFinding]) -> dict[str, JsonValue]:
    """The findings in the value of FINISHED: as many of them as round.json has room for, and the number of the
    others.
    """
    room, kept = MAX_CHARACTERS_TOLD, list[JsonValue]()
    for each in findings:
        value = to_json(each)
        room -= len(json.dumps(value)) + 2
        if room < 0:
            break
        kept.append(value)
    left: dict[str, JsonValue] = {"findings_left_out": len(findings) - len(kept)} if len(kept) < len(findings) else {}
    return {"findings": kept, **left}


def findings_of(values: object, names: Mapping[int, str] | None = None) -> tuple[PartFinding, ...]:
    """The findings in a JSON list, with the host names in `names` by node rank.

    Raises:
        ValueError: the value is no list of findings as `to_json` makes them.
    """
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise ValueError(f"findings: {values!r} is no list")
    found = []
    for value in values:
        finding = _of_values(value)
        if finding.kind not in get_args(FaultKind):
            raise ValueError(f"findings: {value!r} is no finding: a part is not slow in this way")
        if not finding.hosts or len(finding.hosts) != len(finding.node_ranks):
            raise ValueError(f"findings: {value!r}: hosts and node_ranks differ in number, or there are none")
        pairs = zip(finding.node_ranks, finding.hosts, strict=True)
        hosts = tuple((names or {}).get(rank, own) for rank, own in pairs)
        found.append(worded(finding.model_copy(update={"hosts": hosts})))
    return tuple(found)


def _of_values(value: object) -> PartFinding:
    known = dict(value) if isinstance(value, Mapping) else {}
    lacking = [name for name in _TOLD if name not in _MAY_LACK and name not in known]
    if lacking or known["part"] == "group":
        raise ValueError(f"findings: {value!r} is no finding: {len(lacking) or 1} wrong values")
    try:
        return PartFinding.model_validate({name: each for name, each in known.items() if name in _TOLD})
    except ValidationError as error:
        raise ValueError(f"findings: {value!r} is no finding: {error.error_count()} wrong values") from error


def missed_link(config: Mapping[str, Any], metrics: Mapping[str, Any], hosts: Sequence[str]) -> list[PartFinding]:
    """The finding that the best busbw is below FINE_SHARE of `expected_link`; none where it is met or not set.

    It accuses no host: all of them together are slow.
    """
    share, expected = metrics.get("measured_over_expected"), config.get("expected_link")
    if expected is None or not isinstance(share, int | float) or not is_measured(share) or not 0 <= share < FINE_SHARE:
        return []
    gbps = advertised_gbps(expected, config.get("expected_links", 1)) or 0.0
    evidence = (
        f"the best busbw is {100 * share:.0f} % of the {gbps:g} GB/s of {config.get('expected_links', 1)} x {expected}:"
        f" {judge_share(share)[1]}"
    )
    return [
        PartFinding(
            part="group",
            hosts=tuple(hosts),
            kind="below_expected",
            evidence=evidence,
            share_of_expected=share,
            suggested_action=_ACTION,
            sentence=f"{len(hosts)} host{'s' * (len(hosts) > 1)} below expected_link: {evidence}",
        )
    ]
