"""Holds what the rounds of a run share, and what is known of one node while its round runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from run_benchmarks.errors import HostKeyError
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.incoming.limits import CollectLimits
from run_benchmarks.hosts.outages import HEARTBEAT_SECONDS as HEARTBEAT_SECONDS
from run_benchmarks.hosts.outages import Outage, OutOfReachError, Patience, across_outages
from run_benchmarks.hosts.outages import answers as answers
from run_benchmarks.hosts.outages import refusal as refusal
from run_benchmarks.inspection.findings import HostReport
from run_benchmarks.plan.code_bundle import CodeBundle
from run_benchmarks.plan.plan import NodePlan, Plan
from run_benchmarks.results.node_outcome import NodeOutcome
from run_benchmarks.runtimes.base import RunningTask, Runtime
from run_benchmarks.state.interruption import Interruption, patience

ValueT = TypeVar("ValueT")


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """State that all rounds of a run share. `link_limit`: seconds for which a host may be unreachable during a round.

    `beside`: the cases that run at the same time, on other hosts. `collect_limits`: limits of a node's collected files.
    """

    plan: Plan
    code: CodeBundle
    hosts: Mapping[str, Host]
    reports: Mapping[str, HostReport]
    runtime: Runtime
    result_dir: Path
    interruption: Interruption
    link_limit: float
    beside: tuple[str, ...] = ()
    collect_limits: CollectLimits = field(default_factory=CollectLimits)

    @property
    def patience(self) -> Patience:
        """How long an answer of a host is waited for."""
        return patience(self.link_limit, self.interruption)

    def image_id(self, node: NodePlan) -> str | None:
        """The id of a node's image on its host; None without one."""
        report = self.reports.get(node.host)
        return report.images.get(node.image or "") if report is not None else None


@dataclass(kw_only=True)
class RunningNode:
    """One node of the running round. `lost`: its host is unreachable, and is not asked any more.

    `silence`: why its runtime (the Docker engine) does not answer, though its host does; "" if it does. `is_made`: its
    tasks are complete, by this controller or an earlier one. `is_asked`: its workload was asked to start. `boot_id`: of
    the kernel that the round began on, "" if unknown. `is_owed`: its files were not collected, and still can be.
    `outages`: when it did not answer and came back, from and to in epoch ms, with the error.
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
    silence: str = ""
    warnings: list[str] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
    patience: Patience = field(default_factory=Patience)
    is_made: bool = True
    is_asked: bool = False
    is_owed: bool = False

    @property
    def silent(self) -> bool:
        """Whether the host answers, but its runtime does not."""
        return bool(self.silence)

    def answers(self) -> bool:
        """Whether the host answers now, over this connection or a new one; sets `lost` accordingly."""
        self.lost = not answers(self.host)
        return not self.lost

    def persist(self, action: Callable[[RunningNode], ValueT]) -> ValueT:
        """Run an action, again after each outage of its host (see across_outages); sets `lost` where it gives up."""
        try:
            return across_outages(self.host, lambda: action(self), self.patience, self.outages.append)
        except (OutOfReachError, HostKeyError):
            self.lost = True
            self.outcome.silent_ms = self.outcome.silent_ms or (self.outages[-1][0] if self.outages else None)
            raise
