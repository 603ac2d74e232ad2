"""Collects what is owed of a run, and judges its rounds again; starts nothing on a host."""

from collections.abc import Container, Mapping

from pydantic import ValidationError

from run_benchmarks.console.command_line import own_command, run_word
from run_benchmarks.console.console import LOG
from run_benchmarks.hosts.base import Host
from run_benchmarks.inspection.check import check_hosts
from run_benchmarks.inspection.findings import HostReport
from run_benchmarks.results.records import JobRecord, RoundRecord, RunRecord, Verdict, load_record
from run_benchmarks.results.seal import SEAL_FILE, unseal
from run_benchmarks.session.part import Part
from run_benchmarks.session.recorded import put
from run_benchmarks.session.session import Session
from run_benchmarks.state.journal import JournalState

OF_THE_RUN = ("command", "versions", "hosts", "left_out", "images", "git_revision", "git_changes")
INTERRUPTED = "interrupted by a signal"


def is_owing(past: JournalState) -> bool:
    """Whether there may be files of the run on its hosts that are not on the head node."""
    return bool(past.open or past.owed)


class _Collecting(Part):
    """Collects from the hosts that answer what is owed of the cases of `prepared`."""

    def _work(self, hosts: Mapping[str, Host]) -> None:
        prepared, past = self._prepared, self._past
        names = {host for owed in past.owed.values() for host in owed.hosts}
        names |= {host for each in past.open.values() for host in each.started.hosts}
        there = {name: host for name, host in hosts.items() if name in names}
        vendor, runtime, waiting = prepared.resolved.vendor, prepared.runtime(), self._patience()
        found = check_hosts(there, prepared.settings, self._plan, vendor, runtime, waiting)
        self._state.reports = {name: found.get(name) or HostReport(host=name) for name in hosts}
        self._interruption.check()
        schedule = self._schedule(hosts)
        if why := schedule.still_runs():
            resume = own_command("resume", run_word(self._result_dir))
            LOG.warning("A round is open: %s; `%s` goes on with it", why, resume)
        else:
            self._interruption.check()
            for record in schedule.take_over():
                self._keep(record)
        self._collect_owed(schedule)

    def _keep(self, record: RoundRecord) -> None:
        put(self._state.rounds[record.case], record)


class Collection(Session):
    """Collects what is owed of a run whose controller has ended; use once."""

    part_kind = _Collecting
    is_measuring = False

    def run(self) -> RunRecord:
        """Collect from the hosts that answer; run.json and the report are of the new records then, if there are any.

        Whatever changes a sealed folder removes its seal before.
        """
        self._begin()
        of_rounds = {record.reason for rounds in self._state.rounds.values() for record in rounds}
        if self._prepared.has_jobs_of_cases:
            self._run_by_case()
        else:
            self._problem_of(self._prepared, self._interruption)
        try:
            before = load_record(self._result_dir / "run.json", RunRecord)
        except (OSError, ValidationError) as error:
            LOG.warning("run.json cannot be read and is made anew: %s", error)
            record = self._recorder.record()
        else:
            if (self._result_dir / SEAL_FILE).exists():
                return before
            if self._past.run_ended is not None:  # what was written before tells of no interruption
                self._recall(before, of_rounds)
            record = self._recorder.record()
            record = record.model_copy(update={name: getattr(before, name) for name in OF_THE_RUN})
        unseal(self._result_dir)
        self._finish(record)
        if self._past.run_ended is not None:
            self._close(record)
        return record

    def note_job(self, job: JobRecord) -> None:
        """Note in the journal, which the seal covers, that the run has a job."""
        unseal(self._result_dir)
        super().note_job(job)

    def _recall(self, before: RunRecord, of_rounds: Container[str]) -> None:
        """Let rounds that never ran be as the run left them: why they did not, and whether it was interrupted.

        A reason that is one `of_rounds` hid that of the interruption.
        """
        lacking = {case.name for case in self._plan.cases if len(self._state.rounds[case.name]) < len(case.rounds)}
        for case in (each for each in before.cases if each.name in lacking):
            if case.verdict in (Verdict.ABORTED, Verdict.SKIPPED):
                self._state.skipped[case.name] = INTERRUPTED if case.reason in of_rounds else case.reason
            if case.verdict is Verdict.ABORTED:
                self._of_the_run.end(self._state.skipped[case.name])

    def _cases_left(self) -> list[str]:
        owing = {owed.started.case for owed in self._past.owed.values()} | self._past.open.keys()
        return [case.name for case in self._plan.cases if case.name in owing]
