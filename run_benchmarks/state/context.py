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
    """State that all rounds of a run share. `link_limit`: seconds for which a host may be unreachable during a round.

    `collect_limits`: limits of a node's collected files.
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
        """The id of a node's image on its host; None without one."""
        report = self.reports.get(node.host)
        return report.images.get(node.image or "") if report is not None else None


@dataclass(kw_only=True)
class RunningNode:
    """One node of the running round. `lost`: its host is unreachable, and is not asked any more.

    `boot_id` is of the kernel that the round began on, "" if unknown.
    `silent`: the host answers, but its runtime (the Docker engine) does not. `outages`: when it did not answer and came
    back, from and to in epoch ms, with the error.
    """

    plan: NodePlan
    host: Host
    outcome: NodeOutcome
    workload: RunningTask | None = None
    monitor: RunningTask | None = None
    done: bool = False
    code_digest: str | None = None
    boot_id: str = ""
    lost: bool = False
    silent: bool = False
    warnings: list[str] = field(default_factory=list)
    outages: list[tuple[int, int, str]] = field(default_factory=list)

    def answers(self) -> bool:
        """Whether the host answers now, over this connection or a new one; sets `lost` accordingly."""
        self.lost = not answers(self.host)
        return not self.lost


def answers(host: Host, seconds: float = HEARTBEAT_SECONDS) -> bool:
    """Whether a host answers within `seconds`, or after that over a new connection (with a time-out of its own)."""
    return refusal(host, seconds) is None


def refusal(host: Host, seconds: float = HEARTBEAT_SECONDS) -> HostError | None:
    """Why a host neither answers within `seconds` nor over a new connection; None if it does."""
    try:
        host.run(["true"], deadline=seconds)
    except HostError:
        try:
            host.reconnect()
        except HostError as error:
            return error
    return None
