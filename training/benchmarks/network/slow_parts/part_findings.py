"""Turns what the network benchmark found into findings of a round: named parts, and an expected link that is missed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from protocol.default_outcome import is_measured
from protocol.finding import MAX_CHARACTERS, FindingPart, PartFinding
from training.benchmarks.network.hosts.links import FINE_SHARE, advertised_gbps, judge_share
from training.benchmarks.network.slow_parts.findings import BadPart, NetworkFinding

_PARTS: Mapping[BadPart, FindingPart] = {"host": "host", "device": "device", "link": "link", "rack": "rack"}
_ACTION = (
    "check the speed and number of links that the case expects, then NIC, PCIe, cables and the library's transport"
)


def part_finding(found: NetworkFinding) -> PartFinding:
    """The general form of a finding of the network benchmark. A pair, rail, batch or half is a group."""
    return PartFinding(
        part=_PARTS.get(found.part, "group"),
        hosts=found.hosts,
        device=found.device,
        kind=found.kind,
        evidence=_cut(found.evidence),
        share_of_expected=found.share_of_expected,
        p_value=found.p_value,
        suggested_action=_cut(found.suggested_action),
        drained_hosts=found.drained_hosts,
        sentence=_cut(found.sentence),
    )


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
            evidence=_cut(evidence),
            share_of_expected=share,
            suggested_action=_ACTION,
            sentence=_cut(f"{len(hosts)} host{'s' * (len(hosts) > 1)} below expected_link: {evidence}"),
        )
    ]


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 3]}..."
