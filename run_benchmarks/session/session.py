"""Runs a whole run: check, preparation, every case and round, results. Steps and log lines follow FlagPerf's."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from run_benchmarks.console.console import LOG
from run_benchmarks.errors import CheckError, ClusterDynoError, InterruptedRunError
from run_benchmarks.history.recording import url_of
from run_benchmarks.hosts.slurm.allocation import AllocationError
from run_benchmarks.plan.recorded import CASES_FOLDER
from run_benchmarks.report.html import write_report
from run_benchmarks.results.records import JobRecord, RunRecord, write_record, write_text
from run_benchmarks.results.seal import MANIFEST_FILE, SEAL_FILE, unseal, write_seal
from run_benchmarks.results.signature import sign_seal
from run_benchmarks.session.allocation import allocated
from run_benchmarks.session.learning import baseline_in_use, save_baseline
from run_benchmarks.session.log_lines import log_standards
from run_benchmarks.session.part import Part, limit_time
from run_benchmarks.session.preparation import PreparedRun
from run_benchmarks.session.recorded import recorded_rounds, rounds_to_run
from run_benchmarks.session.run_record import RunRecorder, RunState
from run_benchmarks.state.exit_codes import EXIT_CHECK, EXIT_FAIL, EXIT_PASS
from run_benchmarks.state.interruption import Interruption
from run_benchmarks.state.journal import BaselineTarget, JobNoted, Journal, JournalState, RunEnded, RunStarted
from run_benchmarks.state.vouching import signed


class Session:
    """Runs a prepared plan to its end, or from the state of its journal; use once."""

    part_kind: ClassVar[type[Part]] = Part
    is_measuring: ClassVar[bool] = True  # a signal, or RUN_TIME_LIMIT, then ends the run itself

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
        self._state = RunState(
            started_ms=time.time_ns() // 1_000_000, rounds={case.name: [] for case in self._plan.cases}
        )
        self._of_the_run = interruption if self.is_measuring else Interruption("")
        self._recorder = RunRecorder(prepared, result_dir, self._of_the_run, command, self._state)

    def run(self) -> RunRecord:
        """Run everything; run.json is written after every round and at the end in any case, and returned."""
        self.note_start()
        unseal(self._result_dir)  # what an earlier controller sealed; this one writes its own
        write_text(self._result_dir / MANIFEST_FILE, self._prepared.code.manifest)
        self._record_settings()
        self._begin()
        if self._prepared.has_jobs_of_cases:
            self._run_by_case()
        else:
            self._state.problem = self._problem_of(self._prepared, self._interruption)
        record = self._recorder.record()
        self._finish(record)
        self._close(record)
        return record

    def _problem_of(self, prepared: PreparedRun, interruption: Interruption) -> str:
        """Run these cases; returns why they could not all be run, "" if they were."""
        try:
            self._run_part(prepared, interruption)
        except InterruptedRunError as error:
            LOG.warning("%s", error)
            return str(error)
        except CheckError as error:
            self._state.exit_code = EXIT_CHECK
            LOG.error("%s", error)
            return str(error)
        except ClusterDynoError as error:
            problem = interruption.time_limit_reason if interruption.time_is_up() else str(error)
            LOG.error("%s", problem)
            return problem
        return ""

    def _run_part(self, prepared: PreparedRun, interruption: Interruption) -> None:
        parts = (self._result_dir, interruption, self._journal, self._state, self._recorder)
        self.part_kind(prepared, *parts).run()

    def _run_by_case(self) -> None:
        """Run each case in an allocation of its own; one that gets none, or loses it, is over, and the next begins."""
        for case in self._cases_left():
            interruption = self._interruption.part()
            try:
                with self._allocated(case, interruption) as prepared:
                    problem = self._problem_of(prepared, interruption)
            except (AllocationError, InterruptedRunError) as error:  # while it waited
                problem = str(error)
                LOG.error("Testcase %s: %s", case, problem)
            if self._interruption.is_set():
                return
            if self._interruption.time_is_up():
                self._state.problem = self._interruption.time_limit_reason
                return
            if problem:
                self._state.skipped[case] = problem

    @contextmanager
    def _allocated(self, case: str, interruption: Interruption) -> Iterator[PreparedRun]:
        """The case on the nodes of its own job: that in which an earlier controller left it, or a new one."""
        past = self._journal.read()
        hosts = [] if (opened := past.open.get(case)) is None else [*opened.started.hosts]
        hosts += [host for owed in past.owed.values() if owed.started.case == case for host in owed.hosts]
        known = next((job for job in reversed(past.jobs.values()) if job.case == case), None)
        part = self._prepared.part(case, tuple(dict.fromkeys(hosts)))
        with allocated(part, interruption, known, self.note_job) as reachable:
            yield reachable

    def _cases_left(self) -> list[str]:
        """The cases with something to do, first that of the last job, in which something may still run."""
        past, retry_lost = self._past, self._prepared.settings.test.RETRY_LOST
        owing = {owed.started.case for owed in past.owed.values()} | past.open.keys()
        left = [
            case.name
            for case in self._plan.cases
            if case.name in owing or rounds_to_run(past, case, self._state.rounds[case.name], retry_lost)
        ]
        last = past.job.case if past.job is not None else ""
        return sorted(left, key=lambda name: (name not in past.open, name != last))

    def _close(self, record: RunRecord) -> None:
        if self._learn is not None:  # before the journal ends: a resume saves it if this controller is killed meanwhile
            self.not_saved = save_baseline(self._recorder, record, self._learn.file)
        self._journal.append(RunEnded(verdict=record.verdict, exit_code=self.exit_code(record)))
        self.seal()

    def seal(self) -> str:
        """Seal the folder, and sign the seal if that is asked for; returns the sha256 of seal.json."""
        seal = write_seal(self._result_dir, self._plan.run_id, self._plan.code_digest)
        LOG.info("Sealed: sha256 of %s is %s", SEAL_FILE, seal)
        self.not_saved = self.not_saved or sign_seal(self._result_dir, self._prepared.settings.test.SEAL_KEY)
        return seal

    def note_start(self, pid: int | None = None) -> None:
        """Note in the journal that this process, or another one, starts the run; `pid` 0: a Slurm job will start it."""
        self._journal.append(self._started(pid))

    def note_job(self, job: JobRecord) -> None:
        """Note in the journal that the run has a job."""
        self._journal.append(JobNoted(job=job))
        self._state.jobs = _with_hosts(self._journal.read())

    def _started(self, pid: int | None = None) -> RunStarted:
        settings = self._prepared.settings
        started = RunStarted(
            run_id=self._plan.run_id,
            pid=os.getpid() if pid is None else pid,
            plan_digest=self._prepared.digest(),
            cluster_conf=str(settings.cluster_file.resolve()),
            test_conf=str(settings.test_file.resolve()),
            rounds={case.name: len(case.rounds) for case in self._plan.cases},
            waves=[[*wave] for wave in self._plan.waves],
            hosts=list(self._plan.hosts),
            runtime=self._plan.runtime,
            log_root_host=self._plan.log_root_host,
            changes=settings.changes,
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
        self._state.jobs = _with_hosts(self._past)
        for case in self._plan.cases:
            self._state.rounds[case.name] = recorded_rounds(self._past, case, self._result_dir)
        if self.is_measuring and not self._past.open:
            limit_time(self._prepared, self._state, self._interruption)

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


def _with_hosts(past: JournalState) -> list[JobRecord]:
    """The jobs of a run that had nodes."""
    return [job for job in past.jobs.values() if job.hosts]
