"""Runs the cases of a run on hosts that it has: check, code and images, the rounds, and what is owed of earlier ones.

A run has one part, or one for each case where each has an allocation of its own.
"""

import threading
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from run_benchmarks.console.command_line import own_command, run_word
from run_benchmarks.console.console import LOG
from run_benchmarks.errors import CheckError, ConnectError, HostError, LinkLostError
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.fleet import by_host, for_each, together
from run_benchmarks.hosts.outages import Patience, across_outages
from run_benchmarks.inspection.check import check_hosts
from run_benchmarks.inspection.code_folder import bring, differences, in_words
from run_benchmarks.plan.plan import CasePlan, RoundPlan
from run_benchmarks.plan.side_by_side import Wave
from run_benchmarks.results.records import RoundRecord, write_record
from run_benchmarks.session.leftovers import remove_collected
from run_benchmarks.session.log_lines import log_findings
from run_benchmarks.session.preparation import PreparedRun, connected
from run_benchmarks.session.recorded import put, rounds_to_run
from run_benchmarks.session.run_record import RunRecorder, RunState
from run_benchmarks.session.schedule import RoundScheduler, TooFewHostsError
from run_benchmarks.state.interruption import Interruption, patience
from run_benchmarks.state.journal import Journal, JournalError, JournalState

PUSH_SECONDS = 120.0


class Part:
    """Runs the cases of `prepared` on its hosts, from the state of the run's journal; use once."""

    def __init__(
        self,
        prepared: PreparedRun,
        result_dir: Path,
        interruption: Interruption,
        journal: Journal,
        state: RunState,
        recorder: RunRecorder,
    ) -> None:
        self._prepared, self._plan, self._recorder = prepared, prepared.plan, recorder
        self._result_dir, self._interruption = result_dir, interruption
        self._journal, self._state = journal, state
        self._past: JournalState = journal.read()
        self._keeping = threading.Lock()

    def run(self) -> None:
        """Do the work, and remove from the hosts what is here.

        Raises:
            ClusterDynoError: it could not go on; CheckError: too few hosts passed the check.
            InterruptedRunError: it was ended.
        """
        with connected(self._prepared.settings.cluster, self._prepared.allocation) as hosts:
            try:
                self._work(hosts)
            finally:
                self._remove_collected(hosts)

    def _work(self, hosts: Mapping[str, Host]) -> None:
        self._check(hosts)
        self._run_cases(hosts)

    def _keep(self, record: RoundRecord) -> None:
        with self._keeping:
            put(self._state.rounds[record.case], record)
            write_record(self._result_dir / "run.json", self._recorder.record(is_final=False))

    def _check(self, hosts: Mapping[str, Host]) -> None:
        plan = self._plan
        LOG.info("======== Step 1: Check environment and configs. ========")
        LOG.info("Initialize logger with log path: %s......[SUCCESS]", self._result_dir)
        for warning in self._prepared.resolved.warnings:
            LOG.warning("%s", warning)
        LOG.debug("Check hosts: %s", ", ".join(plan.hosts))
        prepared = self._prepared
        vendor, runtime, waiting = prepared.resolved.vendor, prepared.runtime(), self._patience()
        reports = check_hosts(hosts, prepared.settings, plan, vendor, runtime, waiting)
        self._state.reports = {**self._state.reports, **reports}
        self._state.addresses |= {name: host.address for name, host in hosts.items()}
        self._interruption.check()
        log_findings(reports)
        for name in plan.hosts:  # an earlier part may have left it out
            self._state.left_out.pop(name, None)
        self._leave_out({name: f"{name}: {report.reason}" for name, report in reports.items() if report.failed})
        LOG.info("Check configs of all test cases: %s......[SUCCESS]", ", ".join(case.name for case in plan.cases))

    def _patience(self) -> Patience:
        return patience(self._prepared.settings.cluster.LINK_LIMIT, self._interruption)

    def _leave_out(self, failed: dict[str, str], deed: str = "failed the check") -> None:
        """Continue without the hosts that failed the check, or did what `deed` says, if at least MIN_HOSTS are left."""
        if not failed:
            LOG.info("Check hosts in the cluster......[SUCCESS]")
            return
        names, there = ", ".join(failed), len(self._plan.hosts)
        left = there - len(failed.keys() | self._state.left_out.keys() & {*self._plan.hosts})
        least = self._prepared.settings.cluster.MIN_HOSTS
        if least is None or left < min(least, there):
            LOG.error("Check hosts in the cluster......[FAILED] (%s)", names)
            why = "" if least is None else f"; {left} passed, MIN_HOSTS is {least}"
            raise CheckError(f"{len(failed)} of {there} hosts {deed}: {names}{why}")
        LOG.warning("Check hosts in the cluster......[SUCCESS] on %d of %d", left, there)
        LOG.warning("Left out, since MIN_HOSTS is %d: %s", least, names)
        self._state.left_out |= failed

    def _leave_out_of(self, deed: str, error: HostError) -> None:
        """Continue without the hosts to which something could not be brought, or from which, if MIN_HOSTS allows it."""
        self._interruption.check()
        is_lost = isinstance(error, LinkLostError | ConnectError)
        failed = by_host(error.beside or [error] * is_lost)
        if not failed or self._prepared.settings.cluster.MIN_HOSTS is None:
            raise error
        for reason in failed.values():
            LOG.error("%s", reason)
        self._leave_out(failed, deed)

    def _run_cases(self, hosts: Mapping[str, Host]) -> None:
        plan = self._plan
        LOG.info("======== Step 2: Prepare hosts and run test cases. ========")
        self._push_code(hosts)
        schedule = self._with_images(hosts)
        self._state.images = {**self._state.images, **schedule.images}
        self._interruption.check()
        LOG.info("2.1 Prepare code and images......[SUCCESS]")
        limit_time(self._prepared, self._state, self._interruption)
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

    def _with_images(self, hosts: Mapping[str, Host]) -> RoundScheduler:
        """A scheduler whose hosts have their images."""
        while True:
            schedule = self._schedule(hosts)
            try:
                schedule.provide_images()
            except HostError as error:
                self._leave_out_of("did not get an image", error)
            else:
                return schedule

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
        changed = {name: differences(self._prepared.code, found) for name, found in listings.items() if found}
        for name, found in changed.items():
            LOG.warning("%s", in_words(name, found))
        self._state.code_differences |= changed
        seconds, cancel = self._interruption.seconds_left(PUSH_SECONDS), self._interruption.signalled
        code, path = self._prepared.code, self._plan.code_dir_host
        waiting = self._patience()

        def push(host: Host) -> None:
            across_outages(host, lambda: bring(host, code, path, deadline=seconds, cancel=cancel), waiting)

        brought = for_each(lacking, push)
        try:
            brought.raise_first()
        except HostError as error:
            self._leave_out_of("did not get the code", error)
        self._interruption.check()

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
        reports = self._state.reports
        touched = {name: host for name, host in hosts.items() if name in reports and reports[name].facts}
        remove_collected(touched, self._plan.log_root_host, self._result_dir, clean)


def limit_time(prepared: PreparedRun, state: RunState, interruption: Interruption) -> None:
    """Bound the run by its RUN_TIME_LIMIT, if it has one; waiting for nodes between its cases does not count."""
    limit = prepared.settings.test.RUN_TIME_LIMIT
    if limit is not None:
        queued = sum(job.queue_seconds or 0.0 for job in state.jobs if job.case)
        interruption.limit_time(limit, time.time() - state.started_ms / 1000 - queued)
