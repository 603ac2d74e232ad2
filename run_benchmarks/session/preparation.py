"""Prepares a run before a host is touched: its plan, its name and folder, and the way to its hosts."""

from __future__ import annotations

import dataclasses
import hashlib
import sys
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from common.errors import unique
from protocol.case_file import CaseFile
from run_benchmarks.console.command_line import ROOT
from run_benchmarks.console.console import LOG
from run_benchmarks.errors import InputProblems, Problem
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.fleet import for_each
from run_benchmarks.hosts.slurm.allocation import Allocation
from run_benchmarks.hosts.slurm.node_names import folded
from run_benchmarks.plan.code_bundle import CodeBundle, bundle
from run_benchmarks.plan.plan import Plan, RoundPlan
from run_benchmarks.plan.planner import make_plan, nested_mount_points, plan_round
from run_benchmarks.plan.resolve import Resolved, resolve
from run_benchmarks.plan.side_by_side import Wave, demand_of, waves
from run_benchmarks.results.records import JobRecord
from run_benchmarks.runtimes.base import Runtime
from run_benchmarks.runtimes.registry import make_runtime
from run_benchmarks.settings.changes import Changes
from run_benchmarks.settings.cluster import ClusterConf
from run_benchmarks.settings.host_access import deploy_path, endpoint_of, problems_and_notes, users_of
from run_benchmarks.settings.host_selection import HostSelection, select_hosts, with_hosts
from run_benchmarks.settings.settings import Settings, SettingsError, load_settings


@dataclass(frozen=True, kw_only=True)
class PreparedRun:
    """Everything known before a host is touched.

    `allocation`: that which has the hosts, if they need one. `is_part`: whether it is one case of a run of several.
    """

    settings: Settings
    resolved: Resolved
    code: CodeBundle
    plan: Plan
    allocation: Allocation | None = None
    is_part: bool = False

    def plan_for(self, hosts: tuple[str, ...]) -> Plan:
        """The plan of the same run on some of its hosts, without cases that need more hosts or other ones."""
        settings = with_hosts(self.settings, hosts)
        resolved = dataclasses.replace(
            self.resolved,
            cases=tuple(c for c in self.resolved.cases if c.settings.nnodes <= len(c.settings.hosts_of(hosts))),
        )
        plan = self.plan
        return make_plan(settings, resolved, run_id=plan.run_id, code_digest=plan.code_digest, owner=plan.owner)

    def waves(self, cases: Container[str], usable: Mapping[str, Container[str]]) -> list[Wave]:
        """These cases in the waves in which they run, each on hosts of `usable`."""
        demands = []
        for case in self.resolved.cases:
            if case.name in cases:
                demand = demand_of(case.name, case.settings, self.plan.hosts)
                allowed = tuple(name for name in demand.allowed if name in usable[case.name])
                demands.append(dataclasses.replace(demand, allowed=allowed))
        return waves(demands, self.settings.test.MAX_PARALLEL_CASES, self.settings.test.PLACEMENT)

    def attempt(self, plan: Plan, case: str, index: int, attempt: int) -> RoundPlan:
        """Attempt number `attempt` (from 1) at round `index` of a case, on the hosts of `plan`."""
        resolved = next(each for each in self.resolved.cases if each.name == case)
        hosts = next(each for each in plan.cases if each.name == case).hosts
        settings = with_hosts(self.settings, plan.hosts)
        return plan_round(plan, settings, self.resolved, resolved, hosts, index=index, attempt=attempt)

    def part(self, case: str, needed: tuple[str, ...] = ()) -> PreparedRun:
        """One case of the run alone, on the hosts that it takes first; among them are those that are `needed`."""
        planned = next(each for each in self.plan.cases if each.name == case)
        others = [name for name in planned.hosts if name not in needed]
        settings = with_hosts(self.settings, (*needed, *others[: max(0, planned.nnodes - len(needed))]))
        resolved = dataclasses.replace(self.resolved, cases=tuple(c for c in self.resolved.cases if c.name == case))
        plan = self.plan
        made = make_plan(settings, resolved, run_id=plan.run_id, code_digest=plan.code_digest, owner=plan.owner)
        return dataclasses.replace(self, settings=settings, resolved=resolved, plan=made, is_part=True)

    @property
    def has_jobs_of_cases(self) -> bool:
        """Whether each of its cases gets hosts from an allocation of its own."""
        return self.settings.cluster.ALLOCATION == "case" and self.allocation is None and not self.is_part

    def named(self, run_id: str, owner: str) -> PreparedRun:
        """The same run under another name."""
        plan = make_plan(self.settings, self.resolved, run_id=run_id, code_digest=self.code.digest, owner=owner)
        return dataclasses.replace(self, plan=plan)

    def allocated(self, hosts: tuple[str, ...], allocation: Allocation) -> PreparedRun:
        """The same run on the hosts of an allocation."""
        settings, plan = with_hosts(self.settings, hosts), self.plan
        made = make_plan(settings, self.resolved, run_id=plan.run_id, code_digest=plan.code_digest, owner=plan.owner)
        return dataclasses.replace(self, settings=settings, plan=made, allocation=allocation)

    @property
    def job(self) -> JobRecord | None:
        """The job that has its hosts; None without one."""
        if (held := self.allocation) is None:
            return None
        hosts = folded(self.plan.hosts)
        case = self.plan.cases[0].name if self.is_part else ""
        queued = held.queue_seconds
        return JobRecord(id=held.number, hosts=hosts, queue_seconds=queued, is_ours=held.is_ours, case=case)

    def runtime(self, warn: Callable[[str], None] = LOG.warning) -> Runtime:
        """The runtime of its plan; `warn` receives what a host does not permit a task."""
        return make_runtime(self.plan.runtime, warn, self.settings.test.MAX_OUTPUT_BYTES)

    def digest(self) -> str:
        """Digest of the plan: two runs of the same digest do the same, whatever the origin of their values."""
        places = {"cases": {"__all__": {"origins", "config_origins"}}}
        return hashlib.sha256(self.plan.model_dump_json(exclude=places).encode()).hexdigest()


