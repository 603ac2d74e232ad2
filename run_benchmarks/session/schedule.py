"""Decides the hosts of each round, how often it is tried, and what an earlier controller has already completed."""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from container.engine_images import ImageIdentity
from run_benchmarks.console.console import LOG
from run_benchmarks.errors import ClusterDynoError
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.fleet import for_each
from run_benchmarks.hosts.incoming.limits import CollectLimits
from run_benchmarks.inspection.findings import HostReport
from run_benchmarks.plan.plan import CasePlan, Plan, round_folder
from run_benchmarks.results.records import RoundRecord, Verdict
from run_benchmarks.rounds.round import RoundRunner
from run_benchmarks.rounds.watch import STOP_GRACE_SECONDS
from run_benchmarks.runtimes.base import RunningTask
from run_benchmarks.session.images import provide_images
from run_benchmarks.session.preparation import PreparedRun
from run_benchmarks.session.retries import failures_that_count, may_retry
from run_benchmarks.state.context import RunContext, answers
from run_benchmarks.state.interruption import Interruption
from run_benchmarks.state.journal import Journal, JournalState, RoundEnded


class TooFewHostsError(ClusterDynoError):
    """Fewer hosts are left than a case needs; the message says which were lost and why."""


class RoundScheduler:
    """Runs the rounds of a run one by one. `past` is the content of the run's journal when this controller started.

    `left_out` has the hosts that failed the check, and why: no round runs there.
    """

    def __init__(
        self,
        prepared: PreparedRun,
        hosts: Mapping[str, Host],
        reports: Mapping[str, HostReport],
        result_dir: Path,
        interruption: Interruption,
        *,
        journal: Journal,
        past: JournalState,
        left_out: Mapping[str, str] | None = None,
    ) -> None:
        self._prepared, self._hosts, self._reports = prepared, hosts, reports
        self._result_dir, self._interruption, self._journal = result_dir, interruption, journal
        self._past, self._left_out = past, dict(left_out or {})
        self._lost: dict[str, str] = {}
        self._left: dict[str, list[RunningTask]] = {}
        self.images: dict[str, ImageIdentity] = {}  # by tag
        self._plan = prepared.plan if not self._left_out else prepared.plan_for(self._usable(self._left_out))
        self._runtime = prepared.runtime()

    def provide_images(self) -> None:
        """Bring the images to the hosts of the present plan.

        Raises:
            TaskError: an image cannot be provided.
            InterruptedRunError: a signal arrived.
        """
        runtime, resolved, settled = self._runtime, self._prepared.resolved, dict(self.images)
        found = provide_images(runtime, self._plan, resolved, self._hosts, self._reports, self._interruption, settled)
        self.images.update(found | settled)

    def attempts(self, case: CasePlan, index: int) -> Iterator[RoundRecord]:
        """The attempts at the round as they end; the last one counts.

        First an attempt that a killed controller left running, else a new one; then the case's retries, except those
        that an earlier controller has already made.

        Raises:
            TooFewHostsError: too few hosts are left for the case.
            InterruptedRunError, RunTimeLimitError: before an attempt.
        """
        attempt = self._past.attempts.get((case.name, index), 0)
        record = self._take_over(case, index)
        if record is not None:
            yield record
        while (
            record is None
            or record.verdict is Verdict.ABORTED
            or (
                may_retry(record.verdict, self._failures(case, index), case.retries)
                and not self._interruption.time_is_up()
            )
        ):
            self._interruption.check()
            attempt += 1
            record = self._attempt(case, index, attempt)
            yield record

    def _failures(self, case: CasePlan, index: int) -> int:
        retry_lost = self._prepared.settings.test.RETRY_LOST
        return failures_that_count(self._past, case.name, index, retry_lost)

    def _take_over(self, case: CasePlan, index: int) -> RoundRecord | None:
        """Finish a round that a killed controller left running, ABORTED if its tasks are gone; None without such a
        round.
        """
        started = self._past.open
        if started is None or (started.case, started.round) != (case.name, index):
            return None
        collecting = self._past.collecting
        self._past.open = self._past.collecting = None
        plan = self._prepared.plan_for(tuple(started.hosts))
        LOG.info("-== Testcase %s Round %d is taken over (attempt %d) ==-", case.name, index, started.attempt)
        round_ = self._round(plan, case.name, index, started.attempt)
        if collecting is not None:
            LOG.info("Its workloads had ended: what they left is collected")
        record = round_.resume(started, collecting)
        self._note(round_, record)
        return record

    def _attempt(self, case: CasePlan, index: int, attempt: int) -> RoundRecord:
        self._place(case)
        name = case.name
        again = f" (attempt {attempt})" if attempt > 1 else ""
        LOG.info("-== Testcase %s Round %d starts%s ==-", name, index, again)
        round_ = self._round(self._plan, name, index, attempt)
        record = round_.run()
        self._note(round_, record)
        return record

    def _round(self, plan: Plan, name: str, index: int, attempt: int) -> RoundRunner:
        test = self._prepared.settings.test
        context = RunContext(
            plan=plan,
            code=self._prepared.code,
            hosts=self._hosts,
            reports=self._reports,
            runtime=self._runtime,
            result_dir=self._result_dir,
            interruption=self._interruption,
            link_limit=self._prepared.settings.cluster.LINK_LIMIT,
            collect_limits=CollectLimits(max_bytes=test.MAX_COLLECT_BYTES, max_files=test.MAX_COLLECT_FILES),
        )
        case = next(case for case in plan.cases if case.name == name)
        return RoundRunner(context, case, self._prepared.attempt(plan, name, index, attempt), note=self._journal.append)

    def _note(self, round_: RoundRunner, record: RoundRecord) -> None:
        self._journal.append(
            RoundEnded(
                case=record.case,
                round=record.round,
                attempt=record.attempt,
                verdict=record.verdict,
                reason=record.reason,
                lost=record.is_lost,
            )
        )
        counter = self._past.losses if record.is_lost else self._past.failures
        counter[record.case, record.round] += record.verdict.is_failure
        self._lost |= round_.lost_hosts()
        for host, tasks in round_.left.items():
            self._left.setdefault(host, []).extend(tasks)
        log_round(record)

    def _place(self, case: CasePlan) -> None:
        """Plan for the remaining hosts: lost ones are asked once more, and tasks that still run there are ended first.

        `case` is the case of the whole run, with all hosts that it may run on.

        Raises:
            TooFewHostsError: too few are left for it.
        """
        self._end_left()
        asked = for_each({name: self._hosts[name] for name in self._lost.keys() - self._left.keys()}, answers)
        for name in [name for name, answered in asked.succeeded.items() if answered]:
            LOG.info("%s answers again", name)
            del self._lost[name]
        barred = {
            name: report.barred[case.name] for name, report in self._reports.items() if case.name in report.barred
        }
        unusable = {**barred, **self._left_out, **self._lost}
        left = self._usable(unusable)
        there = [name for name in case.allowed_hosts if name in left]
        if len(there) < case.nnodes:
            lost = "; ".join(trouble for name, trouble in unusable.items() if name in case.allowed_hosts)
            raise TooFewHostsError(
                f"it needs {case.nnodes} hosts and {len(there)} of its {len(case.allowed_hosts)} are left: {lost}"
            )
        if left != self._plan.hosts:
            LOG.warning("The hosts for the next round: %s", ", ".join(left))
            self._plan = self._prepared.plan_for(left)
            self.provide_images()

    def _usable(self, unusable: Container[str]) -> tuple[str, ...]:
        return tuple(name for name in self._prepared.plan.hosts if name not in unusable)

    def _end_left(self) -> None:
        """End tasks that earlier rounds could not end, if their host answers: they would disturb the next
        measurement.
        """

        def end(name: str) -> bool:
            if not answers(self._hosts[name]):
                return False
            for task in self._left[name]:
                task.finish(STOP_GRACE_SECONDS)
            return True

        ended = for_each({name: name for name in self._left}, end)
        for name, error in ended.failed.items():
            LOG.warning("%s: what runs there of an earlier round could not be ended: %s", name, error)
        for name in [name for name, answered in ended.succeeded.items() if answered]:
            LOG.info("%s: what was left there of an earlier round is removed", name)
            del self._left[name]


