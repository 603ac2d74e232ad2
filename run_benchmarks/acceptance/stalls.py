"""Finds the networks on which operations stall though nobody stands out: whose packets are lost is not known there."""

from __future__ import annotations

from protocol.finding import FindingKind, PartFinding
from run_benchmarks.results.loading import LoadedRun
from training.benchmarks.network.slow_parts.readings import STALLS_EVERYWHERE_PERCENT, scan_of

SLOW: tuple[FindingKind, ...] = ("constant", "intermittent", "stalls")
"""Kinds of findings of which one explains stalls."""
LEAST_PERCENT = 0.05
"""Of all operations: among many hosts some stall on every occasion."""


def stalls_of_nobody(run: LoadedRun) -> list[PartFinding]:
    """A finding on all hosts of each measurement of pairs, or search among them, in which operations stall and no part
    is named: a fault if they are more than a sound network has, else a warning; fewer than LEAST_PERCENT are none. A
    host whose stalls are few is named on most occasions only.
    """
    found = []
    for record in (record for records in run.rounds.values() for record in records):
        pairs = [step for step in record.steps if step.get("pattern") in ("pairs", "adaptive")]
        if not pairs or any(each.kind in SLOW for each in record.findings):
            continue
        if (percent := scan_of(pairs).stalled_percent) >= LEAST_PERCENT:
            said = (
                f"{percent:.1f} % of all operations stall, and nobody stands out: a host that loses packets is not told"
                " from busy ones"
            )
            found.append(
                PartFinding(
                    part="group",
                    hosts=tuple(node.host for node in record.nodes),
                    kind="stalls",
                    severity="fault" if percent > STALLS_EVERYWHERE_PERCENT else "warning",
                    evidence=said,
                    suggested_action="look for packet loss and foreign load",
                    sentence=said,
                )
            )
    return found
