"""Runs a whole run: check, preparation, every case and round, results. Steps and log lines follow FlagPerf's."""

from __future__ import annotations

import importlib.metadata
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from container.engine_images import ImageIdentity
from run_benchmarks.console.command_line import ROOT, own_command, run_word
from run_benchmarks.console.console import LOG
from run_benchmarks.errors import CheckError, ClusterDynoError, InterruptedRunError
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.fleet import for_each
from run_benchmarks.inspection.check import check_hosts
from run_benchmarks.inspection.code_folder import bring, differences, in_words
from run_benchmarks.inspection.findings import HostReport
from run_benchmarks.plan.plan import CasePlan
from run_benchmarks.plan.recorded import CASES_FOLDER
from run_benchmarks.report.html import write_report
from run_benchmarks.results.metrics import Spread, combine
from run_benchmarks.results.outcomes import assess
from run_benchmarks.results.records import (
    CaseRecord,
    HostRecord,
    RoundRecord,
    RunRecord,
    Verdict,
    worst,
    write_record,
    write_text,
)
from run_benchmarks.results.seal import MANIFEST_FILE, SEAL_FILE, write_seal
from run_benchmarks.results.standards import Held, Standards, case_baseline
from run_benchmarks.session.images import image_records
from run_benchmarks.session.leftovers import remove_collected
from run_benchmarks.session.preparation import PreparedRun, connected
from run_benchmarks.session.retries import earlier_attempts, passed_late
from run_benchmarks.session.revision import revision
from run_benchmarks.session.schedule import (
    RoundScheduler,
    TooFewHostsError,
    recorded_attempts,
    recorded_rounds,
    settled,
)
from run_benchmarks.state.interruption import EXIT_INTERRUPTED, Interruption
from run_benchmarks.state.journal import Journal, RunEnded, RunStarted
from training.benchmarks.driver.protocol.baseline_file import CaseBaseline
from training.benchmarks.driver.protocol.masking import mask_argv, mask_config
from training.benchmarks.driver.protocol.outcome import Assessment

EXIT_PASS, EXIT_FAIL, EXIT_USAGE, EXIT_CHECK = 0, 1, 2, 3
PUSH_SECONDS = 120.0
MAX_NAMED = 50
PACKAGES = ("paramiko", "docker", "pydantic", "jinja2", "rich", "typer")


