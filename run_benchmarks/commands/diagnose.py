"""Runs `run.py diagnose`: tests the connection of the hosts step by step, and names the first step that fails."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from run_benchmarks.console.command_line import own_command, run_word
from run_benchmarks.errors import ClusterDynoError, InputProblems, Problem
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.fleet import for_each
from run_benchmarks.inspection.check import check_hosts
from run_benchmarks.inspection.code_folder import bring
from run_benchmarks.inspection.findings import HostReport
from run_benchmarks.inspection.master_port import claim_port
from run_benchmarks.plan.plan import CASE_MOUNT, NodePlan, Plan
from run_benchmarks.plan.planner import make_plan
from run_benchmarks.plan.references import outcome_problem
from run_benchmarks.plan.resolve import ResolvedCase
from run_benchmarks.results.records import RoundRecord
from run_benchmarks.rounds.round import RoundRunner
from run_benchmarks.runtimes.base import Bound, RunningTask
from run_benchmarks.session.images import provide_images
from run_benchmarks.session.leftovers import remove_collected
from run_benchmarks.session.preparation import PreparedRun
from run_benchmarks.settings.settings import Settings
from run_benchmarks.state.context import RunContext
from run_benchmarks.state.interruption import Interruption, patience

REACH = ("-m", "training.benchmarks.driver.launch.reach")
REACH_SECONDS, LISTEN_SECONDS = 10.0, 40.0
PAIR_SECONDS = 90.0
PREPARE_SECONDS = 120.0
FULL = "full"


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One step of the ladder: `problems` names the hosts that fail it; empty if it passed."""

    name: str
    problems: tuple[str, ...] = ()


