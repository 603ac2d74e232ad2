"""Decides the hosts of each round, how often it is tried, and what an earlier controller has already completed."""

import threading
from collections.abc import Collection, Container, Iterator, Mapping
from functools import partial
from pathlib import Path

from container.image import ImageIdentity
from run_benchmarks.console.console import LOG
from run_benchmarks.errors import ClusterDynoError, HostError
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.fleet import by_host, for_each, together
from run_benchmarks.hosts.incoming.limits import CollectLimits
from run_benchmarks.hosts.outages import across_outages
from run_benchmarks.plan.plan import CasePlan, Plan, RoundPlan
from run_benchmarks.plan.side_by_side import Wave
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
from run_benchmarks.state.context import RunContext, answers
from run_benchmarks.state.interruption import Interruption, patience
from run_benchmarks.state.journal import Journal, JournalState, OpenRound, RoundEnded, RoundStarted


class TooFewHostsError(ClusterDynoError):
    """Fewer hosts are left than a case needs; the message says which were lost and why."""


class RoundScheduler:
    """Runs the rounds of a run. Cases that run side by side call it from threads of their own, each for its own hosts.

    `past` is what was done so far, by the run's journal: what an earlier controller left, or earlier waves.

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
        self._prepared, self._hosts, self._reports, self._state = prepared, hosts, state.reports, state
        self._result_dir, self._interruption, self._journal = result_dir, interruption, journal
        self.past = past
        self._lost: dict[str, str] = {}
        self._left: dict[str, list[RunningTask]] = {}
        self._unswept = set(prepared.plan.hosts) if past.attempts else set[str]()
        self.images: dict[str, ImageIdentity] = {}  # by tag
        self._planning = threading.Lock()
        self._plan = prepared.plan if not state.left_out else prepared.plan_for(self._usable(state.left_out))
        self._plans = {self._plan.hosts: self._plan}
        self._runtime = prepared.runtime()
        self._patience = patience(prepared.settings.cluster.LINK_LIMIT, interruption)

    def provide_images(self) -> None:
        """Bring the images to the hosts of the first plan.

        Raises:
            HostError: an image cannot be provided.
            InterruptedRunError: a signal arrived.
        """
        self._provide(self._plan)

    def _provide(self, plan: Plan) -> None:
        runtime, resolved, settled = self._runtime, self._prepared.resolved, dict(self.images)
        found = provide_images(runtime, plan, resolved, self._hosts, self._reports, self._patience, settled)
        self.images.update(found | settled)

    def waves(self, cases: Container[str]) -> list[Wave]:
        """These cases in the waves in which they run on the hosts that are usable now."""
        self.past = self._journal.read()
        if self._prepared.settings.test.MAX_PARALLEL_CASES > 1:  # a case alone asks its hosts itself
            self._regain(self._prepared.plan.hosts)
        usable = {case.name: self._usable(self._unusable(case)) for case in self._prepared.plan.cases}
        return self._prepared.waves(cases, usable)

    def attempts(self, case: CasePlan, index: int, wave: Wave | None = None) -> Iterator[RoundRecord]:
        """The attempts at the round as they end; the last one counts.

        First a new one, then the case's retries, except those that an earlier controller has already made.

        Args:
            wave: in which it runs; beside other cases it has its hosts there alone, otherwise all that are left.

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
            record = self._attempt(case, index, attempt, wave or {})
            failures += record.verdict.is_failure and not record.is_lost
            losses += record.verdict.is_failure and record.is_lost
            yield record

    def take_over(self) -> list[RoundRecord]:
        """Finish the rounds that an earlier controller left open, before any other: their ranks may still run.

        A round whose tasks are gone is ABORTED.

        Raises:
            ClusterDynoError: one could not be finished.
        """
        records = together(self._of_this(self.past.open), self._take_over)
        self.past = self._journal.read()
        return records

    def _take_over(self, opened: OpenRound) -> RoundRecord:
        started = opened.started
        name, index, attempt = started.case, started.round, started.attempt
        LOG.info("-== Testcase %s Round %d is taken over (attempt %d) ==-", name, index, attempt)
        if opened.collecting is not None:
            LOG.info("%s round %d: its workloads had ended: what they left is collected", name, index)
        others = tuple(other for other in self.past.open if other != name)
        round_ = RoundRunner(*self._parts_of(started, others), note=self._journal.append)
        record = round_.resume(started, opened.collecting)
        self._note(round_, record)
        return record

    def still_runs(self) -> str:
        """Why an open round cannot be collected yet; "" if all can be, or if there is none."""
        opened = [each.started for each in self._of_this(self.past.open).values() if each.collecting is None]
        found = (OwedRound(*self._parts_of(each), note=self._journal.append).still_runs() for each in opened)
        return "; ".join(filter(None, found))

    def _of_this(self, opened: Mapping[str, OpenRound]) -> dict[str, OpenRound]:
        """Those of the cases that run here: others have hosts of their own."""
        names = {case.name for case in self._prepared.plan.cases}
        return {name: each for name, each in opened.items() if name in names}

    def _parts_of(self, started: RoundStarted, beside: tuple[str, ...] = ()) -> tuple[RunContext, CasePlan, RoundPlan]:
        plan = self._prepared.plan_for(tuple(started.hosts))
        return self._parts(plan, started.case, started.round, started.attempt, beside)

    def collect_owed(self) -> Iterator[RoundRecord]:
        """Collect what earlier collections could not, from the hosts that answer; the attempts' new records.

        Raises:
            InterruptedRunError: before an attempt.
        """
        self.past = self._journal.read()
        names = {case.name for case in self._prepared.plan.cases}
        owing = {host for owed in self.past.owed.values() if owed.started.case in names for host in owed.hosts}
        asked = for_each({host: self._hosts[host] for host in sorted(owing)}, answers).succeeded
        there = [host for host, answered in asked.items() if answered]
        for owed in [each for each in self.past.owed.values() if each.started.case in names]:
            if self._interruption.is_set():
                self._interruption.check()
            round_ = OwedRound(*self._parts_of(owed.started), note=self._journal.append)
            record = round_.collect_owed(owed, there)
            if record is not None:
                which = record.case, record.round, record.attempt
                LOG.info("-== Testcase %s Round %d was collected again (attempt %d) ==-", *which)
                self._note(round_, record)
                yield record
        self.past = self._journal.read()

    def _attempt(self, case: CasePlan, index: int, attempt: int, wave: Wave) -> RoundRecord:
        name = case.name
        beside = tuple(other for other in wave if other != name)
        plan = self._place(case, wave[name] if beside else None)
        again = f" (attempt {attempt})" if attempt > 1 else ""
        LOG.info("-== Testcase %s Round %d starts%s ==-", name, index, again)
        round_ = RoundRunner(*self._parts(plan, name, index, attempt, beside), note=self._journal.append)
        record = round_.run()
        self._note(round_, record)
        return record

    def _parts(
        self, plan: Plan, name: str, index: int, attempt: int, beside: tuple[str, ...] = ()
    ) -> tuple[RunContext, CasePlan, RoundPlan]:
        """The parts of a runner of this attempt."""
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
            collect_limits=CollectLimits(
                max_bytes=test.MAX_COLLECT_BYTES,
                max_files=test.MAX_COLLECT_FILES,
                is_urgent=lambda: self._interruption.is_set() or self._interruption.time_is_up(),
            ),
            beside=beside,
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

    def _place(self, case: CasePlan, hosts: tuple[str, ...] | None = None) -> Plan:
        """The plan of the next attempt, on `hosts` alone or on all that are left.

        `case` is the case of the whole run, with all hosts that it may run on.
        """
        self._regain(self._prepared.plan.hosts if hosts is None else hosts)
        unusable = self._unusable(case)
        left = self._usable(unusable) if hosts is None else tuple(name for name in hosts if name not in unusable)
        there = [name for name in case.allowed_hosts if name in left]
        if len(there) < case.nnodes:
            lost = "; ".join(trouble for name, trouble in unusable.items() if name in case.allowed_hosts)
            raise TooFewHostsError(
                f"it needs {case.nnodes} hosts and {len(there)} of its {len(case.allowed_hosts)} are left: {lost}"
            )
        try:
            plan = self._planned(left)
        except HostError as error:
            self._interruption.check()
            if not (failed := by_host(error.beside)):
                raise
            LOG.warning("Without an image, and left out: %s", "; ".join(failed.values()))
            with self._planning:
                self._state.left_out = {**self._state.left_out, **failed}
            return self._place(case, hosts)
        if hosts is None and left != self._plan.hosts:
            LOG.warning("The hosts for the next round: %s", ", ".join(left))
            self._plan = plan
        return plan

    def _planned(self, hosts: tuple[str, ...]) -> Plan:
        """The plan of the run on these hosts, which have its images then."""
        with self._planning:
            if hosts not in self._plans:
                plan = self._prepared.plan_for(hosts)
                self._provide(plan)
                self._plans[hosts] = plan
            return self._plans[hosts]

    def _unusable(self, case: CasePlan) -> dict[str, str]:
        """Hosts on which the case cannot run now, and why."""
        barred = {
            name: report.barred[case.name] for name, report in self._reports.items() if case.name in report.barred
        }
        return {**barred, **self._state.left_out, **self._lost}

    def _regain(self, names: Collection[str]) -> None:
        """Ask those of these hosts once more that are lost, and end what still runs on any of them."""
        self._end_left(names)
        lost = {name: self._hosts[name] for name in names if name in self._lost and name not in self._left}
        for name, answered in for_each(lost, answers).succeeded.items():
            if answered:
                LOG.info("%s answers again", name)
                del self._lost[name]
        self._end_earlier(names)

    def _end_earlier(self, names: Collection[str]) -> None:
        """End what still runs of this run where an earlier controller had tasks, before the first round there.

        A host that was out of reach when its round was given up may still run it.
        """
        unswept = self._unswept.intersection(names) - self._state.left_out.keys() - self._lost.keys()
        there = {name: self._hosts[name] for name in unswept}

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

    def _end_left(self, names: Collection[str]) -> None:
        """End tasks that earlier rounds could not end, if their host answers: they would disturb the next."""

        def end(name: str) -> bool:
            if not answers(self._hosts[name]):
                return False
            for task in self._left[name]:
                across_outages(self._hosts[name], partial(task.finish, STOP_GRACE_SECONDS), self._patience)
            return True

        ended = for_each({name: name for name in names if name in self._left}, end)
        for name, error in ended.failed.items():
            LOG.warning("%s: what runs there of an earlier round could not be ended: %s", name, error)
        for name in [name for name, answered in ended.succeeded.items() if answered]:
            LOG.info("%s: what was left there of an earlier round is removed", name)
            del self._left[name]