class Session:
    """Runs a prepared plan to its end, or from the state of its journal; use once."""

    def __init__(self, prepared: PreparedRun, result_dir: Path, interruption: Interruption, command: list[str]) -> None:
        self._journal = Journal(result_dir)
        self._prepared, self._plan = prepared, prepared.plan
        self._result_dir, self._interruption, self._command = result_dir, interruption, command
        self._started_ms = time.time_ns() // 1_000_000
        self._reports: Mapping[str, HostReport] = {}
        self._addresses: dict[str, str] = {}
        self._left_out: dict[str, str] = {}
        self._problem = ""
        self._exit_code: int | None = None
        self._rounds: dict[str, list[RoundRecord]] = {case.name: [] for case in self._plan.cases}
        self._skipped: dict[str, str] = {}
        self._code_differences: dict[str, list[str]] = {}
        self._images: Mapping[str, ImageIdentity] = {}
        self._revision = revision(ROOT, {*prepared.code.names, *(case.config_file for case in prepared.plan.cases)})
        test = prepared.settings.test
        self._standards = Standards(test.BASELINE, test.BASELINE_PERCENT)

    def run(self) -> RunRecord:
        """Run everything; run.json is written after every round and at the end in any case, and returned."""
        self._journal.append(self._started())
        (self._result_dir / SEAL_FILE).unlink(
            missing_ok=True
        )  # written by an earlier controller; this one writes its own
        write_text(self._result_dir / MANIFEST_FILE, self._prepared.code.manifest)
        self._record_settings()
        self._begin()
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
                self._problem = self._interruption.time_limit_reason if self._interruption.time_is_up() else str(error)
                LOG.error("%s", self._problem)
            finally:
                self._collect_leftovers(hosts)
        record = self._finish()
        self._journal.append(RunEnded(verdict=record.verdict, exit_code=record.exit_code))
        seal = write_seal(self._result_dir, self._plan.run_id, self._plan.code_digest)
        LOG.info("Sealed: sha256 of %s is %s", SEAL_FILE, seal)
        return record

    def _started(self) -> RunStarted:
        settings = self._prepared.settings
        return RunStarted(
            run_id=self._plan.run_id,
            pid=os.getpid(),
            plan_digest=self._prepared.digest(),
            cluster_conf=str(settings.cluster_file.resolve()),
            test_conf=str(settings.test_file.resolve()),
            rounds={case.name: len(case.rounds) for case in self._plan.cases},
            hosts=list(self._plan.hosts),
            runtime=self._plan.runtime,
            log_root_host=self._plan.log_root_host,
            changes=settings.changes,
        )

    def _record_settings(self) -> None:
        """Keep each case's settings, without secrets; those of the first start stay where the run is resumed."""
        folder = self._result_dir / CASES_FOLDER
        folder.mkdir(mode=0o750, exist_ok=True)
        for case in self._plan.cases:
            file = folder / f"{case.folder}.json"
            if not file.exists():
                write_text(file, case.case_file.masked.text)

    def _begin(self) -> None:
        """Take over the records of rounds that ended under an earlier controller, and start the run's clock.

        If that controller left a round running, the clock starts later: the round must first be ended and collected.
        """
        self._past = self._journal.read()
        self._started_ms = self._past.begun_ms
        for case in self._plan.cases:
            self._rounds[case.name] = recorded_rounds(self._past, case, self._result_dir)
        if self._past.open is None:
            self._limit_time()

    def _limit_time(self) -> None:
        limit = self._prepared.settings.test.RUN_TIME_LIMIT
        if limit is not None:
            self._interruption.limit_time(limit, time.time() - self._started_ms / 1000)

    def _check(self, hosts: Mapping[str, Host]) -> None:
        plan = self._plan
        LOG.info("======== Step 1: Check environment and configs. ========")
        LOG.info("Initialize logger with log path: %s......[SUCCESS]", self._result_dir)
        for warning in self._prepared.resolved.warnings:
            LOG.warning("%s", warning)
        LOG.debug("Check hosts: %s", ", ".join(plan.hosts))
        prepared = self._prepared
        self._reports = check_hosts(hosts, prepared.settings, plan, prepared.resolved.vendor, prepared.runtime())
        self._addresses = {name: host.address for name, host in hosts.items()}
        self._interruption.check()
        log_findings(self._reports)
        self._leave_out({name: f"{name}: {report.reason}" for name, report in self._reports.items() if report.failed})
        LOG.info("Check configs of all test cases: %s......[SUCCESS]", ", ".join(case.name for case in plan.cases))

    def _leave_out(self, failed: dict[str, str]) -> None:
        """Continue without the hosts that failed the check if at least MIN_HOSTS of the hosts passed.

        Raises:
            CheckError: too few passed.
        """
        names, there = ", ".join(failed), len(self._plan.hosts)
        if not failed:
            LOG.info("Check hosts in the cluster......[SUCCESS]")
            return
        least = self._prepared.settings.cluster.MIN_HOSTS
        if least is None or there - len(failed) < min(least, there):
            LOG.error("Check hosts in the cluster......[FAILED] (%s)", names)
            why = "" if least is None else f"; {there - len(failed)} passed, MIN_HOSTS is {least}"
            raise CheckError(f"{len(failed)} of {there} hosts failed the check: {names}{why}")
        LOG.warning("Check hosts in the cluster......[SUCCESS] on %d of %d", there - len(failed), there)
        LOG.warning("Left out, since MIN_HOSTS is %d: %s", least, names)
        self._left_out = failed

    def _run_cases(self, hosts: Mapping[str, Host]) -> None:
        plan = self._plan
        LOG.info("======== Step 2: Prepare hosts and run test cases. ========")
        self._push_code(hosts)
        schedule = RoundScheduler(
            self._prepared,
            hosts,
            self._reports,
            self._result_dir,
            self._interruption,
            journal=self._journal,
            past=self._past,
            left_out=self._left_out,
        )
        schedule.provide_images()
        self._images = schedule.images
        self._interruption.check()
        LOG.info("2.1 Prepare code and images......[SUCCESS]")
        self._limit_time()
        for case in plan.cases:
            LOG.info(
                "2.2 Testcase %s: %d round(s), %d x %d ranks", case.name, len(case.rounds), case.nnodes, case.nproc
            )
            rounds = self._rounds[case.name]
            for round_plan in case.rounds[settled(self._past, case, rounds) :]:
                ended = round_plan.index - 1
                try:
                    for record in schedule.attempts(case, round_plan.index):
                        rounds[ended:] = [record]
                        write_record(self._result_dir / "run.json", self._record(is_final=False))
                except TooFewHostsError as error:
                    self._skipped[case.name] = str(error)
                    LOG.error("Testcase %s is %s: %s", case.name, "over" if rounds else "skipped", error)
                    break
                self._interruption.check()

    def _push_code(self, hosts: Mapping[str, Host]) -> None:
        lacking = {
            name: host
            for name, host in hosts.items()
            if name not in self._left_out
            and (facts := self._reports[name].facts) is not None
            and facts.code != self._plan.code_digest
        }
        if lacking:
            LOG.debug("Push code %s to %s", self._plan.code_digest, ", ".join(lacking))
        listings = {name: facts.code_listing for name in lacking if (facts := self._reports[name].facts) is not None}
        self._code_differences = {
            name: differences(self._prepared.code, found) for name, found in listings.items() if found
        }
        for name, found in self._code_differences.items():
            LOG.warning("%s", in_words(name, found))
        seconds = self._interruption.seconds_left(PUSH_SECONDS)
        for_each(
            lacking,
            lambda host: bring(host, self._prepared.code, self._plan.code_dir_host, deadline=seconds),
        ).raise_first()

    def _collect_leftovers(self, hosts: Mapping[str, Host]) -> None:
        nodes = [node for record in recorded_attempts(self._result_dir) for node in record.nodes]
        touched = {name: host for name, host in hosts.items() if self._reports and self._reports[name].facts}
        remove_collected(touched, self._plan, nodes, own_command("clean", run_word(self._result_dir)))

    def _finish(self) -> RunRecord:
        LOG.info("======== Step 3: Collect results. ========")
        record = self._record()
        for case in record.cases:
            log_standards(case)
        write_record(self._result_dir / "run.json", record)
        write_report(self._result_dir, record, [r for rounds in self._rounds.values() for r in rounds])
        return record

    def _record(self, *, is_final: bool = True) -> RunRecord:
        """The present run.json; only the final one holds the benchmarks' statements on their results."""
        cases = [self._case_record(case, is_final=is_final) for case in self._plan.cases]
        # After a signal during the last collection that round keeps its verdict, but the run was interrupted.
        verdict = worst([case.verdict for case in cases] + [Verdict.ABORTED] * self._interruption.is_set())
        return RunRecord(
            run_id=self._plan.run_id,
            verdict=verdict,
            exit_code=exit_code(verdict) if self._exit_code is None else self._exit_code,
            started_ms=self._started_ms,
            finished_ms=time.time_ns() // 1_000_000,
            command=mask_argv(self._command),
            changes=self._prepared.settings.changes,
            runtime=self._plan.runtime,
            vendor=self._plan.vendor,
            code_digest=self._plan.code_digest,
            git_revision=self._revision.name,
            git_changes=list(self._revision.changes),
            versions={
                "python": sys.version.split()[0],
                **{name: importlib.metadata.version(name) for name in PACKAGES},
            },
            hosts=[self._host_record(report) for report in self._reports.values()],
            left_out=self._left_out,
            images=image_records(self._prepared.resolved, self._images, self._reports),
            cases=cases,
        )

    def _case_record(self, case: CasePlan, *, is_final: bool) -> CaseRecord:
        rounds = self._rounds[case.name]
        verdicts = [record.verdict for record in rounds]
        if len(rounds) < len(case.rounds):
            verdicts.append(Verdict.ABORTED if self._interruption.is_set() else Verdict.SKIPPED)
        reasons = [record.reason for record in rounds if record.verdict is not Verdict.PASS]
        passed = [record for record in rounds if record.verdict is Verdict.PASS]
        held = Held()
        metrics: dict[str, Any] = {}
        spread: dict[str, Spread] = {}
        try:
            metrics, spread = combine([record.metrics for record in passed])
            held = self._standards.hold(case, passed, metrics)
        except Exception as error:  # noqa: BLE001 - what hosts sent is this case's verdict and not the run's end
            LOG.debug("the measurements of %s cannot be combined", case.name, exc_info=True)
            verdicts.append(Verdict.FAIL)
            reasons.append(f"its measurements cannot be combined: {type(error).__name__}: {str(error)[:300]}")
        if held.failures:
            verdicts.append(Verdict.FAIL)
            reasons.append("; ".join(held.failures))
        if len(rounds) < len(case.rounds):
            reasons.append(self._skipped.get(case.name) or self._interruption.reason or self._problem or "not run")
        said = assess(case, passed) if is_final and passed else Assessment()
        earlier = earlier_attempts(self._result_dir / case.folder, rounds)
        return CaseRecord(
            name=case.name,
            folder=case.folder,
            model=case.model,
            framework=case.framework,
            config_file=case.config_file,
            config=mask_config(case.config),
            nnodes=case.nnodes,
            nproc=case.nproc,
            verdict=worst(verdicts),
            reason=reasons[0] if reasons else passed_late(rounds, earlier),
            rounds=[record.verdict for record in rounds],
            attempts=[record.attempt for record in rounds],
            earlier_attempts=earlier,
            metrics=metrics,
            spread=spread,
            expectations=list(held.expectations),
            baseline=held.baseline,
            sentences=list(said.sentences),
            warnings=[*said.warnings, *held.warnings],
            remarks=[f"round {record.round}: {remark}" for record in rounds for remark in record.remarks],
        )

    def learned(self) -> list[CaseBaseline]:
        """The baseline entries of each case after the run; cases without measurements are left out."""
        found = [case_baseline(self._plan.run_id, case, self._rounds[case.name]) for case in self._plan.cases]
        return [each for each in found if each.entries]

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
            code_differences=self._code_differences.get(report.host, [])[:MAX_NAMED],
        )


def exit_code(verdict: Verdict) -> int:
    """0 only if every case passed; an interrupted run and a failed one differ."""
    if verdict is Verdict.PASS:
        return EXIT_PASS
    return EXIT_INTERRUPTED if verdict is Verdict.ABORTED else EXIT_FAIL


def log_standards(case: CaseRecord) -> None:
    """Log the limits that a case does not meet, what is worse than the baseline, and what could not be compared."""
    broken = [each.sentence for each in case.expectations if not each.met]
    if case.baseline is not None and case.baseline.is_below:
        broken += case.baseline.sentences
    for sentence in broken:
        LOG.error("Testcase %s: %s", case.name, sentence)
    for warning in case.warnings:
        LOG.warning("Testcase %s: %s", case.name, warning)


def log_findings(reports: Mapping[str, HostReport]) -> None:
    """Log every finding of the check, failures as errors."""
    for report in reports.values():
        for finding in report.findings:
            (LOG.error if finding.severity == "failure" else LOG.warning)("%s", finding)
