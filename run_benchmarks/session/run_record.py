"""Makes run.json from the state of a run: its verdict, the result of each case, its hosts and images."""

import importlib.metadata
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from common.errors import in_brief
from container.image import ImageIdentity
from protocol.baseline_file import CaseBaseline
from protocol.masking import mask_argv, mask_config
from protocol.outcome import Assessment
from run_benchmarks.console.command_line import ROOT
from run_benchmarks.console.console import LOG
from run_benchmarks.inspection.findings import HostReport
from run_benchmarks.plan.plan import CasePlan
from run_benchmarks.results.drain import drain_list, not_yet_said
from run_benchmarks.results.key_figure import energy_of, key_figure
from run_benchmarks.results.metrics import Spread, combine
from run_benchmarks.results.outcomes import assess
from run_benchmarks.results.prediction import prediction_of
from run_benchmarks.results.records import (
    CaseRecord,
    HostRecord,
    JobRecord,
    PredictionRecord,
    RoundRecord,
    RunRecord,
    Verdict,
    worst,
)
from run_benchmarks.results.standards import Held, Standards, case_baseline
from run_benchmarks.session.images import image_records
from run_benchmarks.session.preparation import PreparedRun
from run_benchmarks.session.retries import earlier_attempts, passed_late
from run_benchmarks.session.revision import revision
from run_benchmarks.state.exit_codes import exit_code
from run_benchmarks.state.interruption import Interruption

HostState = Literal["healthy", "degraded", "lost"]


def host_state(
    host: str, left_out: Mapping[str, str], rounds: Iterable[RoundRecord], failed_check: str = ""
) -> tuple[HostState, str]:
    """The state of `host` and its reason.

    Lost: it failed the check, or a round that no later attempt replaced was lost there. Degraded: a finding names it or
    one of its devices; a bad link, a rack or a group of suspects degrades none of its hosts.
    """
    if reason := left_out.get(host) or failed_check:
        return "lost", reason
    lost, degraded = [], []
    for record in rounds:
        where = f"{record.case} round {record.round}"
        failure = record.first_failure
        if record.is_lost and failure is not None and failure.host == host:
            lost.append(f"{where}: {failure.message}")
        degraded += [
            f"{where}: {finding.sentence}"
            for finding in record.findings
            if host in finding.drained_hosts or (finding.part in ("host", "device") and host in finding.hosts)
        ]
    if lost:
        return "lost", lost[0]
    return ("degraded", degraded[0]) if degraded else ("healthy", "")


MAX_NAMED = 50
PACKAGES = ("paramiko", "docker", "pydantic", "jinja2", "rich")


@dataclass(kw_only=True)
class RunState:
    """The results of a run so far: `rounds` and `skipped` by case, `images` by tag, all others by host.

    `problem`: why the run as a whole could not continue; `exit_code`: the one of that problem, None for the verdict's.
    """

    started_ms: int
    rounds: dict[str, list[RoundRecord]]
    reports: Mapping[str, HostReport] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    jobs: Sequence[JobRecord] = ()
    left_out: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    code_differences: dict[str, list[str]] = field(default_factory=dict)
    images: Mapping[str, ImageIdentity] = field(default_factory=dict)
    problem: str = ""
    exit_code: int | None = None


@dataclass(kw_only=True)
class _Measured:
    """The measurements of a case's rounds together, held against its standards; `failures` make the case fail."""

    metrics: dict[str, Any] = field(default_factory=dict)
    spread: dict[str, Spread] = field(default_factory=dict)
    held: Held = field(default_factory=Held)
    failures: list[str] = field(default_factory=list)