def prepare(settings: Settings, run_id: str, recorded: Mapping[str, CaseFile] | None = None) -> PreparedRun:
    """Resolve and plan, without touching a host.

    If every case names its hosts, the other HOSTS take no part in the run.

    Raises:
        InputProblems: the settings name something that does not exist or does not fit.
    """
    narrowed, notes = _used_hosts(settings)
    problems, unused = _access_problems(narrowed)
    try:
        resolved = resolve(settings, local_python=sys.executable, recorded=recorded)
    except InputProblems as error:
        raise InputProblems(unique([*error.problems, *problems])) from error
    if problems:
        raise InputProblems(problems)
    settings = narrowed
    deploy = settings.test.FLAGPERF_PATH_HOST or deploy_path(settings.cluster)
    resolved = dataclasses.replace(resolved, deploy=deploy, warnings=(*resolved.warnings, *notes, *unused))
    code = bundle(ROOT, nested_mount_points(settings))
    plan = make_plan(settings, resolved, run_id=run_id, code_digest=code.digest)
    return PreparedRun(settings=settings, resolved=resolved, code=code, plan=plan)


def checked_settings(
    cluster_file: Path, test_file: Path, changes: Changes | None = None, selection: HostSelection | None = None
) -> Settings:
    """The settings of both files with what the command line changes and selects.

    Raises:
        InputProblems: all mistakes in one pass: in the files, on the command line, and, if any was found there,
            in the names that `prepare` would look up.
    """
    problems: list[Problem] = []
    try:
        settings = load_settings(cluster_file, test_file, changes)
    except SettingsError as error:
        problems += error.problems
        settings = error.sound
    if selection is not None and "HOSTS" not in settings.unknown:
        try:
            settings = select_hosts(settings, selection)
        except InputProblems as error:
            problems += error.problems
    if problems:
        raise InputProblems(unique([*problems, *_mistakes(settings)]))
    return settings


def _mistakes(settings: Settings) -> list[Problem]:
    """The mistakes in the names that the valid part of the settings refers to."""
    problems = [] if "HOSTS" in settings.unknown else _access_problems(_used_hosts(settings)[0])[0]
    try:
        resolve(settings, local_python=sys.executable)
    except InputProblems as error:
        problems += error.problems
    return problems


def _used_hosts(settings: Settings) -> tuple[Settings, list[str]]:
    """The settings without hosts that no case runs on, if every case names its hosts, and a note on these."""
    named = [case.hosts for case in settings.cases.values()]
    used = tuple(name for name in settings.cluster.HOSTS if any(hosts is None or name in hosts for hosts in named))
    if not used or used == settings.cluster.HOSTS:
        return settings, []
    idle = ", ".join(name for name in settings.cluster.HOSTS if name not in used)
    return with_hosts(settings, used), [f"no case runs on {idle}: not touched, since every case names its hosts"]


def _access_problems(settings: Settings) -> tuple[list[Problem], list[str]]:
    """Problems that leave hosts unreachable or without a common folder, and notes on ssh options without effect."""
    problems, notes = problems_and_notes(settings.cluster)
    if not problems and settings.test.FLAGPERF_PATH_HOST is None and len(users := users_of(settings.cluster)) > 1:
        whose = ", ".join(f"{user} on {host}" for user, host in users.items())
        allowed = (
            f"a folder that every host's user may write to: they differ ({whose}), so that no home folder fits all"
        )
        problems = [Problem(str(settings.test_file), "FLAGPERF_PATH_HOST", None, allowed)]
    return problems, notes


def make_hosts(cluster: ClusterConf, allocation: Allocation | None = None) -> dict[str, Host]:
    """One Host per name; nothing is connected yet.

    Raises:
        InputProblems: an ssh configuration file is unusable.
    """
    from run_benchmarks.hosts.factory import hosts_of  # paramiko and docker take long to import

    return hosts_of(cluster.HOSTS, lambda name: endpoint_of(name, cluster), allocation)


@contextmanager
def connected(cluster: ClusterConf, allocation: Allocation | None = None) -> Iterator[dict[str, Host]]:
    """The hosts, closed at the end in any case."""
    hosts = make_hosts(cluster, allocation)
    try:
        yield hosts
    finally:
        for_each(hosts, lambda host: host.close())
