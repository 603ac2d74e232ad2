"""A whole run: check, prepare, every case and round, results. Steps and their log lines follow the seed's."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from run_benchmarks.check import HostReport, check_hosts
from run_benchmarks.code_bundle import CodeBundle, bundle
from run_benchmarks.console import LOG
from run_benchmarks.errors import CheckError, ClusterDynoError, InterruptedRunError
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.fleet import for_each
from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.hosts.ssh import Endpoint, SshHost
from run_benchmarks.hosts.transfer import push
from run_benchmarks.images import provide_images
from run_benchmarks.interruption import EXIT_INTERRUPTED, Interruption
from run_benchmarks.plan import CasePlan, Plan, make_plan, nested_mount_points
from run_benchmarks.report.html import write_report
from run_benchmarks.resolve import Resolved, resolve
from run_benchmarks.results.judge import mean_metrics
from run_benchmarks.results.records import CaseRecord, HostRecord, RoundRecord, RunRecord, Verdict, worst, write_record
from run_benchmarks.round import Round, RunContext
from run_benchmarks.runtimes.base import Runtime
from run_benchmarks.runtimes.docker import DockerRuntime
from run_benchmarks.runtimes.process import ProcessRuntime
from run_benchmarks.settings import LOCAL_NAMES, ClusterConf, Settings

EXIT_PASS, EXIT_FAIL, EXIT_USAGE, EXIT_CHECK = 0, 1, 2, 3
ROOT = Path(__file__).resolve().parents[1]
PUSH_SECONDS = 120.0
CLEAN_SECONDS = 60.0
PACKAGES = ("paramiko", "docker", "pydantic", "jinja2", "rich", "typer")


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Everything known before a host is touched."""

    settings: Settings
    resolved: Resolved
    code: CodeBundle
    plan: Plan


def prepare(settings: Settings, run_id: str) -> Prepared:
    """Resolve and plan, without touching a host. Raises ConfigError."""
    resolved = resolve(settings, local_python=sys.executable)
    code = bundle(ROOT, nested_mount_points(settings))
    plan = make_plan(settings, resolved, run_id=run_id, code_digest=code.digest)
    return Prepared(settings=settings, resolved=resolved, code=code, plan=plan)


def new_run_id() -> str:
    """`run` and the local time, the seed's form."""
    return time.strftime("run%Y%m%d%H%M%S")


def result_root(settings: Settings) -> Path:
    """Where runs are kept on the head node."""
    return Path(settings.test.FLAGPERF_LOG_PATH_HOST or ROOT / "result")


def make_hosts(cluster: ClusterConf) -> dict[str, Host]:
    """One Host object a name; nothing is connected yet."""
    return {name: _host(name, cluster) for name in cluster.HOSTS}


def _host(name: str, cluster: ClusterConf) -> Host:
    if name in LOCAL_NAMES:
        return LocalHost(name)
    return SshHost(
        Endpoint(
            host=name,
            port=cluster.SSH_PORT,
            user=cluster.SSH_USER,
            key=cluster.SSH_KEY,
            known_hosts=cluster.KNOWN_HOSTS,
        )
    )


@contextmanager
def connected(cluster: ClusterConf) -> Iterator[dict[str, Host]]:
    """The hosts, closed at the end whatever happens."""
    hosts = make_hosts(cluster)
    try:
        yield hosts
    finally:
        for_each(hosts, lambda host: host.close())