class RunRecorder:
    """Makes the record of one run from its state, any number of times."""

    def __init__(
        self, prepared: PreparedRun, result_dir: Path, interruption: Interruption, command: list[str], state: RunState
    ) -> None:
        self._prepared, self._plan, self._state = prepared, prepared.plan, state
        self._result_dir, self._interruption, self._command = result_dir, interruption, command
        self._revision = revision(ROOT, {*prepared.code.names, *(case.config_file for case in prepared.plan.cases)})
        test = prepared.settings.test
        self._standards = Standards(test.BASELINE, test.BASELINE_PERCENT)

    def record(self, *, is_final: bool = True) -> RunRecord:
        """The present run.json; only the final one holds the benchmarks' statements on their results."""
        cases = [self._case_record(case, is_final=is_final) for case in self._plan.cases]
        findings = [finding for rounds in self._state.rounds.values() for each in rounds for finding in each.findings]
        fail_on = self._prepared.settings.test.FAIL_ON
        # After a signal during the last collection that round keeps its verdict, but the run was interrupted.
        verdict = worst([case.verdict for case in cases] + [Verdict.ABORTED] * self._interruption.is_set())
        return RunRecord(
            run_id=self._plan.run_id,
            verdict=verdict,
            exit_code=exit_code(verdict, findings, fail_on) if self._state.exit_code is None else self._state.exit_code,
            started_ms=self._state.started_ms,
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
            hosts=[self._host_record(report) for report in self._state.reports.values()],
            jobs=[*self._state.jobs],
            left_out=self._state.left_out,
            fail_on=list(fail_on),
            drain=drain_list(self._state.rounds),
            images=image_records(self._prepared.resolved, self._state.images, self._state.reports),
            cases=cases,
        )

    def _case_record(self, case: CasePlan, *, is_final: bool) -> CaseRecord:
        rounds = self._state.rounds[case.name]
        passed = [record for record in rounds if record.verdict.is_measured]
        measured = self._measured(case, passed)
        verdict, reason = self._verdict(case, rounds, measured.failures)
        said = assess(case, passed) if is_final and passed else Assessment()
        earlier = earlier_attempts(self._result_dir / case.folder, rounds)
        return CaseRecord(
            name=case.name,
            folder=case.folder,
            model=case.model,
            framework=case.framework,
            config_file=case.config_file,
            config=mask_config(case.config),
            extern=case.extern,
            nnodes=case.nnodes,
            nproc=case.nproc,
            verdict=verdict,
            reason=passed_late(rounds, earlier) if reason is None else reason,
            rounds=[record.verdict for record in rounds],
            attempts=[record.attempt for record in rounds],
            earlier_attempts=earlier,
            metrics=measured.metrics,
            spread=measured.spread,
            expectations=list(measured.held.expectations),
            baseline=measured.held.baseline,
            key=key_figure(case, passed, measured.metrics, measured.held.expectations, measured.held.baseline),
            joules=energy_of(passed),
            sentences=[*said.sentences, *not_yet_said(said.sentences, rounds)],
            warnings=[*said.warnings, *measured.held.warnings],
            remarks=[f"round {record.round}: {remark}" for record in rounds for remark in record.told_remarks],
            prediction=self._prediction(case, passed) if is_final else None,
        )

    def _prediction(self, case: CasePlan, passed: list[RoundRecord]) -> PredictionRecord | None:
        """None where none is asked for, or where the run is to end at once."""
        if not case.predict or self._interruption.is_set() or self._interruption.time_is_up():
            return None
        return prediction_of(case, passed, self._result_dir)

    def _measured(self, case: CasePlan, passed: list[RoundRecord]) -> _Measured:
        measured = _Measured()
        try:
            measured.metrics, measured.spread = combine([record.metrics for record in passed])
            measured.held = self._standards.hold(case, passed, measured.metrics)
        except Exception as error:  # noqa: BLE001 - what hosts sent is this case's verdict and not the run's end
            LOG.debug("the measurements of %s cannot be combined", case.name, exc_info=True)
            measured.failures.append(f"its measurements cannot be combined: {in_brief(error)}")
        if measured.held.failures:
            measured.failures.append("; ".join(measured.held.failures))
        return measured

    def _verdict(self, case: CasePlan, rounds: list[RoundRecord], failures: list[str]) -> tuple[Verdict, str | None]:
        """The worst verdict and the first reason for one other than PASS, if any."""
        verdicts = [record.verdict for record in rounds] + [Verdict.FAIL] * bool(failures)
        reasons = [record.reason for record in rounds if not record.verdict.is_measured] + failures
        if len(rounds) < len(case.rounds):
            verdicts.append(Verdict.ABORTED if self._interruption.is_set() else Verdict.SKIPPED)
            reasons.append(
                self._state.skipped.get(case.name) or self._interruption.reason or self._state.problem or "not run"
            )
        reasons += [record.reason for record in rounds if record.verdict is Verdict.DEGRADED]
        return worst(verdicts), reasons[0] if reasons else None

    def learned(self) -> list[CaseBaseline]:
        """The baseline entries of each case after the run; cases without measurements are left out."""
        found = [case_baseline(self._plan.run_id, case, self._state.rounds[case.name]) for case in self._plan.cases]
        return [each for each in found if each.entries]

    def _host_record(self, report: HostReport) -> HostRecord:
        facts = report.facts
        rounds = [record for found in self._state.rounds.values() for record in found]
        failed_check = report.reason if report.failed else ""
        state, reason = host_state(report.host, self._state.left_out, rounds, failed_check)
        return HostRecord(
            name=report.host,
            address=self._state.addresses.get(report.host, ""),
            kernel=facts.kernel if facts else "",
            hostname=facts.hostname if facts else "",
            user=facts.user if facts else "",
            docker_version=report.docker_version,
            devices=list(facts.devices) if facts else [],
            interface=facts.interface if facts else None,
            clock_offset_seconds=round(facts.clock_offset, 4) if facts else 0.0,
            code_differences=self._state.code_differences.get(report.host, [])[:MAX_NAMED],
            state=state,
            state_reason=reason,
        )
