"""Says in which state a run left each of its hosts: healthy, degraded or lost, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from run_benchmarks.results.records import RoundRecord

HostState = Literal["healthy", "degraded", "lost"]


def host_state(
    host: str, left_out: Mapping[str, str], rounds: Iterable[RoundRecord], failed_check: str = ""
) -> tuple[HostState, str]:
    """The state of `host` and its reason.

    Lost: it failed the check, or a round that no later attempt replaced was lost there. Degraded: a finding names it or
    one of its devices; a bad link, a rack or a group of suspects degrades none of its hosts.
    """
    if reason := left_out.get(host) or failed_check:
        return "lost", reason
    lost, degraded = [], []
    for record in rounds:
        where = f"{record.case} round {record.round}"
        failure = record.first_failure
        if record.is_lost and failure is not None and failure.host == host:
            lost.append(f"{where}: {failure.message}")
        degraded += [
            f"{where}: {finding.sentence}"
            for finding in record.findings
            if host in finding.drained_hosts or (finding.part in ("host", "device") and host in finding.hosts)
        ]
    if lost:
        return "lost", lost[0]
    return ("degraded", degraded[0]) if degraded else ("healthy", "")
