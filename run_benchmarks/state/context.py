"""Holds what the rounds of a run share, and what is known of one node while its round runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from run_benchmarks.errors import HostError
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.incoming.limits import CollectLimits
from run_benchmarks.inspection.findings import HostReport
from run_benchmarks.plan.code_bundle import CodeBundle
from run_benchmarks.plan.plan import NodePlan, Plan
from run_benchmarks.results.node_outcome import NodeOutcome
from run_benchmarks.runtimes.base import RunningTask, Runtime
from run_benchmarks.state.interruption import Interruption

HEARTBEAT_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """What every round of a run shares. `link_limit`: seconds for which a host may be out of reach during a round.

    `collect_limits`: how much of a node's files is brought.
    """

    plan: Plan
    code: CodeBundle
    hosts: Mapping[str, Host]
    reports: Mapping[str, HostReport]
    runtime: Runtime
    result_dir: Path
    interruption: Interruption
    link_limit: float
    collect_limits: CollectLimits = field(default_factory=CollectLimits)

    def image_id(self, node: NodePlan) -> str | None:
        """The id under which a node's host has its image; None without one."""
        report = self.reports.get(node.host)
        return report.images.get(node.image or "") if report is not None else None


@dataclass(kw_only=True)
class RunningNode:
    """One node of the running round. `lost`: its host is out of reach, so that nothing more is asked of it.

    `silent`: the host answers, but what runs its tasks (the Docker engine) does not.
    `outages`: when it did not answer and came back, from and to in epoch ms, with what was found.
    """

    plan: NodePlan
    host: Host
    outcome: NodeOutcome
    workload: RunningTask | None = None
    monitor: RunningTask | None = None
    done: bool = False
    code_digest: str | None = None
    lost: bool = False
    silent: bool = False
    warnings: list[str] = field(default_factory=list)
    outages: list[tuple[int, int, str]] = field(default_factory=list)

    def answers(self) -> bool:
        """Whether the host answers now, over this connection or a new one; `lost` is set accordingly."""
        self.lost = not answers(self.host)
        return not self.lost


def answers(host: Host, seconds: float = HEARTBEAT_SECONDS) -> bool:
    """Whether a host answers within `seconds`, or after that over a new connection (which has its own time-out)."""
    try:
        host.run(["true"], deadline=seconds)
    except HostError:
        try:
            host.reconnect()
        except HostError:
            return False
    return True
