"""Runs a whole run: check, preparation, every case and round, results. Steps and log lines follow FlagPerf's."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from run_benchmarks.console.command_line import own_command, run_word
from run_benchmarks.console.console import LOG
from run_benchmarks.errors import CheckError, ClusterDynoError, InterruptedRunError
from run_benchmarks.history.recording import url_of
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.fleet import for_each, together
from run_benchmarks.hosts.outages import Patience, across_outages
from run_benchmarks.inspection.check import check_hosts
from run_benchmarks.inspection.code_folder import bring, differences, in_words
from run_benchmarks.plan.plan import CasePlan, RoundPlan
from run_benchmarks.plan.recorded import CASES_FOLDER
from run_benchmarks.plan.side_by_side import Wave
from run_benchmarks.report.html import write_report
from run_benchmarks.results.records import (
    JobRecord,
    RoundRecord,
    RunRecord,
    write_record,
    write_text,
)
from run_benchmarks.results.seal import MANIFEST_FILE, SEAL_FILE, SIGNATURE_FILE, write_seal
from run_benchmarks.results.signature import sign_seal
from run_benchmarks.session.learning import baseline_in_use, save_baseline
from run_benchmarks.session.leftovers import remove_collected
from run_benchmarks.session.log_lines import log_findings, log_standards
from run_benchmarks.session.preparation import PreparedRun, connected
from run_benchmarks.session.recorded import put, recorded_rounds, rounds_to_run
from run_benchmarks.session.run_record import RunRecorder, RunState
from run_benchmarks.session.schedule import RoundScheduler, TooFewHostsError
from run_benchmarks.state.context import patience
from run_benchmarks.state.exit_codes import EXIT_CHECK, EXIT_FAIL, EXIT_PASS
from run_benchmarks.state.interruption import Interruption
from run_benchmarks.state.journal import BaselineTarget, Journal, JournalError, RunEnded, RunStarted
from run_benchmarks.state.vouching import signed

PUSH_SECONDS = 120.0


class Session:
    """Runs a prepared plan to its end, or from the state of its journal; use once."""

    def __init__(
        self,
        prepared: PreparedRun,
        result_dir: Path,
        interruption: Interruption,
        command: list[str],
        learn: BaselineTarget | None = None,
    ) -> None:
        self._journal, self._learn = Journal(result_dir), learn
        self.not_saved = ""  # why the baseline of --save-baseline was not saved, or the seal not signed
        self._prepared, self._plan = prepared, prepared.plan
        self._result_dir, self._interruption = result_dir, interruption
        self._keeping = threading.Lock()
        self._state = RunState(
            started_ms=time.time_ns() // 1_000_000, rounds={case.name: [] for case in self._plan.cases}
        )
        self._recorder = RunRecorder(prepared, result_dir, interruption, command, self._state)

    def run(self) -> RunRecord:
        """Run everything; run.json is written after every round and at the end in any case, and returned."""
        self._journal.append(self._started(self._prepared.job))
        for name in (SEAL_FILE, SIGNATURE_FILE):  # of an earlier controller; this one writes its own
            (self._result_dir / name).unlink(missing_ok=True)
        write_text(self._result_dir / MANIFEST_FILE, self._prepared.code.manifest)
        self._record_settings()
        self._begin()
        with connected(self._prepared.settings.cluster, self._prepared.allocation) as hosts:
            try:
                self._check(hosts)
                self._run_cases(hosts)
            except InterruptedRunError as error:
                LOG.warning("%s", error)
            except CheckError as error:
                self._state.problem, self._state.exit_code = str(error), EXIT_CHECK
                LOG.error("%s", error)
            except ClusterDynoError as error:
                self._state.problem = (
                    self._interruption.time_limit_reason if self._interruption.time_is_up() else str(error)
                )
                LOG.error("%s", self._state.problem)
            finally:
                self._remove_collected(hosts)
        record = self._recorder.record()
        self._finish(record)
        self._close(record)
        return record

    def _close(self, record: RunRecord) -> None:
        if self._learn is not None:  # before the journal ends: a resume saves it if this controller is killed meanwhile
            self.not_saved = save_baseline(self._recorder, record, self._learn.file)
        self._journal.append(RunEnded(verdict=record.verdict, exit_code=self.exit_code(record)))
        seal = write_seal(self._result_dir, self._plan.run_id, self._plan.code_digest)
        LOG.info("Sealed: sha256 of %s is %s", SEAL_FILE, seal)
        self.not_saved = self.not_saved or sign_seal(self._result_dir, self._prepared.settings.test.SEAL_KEY)

    def note_submitted(self, job: JobRecord) -> None:
        """Note in the journal that a job which has no nodes yet will begin the run."""
        self._journal.append(self._started(job))

    def _started(self, job: JobRecord | None = None) -> RunStarted:
        settings = self._prepared.settings
        started = RunStarted(
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
            job=job,
            save_baseline=self._learn,
            baseline=baseline_in_use(settings.test),
        )
        return signed(started)

    def _record_settings(self) -> None:
        """Save each case's settings, without secrets; a resumed run keeps those of its first start."""
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
        self._state.started_ms = self._past.begun_ms
        self._state.jobs = [*self._past.jobs.values()]
        for case in self._plan.cases:
            self._state.rounds[case.name] = recorded_rounds(self._past, case, self._result_dir)
        if not self._past.open:
            self._limit_time()

    def _limit_time(self) -> None:
        limit = self._prepared.settings.test.RUN_TIME_LIMIT
        if limit is not None:
            self._interruption.limit_time(limit, time.time() - self._state.started_ms / 1000)

    def _check(self, hosts: Mapping[str, Host]) -> None:
        plan = self._plan
        LOG.info("======== Step 1: Check environment and configs. ========")
        LOG.info("Initialize logger with log path: %s......[SUCCESS]", self._result_dir)
        for warning in self._prepared.resolved.warnings:
            LOG.warning("%s", warning)
        LOG.debug("Check hosts: %s", ", ".join(plan.hosts))
        prepared = self._prepared
        vendor, runtime, waiting = prepared.resolved.vendor, prepared.runtime(), self._patience()
        self._state.reports = check_hosts(hosts, prepared.settings, plan, vendor, runtime, waiting)
        self._state.addresses = {name: host.address for name, host in hosts.items()}
        self._interruption.check()
        log_findings(self._state.reports)
        self._leave_out(
            {name: f"{name}: {report.reason}" for name, report in self._state.reports.items() if report.failed}
        )
        LOG.info("Check configs of all test cases: %s......[SUCCESS]", ", ".join(case.name for case in plan.cases))

    def _patience(self) -> Patience:
        return patience(self._prepared.settings.cluster.LINK_LIMIT, self._interruption)

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
        self._state.left_out = failed

    def _run_cases(self, hosts: Mapping[str, Host]) -> None:
        plan = self._plan
        LOG.info("======== Step 2: Prepare hosts and run test cases. ========")
        self._push_code(hosts)
        schedule = self._schedule(hosts)
        schedule.provide_images()
        self._state.images = schedule.images
        self._interruption.check()
        LOG.info("2.1 Prepare code and images......[SUCCESS]")
        self._limit_time()
        for taken in schedule.take_over():
            self._keep(taken)
        self._interruption.check()
        self._collect_owed(schedule)
        left = {case.name: case for case in plan.cases if self._rounds_left(schedule, case)}
        put_off: set[str] = set()
        while left:
            wave = schedule.waves(left)[0]
            cases = {name: left.pop(name) for name in wave}
            are_over = together(cases, partial(self._run_case, schedule, wave=wave))
            put_off.update(name for name, is_over in zip(cases, are_over, strict=True) if not is_over)
        for case in plan.cases:
            if case.name in put_off:
                self._run_case(schedule, case, schedule.waves({case.name})[0])
        self._collect_owed(schedule)

    def _rounds_left(self, schedule: RoundScheduler, case: CasePlan) -> list[RoundPlan]:
        retry_lost = self._prepared.settings.test.RETRY_LOST
        return rounds_to_run(schedule.past, case, self._state.rounds[case.name], retry_lost)

    def _run_case(self, schedule: RoundScheduler, case: CasePlan, wave: Wave) -> bool:
        """Run what is left of a case, on its hosts of a wave of several cases, on any otherwise.

        Returns:
            whether it is over; False: it has lost a host, and takes another once no case runs beside it.
        """
        beside = [name for name in wave if name != case.name]
        on = f" on {', '.join(wave[case.name])}, beside {', '.join(beside)}" if beside else ""
        LOG.info(
            "2.2 Testcase %s: %d round(s), %d x %d ranks%s", case.name, len(case.rounds), case.nnodes, case.nproc, on
        )
        rounds = self._state.rounds[case.name]
        for round_plan in self._rounds_left(schedule, case):
            try:
                for record in schedule.attempts(case, round_plan.index, wave):
                    self._keep(record)
            except TooFewHostsError as error:
                if beside:
                    LOG.warning("Testcase %s is put off until no case runs beside it: %s", case.name, error)
                    return False
                self._state.skipped[case.name] = str(error)
                LOG.error("Testcase %s is %s: %s", case.name, "over" if rounds else "skipped", error)
                break
            self._interruption.check()
        return True

    def _schedule(self, hosts: Mapping[str, Host]) -> RoundScheduler:
        return RoundScheduler(
            self._prepared,
            hosts,
            self._state,
            self._result_dir,
            self._interruption,
            journal=self._journal,
            past=self._past,
        )

    def _collect_owed(self, schedule: RoundScheduler) -> None:
        for record in schedule.collect_owed():
            self._keep(record)
        collect = own_command("collect", run_word(self._result_dir))
        for owed in schedule.past.owed.values():
            names, where = ", ".join(owed.hosts), f"round {owed.started.round} of {owed.started.case}"
            LOG.warning("%s: the files of %s are still to be collected: `%s`", names, where, collect)

    def _keep(self, record: RoundRecord) -> None:
        with self._keeping:
            put(self._state.rounds[record.case], record)
            write_record(self._result_dir / "run.json", self._recorder.record(is_final=False))

    def _push_code(self, hosts: Mapping[str, Host]) -> None:
        lacking = {
            name: host
            for name, host in hosts.items()
            if name not in self._state.left_out
            and (facts := self._state.reports[name].facts) is not None
            and facts.code != self._plan.code_digest
        }
        if lacking:
            LOG.debug("Push code %s to %s", self._plan.code_digest, ", ".join(lacking))
        listings = {
            name: facts.code_listing for name in lacking if (facts := self._state.reports[name].facts) is not None
        }
        self._state.code_differences = {
            name: differences(self._prepared.code, found) for name, found in listings.items() if found
        }
        for name, found in self._state.code_differences.items():
            LOG.warning("%s", in_words(name, found))
        seconds, cancel = self._interruption.seconds_left(PUSH_SECONDS), self._interruption.signalled
        code, path = self._prepared.code, self._plan.code_dir_host
        waiting = self._patience()

        def push(host: Host) -> None:
            across_outages(host, lambda: bring(host, code, path, deadline=seconds, cancel=cancel), waiting)

        brought = for_each(lacking, push)
        self._interruption.check()
        brought.raise_first()

    def _remove_collected(self, hosts: Mapping[str, Host]) -> None:
        """Remove from the hosts what is here; nothing while a round is open, whose ranks may still run."""
        resume, clean = (f"`{own_command(word, run_word(self._result_dir))}`" for word in ("resume", "clean"))
        try:
            unfinished = self._journal.read().open
        except JournalError as error:
            LOG.warning("Nothing is removed from the hosts: %s", error)
            return
        if unfinished:
            where = " and ".join(f"{each} is open" for each in unfinished.values())
            LOG.warning("Nothing is removed from the hosts: %s; %s goes on with it", where, resume)
            return
        touched = {
            name: host for name, host in hosts.items() if self._state.reports and self._state.reports[name].facts
        }
        remove_collected(touched, self._plan.log_root_host, self._result_dir, clean)

    def _finish(self, record: RunRecord) -> None:
        LOG.info("======== Step 3: Collect results. ========")
        for case in record.cases:
            log_standards(case)
        write_record(self._result_dir / "run.json", record)
        history = url_of(self._prepared.settings.test.HISTORY, self._result_dir.parent)
        write_report(self._result_dir, record, [r for rounds in self._state.rounds.values() for r in rounds], history)

    def exit_code(self, record: RunRecord) -> int:
        """The exit code of the command: the run's, or EXIT_FAIL if its baseline was not saved."""
        return record.exit_code or (EXIT_FAIL if self.not_saved else EXIT_PASS)
