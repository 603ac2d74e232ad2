"""Decides the hosts of each round, how often it is tried, and what an earlier controller has already completed."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from functools import partial
from pathlib import Path

from container.engine_images import ImageIdentity
from run_benchmarks.console.console import LOG
from run_benchmarks.errors import ClusterDynoError
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.fleet import for_each
from run_benchmarks.hosts.incoming.limits import CollectLimits
from run_benchmarks.hosts.outages import across_outages
from run_benchmarks.plan.plan import CasePlan, Plan, RoundPlan
from run_benchmarks.results.records import RoundRecord, Verdict
from run_benchmarks.rounds.owed_round import OwedRound
from run_benchmarks.rounds.round import RoundRunner
from run_benchmarks.rounds.watch import STOP_GRACE_SECONDS
from run_benchmarks.runtimes.base import RunningTask
from run_benchmarks.session.images import provide_images
from run_benchmarks.session.log_lines import log_round
from run_benchmarks.session.preparation import PreparedRun
from run_benchmarks.session.retries import failures_that_count, may_retry
from run_benchmarks.session.run_record import RunState
from run_benchmarks.state.context import RunContext, answers, patience
from run_benchmarks.state.interruption import Interruption
from run_benchmarks.state.journal import Journal, JournalState, RoundEnded


class TooFewHostsError(ClusterDynoError):
    """Fewer hosts are left than a case needs; the message says which were lost and why."""


class RoundScheduler:
    """Runs the rounds of a run one by one. `past` is what an earlier controller left, by the run's journal.

    `state` has the reports of the hosts, and those that failed the check, and why: no round runs there.
    """

    def __init__(
        self,
        prepared: PreparedRun,
        hosts: Mapping[str, Host],
        state: RunState,
        result_dir: Path,
        interruption: Interruption,
        *,
        journal: Journal,
        past: JournalState,
    ) -> None:
        self._prepared, self._hosts, self._reports = prepared, hosts, state.reports
        self._result_dir, self._interruption, self._journal = result_dir, interruption, journal
        self.past, self._left_out = past, dict(state.left_out)
        self._lost: dict[str, str] = {}
        self._left: dict[str, list[RunningTask]] = {}
        self._unswept = set(prepared.plan.hosts) if past.attempts else set[str]()
        self.images: dict[str, ImageIdentity] = {}  # by tag
        self._plan = prepared.plan if not self._left_out else prepared.plan_for(self._usable(self._left_out))
        self._runtime = prepared.runtime()
        self._patience = patience(prepared.settings.cluster.LINK_LIMIT, interruption)

    def provide_images(self) -> None:
        """Bring the images to the hosts of the present plan.

        Raises:
            HostError: an image cannot be provided.
            InterruptedRunError: a signal arrived.
        """
        runtime, resolved, settled = self._runtime, self._prepared.resolved, dict(self.images)
        found = provide_images(runtime, self._plan, resolved, self._hosts, self._reports, self._patience, settled)
        self.images.update(found | settled)

    def attempts(self, case: CasePlan, index: int) -> Iterator[RoundRecord]:
        """The attempts at the round as they end; the last one counts.

        First a new one, then the case's retries, except those that an earlier controller has already made.

        Raises:
            TooFewHostsError: too few hosts are left for the case.
            InterruptedRunError, RunTimeLimitError: before an attempt.
        """
        key, retry_lost = (case.name, index), self._prepared.settings.test.RETRY_LOST
        attempt = self.past.attempts.get(key, 0)
        failures, losses = self.past.failures[key], self.past.losses[key]
        record: RoundRecord | None = None
        while (
            record is None
            or record.verdict is Verdict.ABORTED
            or (
                may_retry(record.verdict, failures_that_count(failures, losses, retry_lost), case.retries)
                and not self._interruption.time_is_up()
            )
        ):
            self._interruption.check()
            attempt += 1
            record = self._attempt(case, index, attempt)
            failures += record.verdict.is_failure and not record.is_lost
            losses += record.verdict.is_failure and record.is_lost
            yield record

    def take_over(self) -> RoundRecord | None:
        """Finish the round that an earlier controller left open, before any other: its ranks may still run.

        It is ABORTED if its tasks are gone; None without such a round.
        """
        started, collecting = self.past.open, self.past.collecting
        if started is None:
            return None
        plan = self._prepared.plan_for(tuple(started.hosts))
        name, index, attempt = started.case, started.round, started.attempt
        LOG.info("-== Testcase %s Round %d is taken over (attempt %d) ==-", name, index, attempt)
        round_ = RoundRunner(*self._parts(plan, name, index, attempt), note=self._journal.append)
        if collecting is not None:
            LOG.info("Its workloads had ended: what they left is collected")
        record = round_.resume(started, collecting)
        self._note(round_, record)
        self.past = self._journal.read()
        return record

    def still_runs(self) -> str:
        """Why the open round cannot be collected yet; "" if it can be, or if there is none."""
        started, collecting = self.past.open, self.past.collecting
        if started is None or collecting is not None:
            return ""
        plan = self._prepared.plan_for(tuple(started.hosts))
        parts = self._parts(plan, started.case, started.round, started.attempt)
        return OwedRound(*parts, note=self._journal.append).still_runs()

    def collect_owed(self) -> Iterator[RoundRecord]:
        """Collect what earlier collections could not, from the hosts that answer; the attempts' new records."""
        self.past = self._journal.read()
        owing = {host for owed in self.past.owed.values() for host in owed.hosts}
        asked = for_each({host: self._hosts[host] for host in sorted(owing)}, answers).succeeded
        there = [host for host, answered in asked.items() if answered]
        for owed in list(self.past.owed.values()):
            name, index, attempt = owed.started.case, owed.started.round, owed.started.attempt
            plan = self._prepared.plan_for(tuple(owed.started.hosts))
            round_ = OwedRound(*self._parts(plan, name, index, attempt), note=self._journal.append)
            record = round_.collect_owed(owed, there)
            if record is not None:
                LOG.info("-== Testcase %s Round %d was collected again (attempt %d) ==-", name, index, attempt)
                self._note(round_, record)
                yield record
        self.past = self._journal.read()

    def _attempt(self, case: CasePlan, index: int, attempt: int) -> RoundRecord:
        self._place(case)
        name = case.name
        again = f" (attempt {attempt})" if attempt > 1 else ""
        LOG.info("-== Testcase %s Round %d starts%s ==-", name, index, again)
        round_ = RoundRunner(*self._parts(self._plan, name, index, attempt), note=self._journal.append)
        record = round_.run()
        self._note(round_, record)
        return record

    def _parts(self, plan: Plan, name: str, index: int, attempt: int) -> tuple[RunContext, CasePlan, RoundPlan]:
        """What a runner of this attempt is made of."""
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
        return context, case, self._prepared.attempt(plan, name, index, attempt)

    def _note(self, round_: RoundRunner, record: RoundRecord) -> None:
        self._journal.append(
            RoundEnded(
                case=record.case,
                round=record.round,
                attempt=record.attempt,
                verdict=record.verdict,
                reason=record.reason,
                owed=list(round_.owed),
                lost=record.is_lost,
            )
        )
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
        self._end_earlier()
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

    def _end_earlier(self) -> None:
        """End what still runs of this run where an earlier controller had tasks, before the first round there.

        A host that was out of reach when its round was given up may still run it.
        """
        there = {name: self._hosts[name] for name in self._unswept - self._left_out.keys() - self._lost.keys()}

        def end(host: Host) -> list[str]:
            return across_outages(host, lambda: self._runtime.clean(host, self._prepared.plan), self._patience)

        ended = for_each(there, end, reads_hosts=True)
        self._unswept -= ended.succeeded.keys()
        for name, tasks in ended.succeeded.items():
            if tasks:
                LOG.warning("%s: ended what was left there of an earlier round: %s", name, ", ".join(tasks))
        self._lost |= {name: str(error) for name, error in ended.failed.items()}

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
                across_outages(self._hosts[name], partial(task.finish, STOP_GRACE_SECONDS), self._patience)
            return True

        ended = for_each({name: name for name in self._left}, end)
        for name, error in ended.failed.items():
            LOG.warning("%s: what runs there of an earlier round could not be ended: %s", name, error)
        for name in [name for name, answered in ended.succeeded.items() if answered]:
            LOG.info("%s: what was left there of an earlier round is removed", name)
            del self._left[name]