class Session:
    """Runs a prepared plan to its end; use once."""

    def __init__(self, prepared: Prepared, result_dir: Path, interruption: Interruption, command: list[str]) -> None:
        self._prepared, self._plan = prepared, prepared.plan
        self._result_dir, self._interruption, self._command = result_dir, interruption, command
        self._started_ms = time.time_ns() // 1_000_000
        self._reports: Mapping[str, HostReport] = {}
        self._addresses: dict[str, str] = {}
        self._problem = ""
        self._exit_code: int | None = None
        self._rounds: dict[str, list[RoundRecord]] = {case.name: [] for case in self._plan.cases}

    def run(self) -> RunRecord:
        """Run everything; run.json is written after every round and at the end, whatever happened, and returned."""
        with connected(self._prepared.settings.cluster) as hosts:
            try:
                self._check(hosts)
                self._run_cases(hosts)
            except InterruptedRunError as error:
                LOG.warning("%s", error)
            except CheckError as error:
                self._problem, self._exit_code = str(error), EXIT_CHECK
                LOG.error("%s", error)
            except ClusterDynoError as error:
                self._problem = str(error)
                LOG.error("%s", error)
            finally:
                self._collect_leftovers(hosts)
        return self._finish()

    def _check(self, hosts: Mapping[str, Host]) -> None:
        plan = self._plan
        LOG.info("======== Step 1: Check environment and configs. ========")
        LOG.info("Initialize logger with log path: %s......[SUCCESS]", self._result_dir)
        for warning in self._prepared.resolved.warnings:
            LOG.warning("%s", warning)
        LOG.debug("Check hosts: %s", ", ".join(plan.hosts))
        self._reports = check_hosts(hosts, self._prepared.settings, plan, self._prepared.resolved.vendor)
        self._addresses = {name: host.address for name, host in hosts.items()}
        self._interruption.check()
        log_findings(self._reports)
        failed = [name for name, report in self._reports.items() if report.failed]
        if failed:
            LOG.error("Check hosts in the cluster......[FAILED] (%s)", ", ".join(failed))
            raise CheckError(f"{len(failed)} of {len(hosts)} hosts failed the check: {', '.join(failed)}")
        LOG.info("Check hosts in the cluster......[SUCCESS]")
        LOG.info("Check configs of all test cases: %s......[SUCCESS]", ", ".join(case.name for case in plan.cases))

    def _run_cases(self, hosts: Mapping[str, Host]) -> None:
        plan = self._plan
        LOG.info("======== Step 2: Prepare hosts and run test cases. ========")
        self._push_code(hosts)
        image_ids = self._images(hosts)
        self._interruption.check()
        LOG.info("2.1 Prepare code and images......[SUCCESS]")
        runtime: Runtime = DockerRuntime(LOG.warning) if plan.runtime == "docker" else ProcessRuntime()
        context = RunContext(
            plan=plan,
            hosts=hosts,
            reports=self._reports,
            runtime=runtime,
            image_ids=image_ids,
            result_dir=self._result_dir,
            interruption=self._interruption,
        )
        for case in plan.cases:
            LOG.info(
                "2.2 Testcase %s: %d round(s), %d x %d ranks", case.name, len(case.rounds), case.nnodes, case.nproc
            )
            for round_plan in case.rounds:
                self._interruption.check()
                LOG.info("-== Testcase %s Round %d starts ==-", case.name, round_plan.index)
                record = Round(context, case, round_plan).run()
                self._rounds[case.name].append(record)
                _log_round(record)
                write_record(self._result_dir / "run.json", self._record())
                self._interruption.check()

    def _images(self, hosts: Mapping[str, Host]) -> dict[str, str]:
        if self._plan.runtime != "docker":
            return {}
        return provide_images(self._plan, self._prepared.resolved, hosts, self._reports, self._interruption)

    def _push_code(self, hosts: Mapping[str, Host]) -> None:
        lacking = {
            name: host
            for name, host in hosts.items()
            if (facts := self._reports[name].facts) is not None and not facts.has_code
        }
        if lacking:
            LOG.debug("Push code %s to %s", self._plan.code_digest, ", ".join(lacking))
        for_each(
            lacking,
            lambda host: push(host, self._prepared.code.open(), self._plan.code_dir_host, deadline=PUSH_SECONDS),
        ).raise_first()

    def _collect_leftovers(self, hosts: Mapping[str, Host]) -> None:
        """Remove the run's folders from the hosts where everything in them is here; say where they stay."""
        missed = {node.host for rounds in self._rounds.values() for r in rounds for node in r.nodes if not node.files}
        touched = {name: host for name, host in hosts.items() if self._reports and self._reports[name].facts}
        for name in sorted(missed & touched.keys()):
            LOG.warning(
                "%s: not everything could be collected; what is there stays in %s", name, self._plan.log_root_host
            )
        removable = {name: host for name, host in touched.items() if name not in missed}
        result = for_each(
            removable, lambda host: host.run(["rm", "-rf", self._plan.log_root_host], deadline=CLEAN_SECONDS)
        )
        for error in result.failed.values():
            LOG.warning("%s", error)

    def _finish(self) -> RunRecord:
        LOG.info("======== Step 3: Collect results. ========")
        record = self._record()
        write_record(self._result_dir / "run.json", record)
        write_report(self._result_dir, record, [r for rounds in self._rounds.values() for r in rounds])
        return record

    def _record(self) -> RunRecord:
        cases = [self._case_record(case) for case in self._plan.cases]
        verdict = worst([case.verdict for case in cases])
        return RunRecord(
            run_id=self._plan.run_id,
            verdict=verdict,
            exit_code=exit_code(verdict) if self._exit_code is None else self._exit_code,
            started_ms=self._started_ms,
            finished_ms=time.time_ns() // 1_000_000,
            command=self._command,
            runtime=self._plan.runtime,
            vendor=self._plan.vendor,
            code_digest=self._plan.code_digest,
            git_revision=git_revision(),
            versions={
                "python": sys.version.split()[0],
                **{name: importlib.metadata.version(name) for name in PACKAGES},
            },
            hosts=[self._host_record(report) for report in self._reports.values()],
            cases=cases,
        )

    def _case_record(self, case: CasePlan) -> CaseRecord:
        rounds = self._rounds[case.name]
        verdicts = [record.verdict for record in rounds]
        if len(rounds) < len(case.rounds):
            verdicts.append(Verdict.ABORTED if self._interruption.is_set() else Verdict.SKIPPED)
        reasons = [record.reason for record in rounds if record.verdict is not Verdict.PASS]
        if len(rounds) < len(case.rounds):
            reasons.append(self._interruption.reason or self._problem or "not run")
        return CaseRecord(
            name=case.name,
            folder=case.folder,
            model=case.model,
            framework=case.framework,
            config_file=case.config_file,
            config=case.config,
            nnodes=case.nnodes,
            nproc=case.nproc,
            verdict=worst(verdicts),
            reason=reasons[0] if reasons else "all rounds passed",
            rounds=[record.verdict for record in rounds],
            metrics=mean_metrics([record.metrics for record in rounds if record.verdict is Verdict.PASS]),
        )

    def _host_record(self, report: HostReport) -> HostRecord:
        facts = report.facts
        return HostRecord(
            name=report.host,
            address=self._addresses.get(report.host, ""),
            kernel=facts.kernel if facts else "",
            hostname=facts.hostname if facts else "",
            user=facts.user if facts else "",
            docker_version=report.docker_version,
            devices=list(facts.devices) if facts else [],
            interface=facts.interface if facts else None,
            clock_offset_seconds=round(facts.clock_offset, 4) if facts else 0.0,
        )


def exit_code(verdict: Verdict) -> int:
    """0 only where every case passed; an interrupted run and a failed one differ."""
    if verdict is Verdict.PASS:
        return EXIT_PASS
    return EXIT_INTERRUPTED if verdict is Verdict.ABORTED else EXIT_FAIL


def log_findings(reports: Mapping[str, HostReport]) -> None:
    """Every finding of the check, failures as errors."""
    for report in reports.values():
        for finding in report.findings:
            (LOG.error if finding.severity == "failure" else LOG.warning)("%s", finding)


def _log_round(record: RoundRecord) -> None:
    for warning in record.warnings:
        LOG.warning("%s", warning)
    if record.verdict is Verdict.PASS:
        LOG.info("-== Testcase %s Round %d finished ==-......[SUCCESS]", record.case, record.round)
        return
    LOG.error(
        "-== Testcase %s Round %d: %s: %s ==-......[FAILED]", record.case, record.round, record.verdict, record.reason
    )
    if record.first_failure is not None and record.first_failure.log_tail:
        LOG.error("end of the log:\n%s", record.first_failure.log_tail)


def git_revision() -> str | None:
    """The repository's commit, with `-dirty` for local changes; None outside a repository."""
    try:
        answer = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None if answer.returncode == 0 else None