class Ladder:
    """Tests rung by rung over connected hosts; use once."""

    def __init__(
        self, prepared: PreparedRun, hosts: Mapping[str, Host], result_dir: Path, interruption: Interruption
    ) -> None:
        self._prepared, self._hosts = prepared, hosts
        self._result_dir, self._interruption = result_dir, interruption
        self._case = ladder_case(prepared)
        self._probe = _probe_of(self._case, prepared.settings) or {}
        self._names = self._case.settings.hosts_of(prepared.plan.hosts)[: self._case.settings.nnodes]
        self._reports: dict[str, HostReport] = {}
        self._runtime = prepared.runtime(lambda _: None)

    def climb(self) -> Iterator[Rung]:
        """Each rung as it is reached; the first that fails is the last.

        Raises:
            InterruptedRunError: a signal arrived, possibly in the middle of a rung.
        """
        backend = self._case.config.backend or self._prepared.resolved.vendor.backend
        rungs: list[tuple[str, Callable[[], tuple[str, ...]]]] = [
            ("ssh", self._ssh),
            ("names", self._resolve),
            ("interface", self._interface),
            ("port to the master", self._port),
            ("gloo on two hosts", lambda: self._pairs("gloo")),
        ]
        if backend != "gloo":
            rungs.append((f"{backend} on two hosts, small messages", lambda: self._pairs(backend)))
        rungs.append((f"{backend} on all hosts, full size", self._full))
        for name, step in rungs:
            self._interruption.check()
            try:
                problems = step()
            except ClusterDynoError as error:
                problems = (str(error),)
            self._interruption.check()  # a rung that a signal interrupted says nothing about the hosts
            yield Rung(name=name, problems=problems)
            if problems:
                return

    def _ssh(self) -> tuple[str, ...]:
        plan, resolved = self._prepared.plan, self._prepared.resolved
        hosts = {name: self._hosts[name] for name in self._names}
        waiting = patience(self._prepared.settings.cluster.LINK_LIMIT, self._interruption)
        self._reports = check_hosts(hosts, self._prepared.settings, plan, resolved.vendor, self._runtime, waiting)
        failed = [report for report in self._reports.values() if report.facts is None]
        return tuple(str(finding) for report in failed for finding in report.findings)

    def _resolve(self) -> tuple[str, ...]:
        return self._findings("names")

    def _interface(self) -> tuple[str, ...]:
        return self._findings("interface")

    def _findings(self, subject: str) -> tuple[str, ...]:
        found = [finding for report in self._reports.values() for finding in report.findings]
        return tuple(str(f) for f in found if f.subject == subject and f.severity == "failure")

    def _port(self) -> tuple[str, ...]:
        """The master listens where torchrun would; every other host connects."""
        plan = self._prepared.plan
        self._provide(plan)
        case = next(case for case in plan.cases if case.name == self._case.name)
        first, *others = case.rounds[0].nodes
        port = claim_port(self._hosts[first.host], plan, case.rounds[0].port_from, deadline=PREPARE_SECONDS)
        address = self._hosts[first.host].address
        label = first.host + ("" if first.host == address else f" (which the head node reaches at {address})")
        self._make_folders(case.rounds[0].nodes)
        listener = self._task(first, port, "listen", "--seconds", f"{LISTEN_SECONDS:g}")
        listener.start()
        try:
            target = {node.host: node for node in others}

            def connect(node: NodePlan) -> str:
                known = self._reports[node.host].facts
                # By name, as torchrun will; a container on a host that cannot resolve it gets the address.
                name = first.host if known is not None and first.host in known.resolves else address
                task = self._task(node, port, "connect", "--host", name, "--seconds", f"{REACH_SECONDS:g}")
                task.start()
                code = task.wait(REACH_SECONDS * 3)
                output = task.finish(1.0).strip()
                return "" if code == 0 else f"{node.host} does not reach the master {label}: {output}"

            result = for_each(target, connect)
        finally:
            listener.finish(1.0)
        return (*filter(None, result.succeeded.values()), *map(str, result.failed.values()))

    def _task(self, node: NodePlan, port: int, *words: str) -> RunningTask:
        facts = self._reports[node.host].facts
        assert facts is not None
        # No rank runs here: its case.json and the folder of hashes are not there yet.
        mounts = tuple(mount for mount in node.mounts if not mount.target.startswith(CASE_MOUNT))
        node = node.model_copy(update={"mounts": mounts})
        argv = (node.workload.argv[0], *REACH, *words, "--port", str(port))
        task = node.workload.model_copy(update={"name": f"{node.workload.name}-reach", "argv": argv})
        image = self._reports[node.host].images.get(node.image or "")
        bound = Bound(master_port=port, image=image, user=f"{facts.uid}:{facts.gid}")
        return self._runtime.create(self._hosts[node.host], node, task, bound)

    def _provide(self, plan: Plan) -> None:
        """Bring code, images and folders to hosts that lack them."""
        hosts = {name: self._hosts[name] for name in self._names}

        code, path = self._prepared.code, plan.code_dir_host
        for_each(hosts, lambda host: bring(host, code, path, deadline=PREPARE_SECONDS)).raise_first()
        resolved = self._prepared.resolved
        waiting = patience(self._prepared.settings.cluster.LINK_LIMIT, self._interruption)
        provide_images(self._runtime, plan, resolved, self._hosts, self._reports, waiting, {})

    def _make_folders(self, nodes: Sequence[NodePlan]) -> None:
        def make(node: NodePlan) -> None:
            self._hosts[node.host].run(["mkdir", "-p", node.log_dir_host], deadline=PREPARE_SECONDS)

        for_each({node.host: node for node in nodes}, make).raise_first()

    def _pairs(self, backend: str) -> tuple[str, ...]:
        """Run the master with each other host, pair by pair, so that the failing one is named."""
        first, *others = self._names
        problems = []
        for other in others:
            self._interruption.check()
            overrides = {**self._case.settings.overrides, **self._probe, "backend": backend}
            reason = self._round((first, other), overrides, f"{backend}-{other}")
            if reason:
                problems.append(f"{first} and {other}: {reason}")
        return tuple(problems)

    def _full(self) -> tuple[str, ...]:
        reason = self._round(self._names, self._case.settings.overrides, FULL)
        return (f"{', '.join(self._names)}: {reason}",) if reason else ()

    def _round(self, names: tuple[str, ...], overrides: Mapping[str, JsonValue], label: str) -> str:
        """Run the case on these hosts; returns the problem, "" for none."""
        pair = {"time_limit": PAIR_SECONDS, "nproc": 1} if label != FULL else {}
        change = {"nnodes": len(names), "hosts": names, "repeat": 1, "retries": 0, "overrides": dict(overrides), **pair}
        name = f"{self._case.name}-{label}"
        config = type(self._case.config).model_validate({**self._case.config.model_dump(), **overrides})
        settings_of_case = self._case.settings.model_copy(update=change)
        case = dataclasses.replace(self._case, name=name, settings=settings_of_case, config=config)
        prepared, settings = self._prepared, self._prepared.settings
        cluster = settings.cluster.model_copy(update={"HOSTS": names})
        plan = make_plan(
            settings.model_copy(update={"cluster": cluster}),
            dataclasses.replace(prepared.resolved, cases=(case,)),
            run_id=prepared.plan.run_id,
            code_digest=prepared.plan.code_digest,
            owner=prepared.plan.owner,
        )
        context = RunContext(
            plan=plan,
            code=prepared.code,
            hosts=self._hosts,
            reports=self._reports,
            runtime=self._runtime,
            result_dir=self._result_dir,
            interruption=self._interruption,
            link_limit=settings.cluster.LINK_LIMIT,
        )
        record = RoundRunner(context, plan.cases[0], plan.cases[0].rounds[0], note=lambda _: None).run()
        return problem_of(record, settings.test.FAIL_ON)

    def clean_up(self) -> None:
        """Remove the collected files of the rounds from the hosts."""
        reached = {name: self._hosts[name] for name, report in self._reports.items() if report.facts is not None}
        clean = f"`{own_command('clean', run_word(self._result_dir))}`"
        remove_collected(reached, self._prepared.plan.log_root_host, self._result_dir, clean)


def problem_of(record: RoundRecord, fail_on: Sequence[str]) -> str:
    """Why a round fails its rung: it was not measured, or FAIL_ON names a kind or severity of its findings."""
    if not record.verdict.is_measured:
        return f"{record.verdict}: {record.reason}"
    return "; ".join(finding.words for finding in record.findings if finding.is_among(fail_on))


def ladder_case(prepared: PreparedRun) -> ResolvedCase:
    """The case of CASES for the ladder: one whose benchmark can probe hosts, on the most hosts.

    Raises:
        InputProblems: no such case has at least two hosts.
    """
    settings = prepared.settings
    fitting = [c for c in prepared.resolved.cases if c.settings.nnodes > 1 and _probe_of(c, settings) is not None]
    if not fitting:
        names = ", ".join(case.name for case in prepared.resolved.cases)
        allowed = "at least one case of a benchmark that probes hosts, such as 'network', with nnodes of 2 or more"
        raise InputProblems([Problem(str(settings.test_file), "CASES", names, allowed)])
    return max(fitting, key=lambda case: case.settings.nnodes)


def _probe_of(case: ResolvedCase, settings: Settings) -> Mapping[str, JsonValue] | None:
    """The overrides that make a case a quick test of communication; None: it cannot be one.

    Raises:
        InputProblems: it fails.
    """
    try:
        return case.benchmark.outcome.probe(case.config.model_dump(mode="json"))
    except Exception as error:
        source = settings.source(case.name)
        raise InputProblems([outcome_problem(source, case.name, case.benchmark, "probe", error)]) from error