def recorded_rounds(past: JournalState, case: CasePlan, result_dir: Path) -> list[RoundRecord]:
    """The records of the case's rounds that an earlier controller completed, up to the first without one."""
    records: list[RoundRecord] = []
    for plan in case.rounds:
        record = _recorded_round(past, case, plan.index, result_dir)
        if record is None:
            break
        LOG.info("-== Testcase %s Round %d: %s, as recorded ==-", case.name, plan.index, record.verdict)
        records.append(record)
    return records


def recorded_attempts(result_dir: Path) -> Iterator[RoundRecord]:
    """The records of every attempt at every round of a run, including earlier controllers'; unreadable ones are
    skipped.
    """
    for path in sorted(result_dir.glob("*/round*/round.json")):
        with contextlib.suppress(OSError, ValidationError):
            yield RoundRecord.model_validate_json(path.read_bytes())


def settled(past: JournalState, case: CasePlan, records: Sequence[RoundRecord], retry_lost: int = 0) -> int:
    """Number of recorded rounds that are not run again: those before one that failed with retries of the case left."""
    for number, record in enumerate(records):
        if may_retry(record.verdict, failures_that_count(past, case.name, record.round, retry_lost), case.retries):
            return number
    return len(records)


def _recorded_round(past: JournalState, case: CasePlan, index: int, result_dir: Path) -> RoundRecord | None:
    """The record of a round that an earlier controller completed; None without a valid one."""
    ended = past.ended.get((case.name, index))
    if ended is None or ended.verdict is Verdict.ABORTED:
        return None
    path = result_dir / case.folder / round_folder(index, ended.attempt) / "round.json"
    try:
        return RoundRecord.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        LOG.warning("%s cannot be read (%s): the round is run again", path, error)
        return None


def log_round(record: RoundRecord) -> None:
    """Log how a round ended, with the end of the log that shows why."""
    for warning in record.warnings:
        LOG.warning("%s", warning)
    if record.verdict.is_measured:
        again = f" in attempt {record.attempt}" if record.attempt > 1 else ""
        also = again + record.verdict_text.removeprefix(record.verdict)
        mark = "SUCCESS" if record.verdict is Verdict.PASS else "DEGRADED"
        LOG.info("-== Testcase %s Round %d finished%s ==-......[%s]", record.case, record.round, also, mark)
        for finding in record.findings:
            LOG.warning("Finding (%s, %s): %s", finding.severity, finding.kind, finding.words)
        for remark in record.remarks:
            LOG.warning("%s", remark)
        return
    LOG.error(
        "-== Testcase %s Round %d: %s: %s ==-......[FAILED]", record.case, record.round, record.verdict, record.reason
    )
    if record.partial is not None:
        LOG.warning("Partial result: %s were measured, and are in its round.json", record.partial)
    if record.first_failure is not None and record.first_failure.log_tail:
        LOG.error("end of the log:\n%s", record.first_failure.log_tail)
