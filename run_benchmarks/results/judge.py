"""Judges what was collected of a round: its verdict, its first failure and its metrics."""

import contextlib
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from protocol.case_file import CASE_FILE
from protocol.perflog import Event
from run_benchmarks.errors import tail
from run_benchmarks.results.blame import describe, first_failure
from run_benchmarks.results.derivation import Derivation, derive
from run_benchmarks.results.node_outcome import NodeOutcome
from run_benchmarks.results.outcomes import CaseLike
from run_benchmarks.results.partial import PartialRecord, has_finished, partial_of
from run_benchmarks.results.rank_logs import RankLog
from run_benchmarks.results.records import DataFile, FirstFailure, Verdict
from run_benchmarks.results.step_curves import StepCurves, step_curves

MAX_DEVICES, MAX_DEVICE_CHARACTERS = 16, 200
TORN_CHARACTERS = 200  # shown in a warning about a line that was cut off
SHA256_DIGITS = 64
MAX_FILES = 100_000
MAX_METRICS, MAX_NAME_CHARACTERS, MAX_METRIC_CHARACTERS = 1000, 200, 64 << 10


def phase_ms(logs: Sequence[RankLog]) -> tuple[int, int] | None:
    """The first TRAIN_START and the last TRAIN_END of these ranks, epoch ms of their host; None without both."""
    times = {
        event: [log.latest[event].metadata.time_ms for log in logs if event in log.latest]
        for event in (Event.TRAIN_START, Event.TRAIN_END)
    }
    if not all(times.values()):
        return None
    return min(times[Event.TRAIN_START]), max(times[Event.TRAIN_END])


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The result of a round. `warnings` are mistakes in the logs that do not affect the verdict.

    `partial`: what was measured of a round that ended early. `phases_ms`: by host, begin and end of the measured work,
    epoch ms of that host. `devices`: the ranks' types of device. `step_curves`: what all ranks did by step.
    """

    verdict: Verdict
    reason: str
    first_failure: FirstFailure | None
    metrics: dict[str, Any]
    steps: list[dict[str, Any]]
    warnings: list[str]
    data_files: dict[str, DataFile] = field(default_factory=dict)
    phases_ms: dict[str, tuple[int, int]] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    partial: PartialRecord | None = None
    step_curves: StepCurves | None = None


def judge(
    outcomes: Sequence[NodeOutcome],
    *,
    ended_early: tuple[Verdict, str] | None,
    case_sha256: str | None = None,
    case: CaseLike | None = None,
) -> Judgement:
    """Judge a round.

    Args:
        ended_early: verdict and reason if the controller itself ended the round (time limit, interruption).
        case_sha256: of the plan's case.json, which every rank has to name; None: it is not compared.
        case: whose benchmark derives FINISHED from the log; None: nothing is derived.
    """
    logs_of = {outcome.node.host: outcome.rank_logs() for outcome in outcomes}
    logs = {log.rank: log for found in logs_of.values() for log in found}
    rank0 = logs.get(0)
    metrics, without = bounded_metrics((rank0.value(Event.FINISHED) if rank0 else None) or {})
    steps = rank0.steps if rank0 else []
    timed_out = ended_early is not None and ended_early[0] is Verdict.TIMEOUT
    failure = first_failure(outcomes, logs, timed_out=timed_out)
    derived, wrong = Derivation(), None
    if ended_early is None and failure is None:
        derived = _derived(case, logs, outcomes)
        wrong = _wrong_content(outcomes, logs_of, case_sha256, derived)
    verdict, reason = _verdict(ended_early, failure, wrong)
    return Judgement(
        verdict=verdict,
        reason=reason,
        first_failure=failure or wrong,
        metrics=metrics,
        steps=steps,
        data_files=files_read(rank0),
        warnings=[*without, *derived.unchecked, *_left_out(logs)],
        phases_ms={host: phase for host, found in logs_of.items() if (phase := phase_ms(found)) is not None},
        devices=_devices(logs.values()),
        partial=partial_of(rank0, verdict),
        step_curves=_step_curves(outcomes, logs_of),
    )


def _step_curves(outcomes: Sequence[NodeOutcome], logs_of: Mapping[str, Sequence[RankLog]]) -> StepCurves | None:
    ahead = {log.rank: 1000 * each.clock_offset for each in outcomes for log in logs_of[each.node.host]}
    return step_curves({log.rank: log.buckets for logs in logs_of.values() for log in logs}, ahead)


def _derived(case: CaseLike | None, logs: Mapping[int, RankLog], outcomes: Sequence[NodeOutcome]) -> Derivation:
    if case is None:
        return Derivation()
    is_whole = not any(o.incomplete for o in outcomes if 0 in o.node.ranks)
    return derive(case, logs, is_whole=is_whole, launchers=[each.node_ranks() for each in outcomes])


def _verdict(
    ended_early: tuple[Verdict, str] | None, failure: FirstFailure | None, wrong: FirstFailure | None
) -> tuple[Verdict, str]:
    """Verdict and reason; `failure` is the end of a process, `wrong` what is wrong where all of them ended with 0."""
    if ended_early is not None:
        verdict, reason = ended_early
        if verdict is Verdict.TIMEOUT and failure is not None:
            reason = f"{reason}; {describe(failure)}"
        return verdict, reason
    if failure is not None:
        return Verdict.FAIL, describe(failure)
    return (Verdict.PASS, "all ranks finished") if wrong is None else (Verdict.FAIL, wrong.message)


def files_read(log: RankLog | None) -> dict[str, DataFile]:
    """The data files that a rank's INIT_END names, with size and sha256; entries of another form are left out."""
    found = ((log.value(Event.INIT_END) if log else None) or {}).get("data_files")
    files = {}
    for name, facts in itertools.islice(found.items(), MAX_FILES) if isinstance(found, dict) else ():
        with contextlib.suppress(ValidationError):
            files[name] = DataFile.model_validate(facts)
    return files


def _devices(logs: Iterable[RankLog]) -> tuple[str, ...]:
    """The types of device that the ranks name in SUBMIT_INFO, each once; in logs of older versions, the kind."""
    submitted = [log.value(Event.SUBMIT_INFO) or {} for log in logs]
    names = [info.get("device_name") or str(info.get("device", "")).partition(":")[0] for info in submitted]
    found = {name[:MAX_DEVICE_CHARACTERS] for name in names if isinstance(name, str) and name}
    return tuple(sorted(found)[:MAX_DEVICES])


def bounded_metrics(found: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The metrics of a round that fit into a record, and a sentence on those left out."""
    kept = {
        name: value
        for name, value in itertools.islice(found.items(), MAX_METRICS)
        if len(name) <= MAX_NAME_CHARACTERS and len(json.dumps(value)) <= MAX_METRIC_CHARACTERS
    }
    if len(kept) == len(found):
        return kept, []
    return kept, [
        f"rank 0: {len(found) - len(kept)} of {len(found)} metrics are not in this record: it holds {MAX_METRICS}, each"
        f" of {MAX_METRIC_CHARACTERS} characters at most, with names of {MAX_NAME_CHARACTERS}"
    ]


def _left_out(logs: Mapping[int, RankLog]) -> Iterator[str]:
    for rank, log in sorted(logs.items()):
        torn = [] if log.torn is None else [f"the last line is cut off: {log.torn[:TORN_CHARACTERS]!r}"]
        yield from (f"rank {rank}: PerfLog: {sentence}" for sentence in (*log.cut, *torn))


def _wrong_content(
    outcomes: Sequence[NodeOutcome],
    logs_of: Mapping[str, Sequence[RankLog]],
    case_sha256: str | None,
    derived: Derivation,
) -> FirstFailure | None:
    """The failure of a round whose tasks all ended with 0: an incomplete log, a violated rule, other settings than the
    plan's, a missing success, or a result that its log contradicts.
    """
    for outcome in outcomes:
        if missing := outcome.missing():
            host = outcome.node.host
            return _no_exit(host, None, f"{host}: not collected: {', '.join(missing)}", tail(outcome.output))
    for log, host in sorted(((log, host) for host, logs in logs_of.items() for log in logs), key=lambda it: it[0].rank):
        wrong = f"PerfLog: {log.problems[0]}" if log.problems else None
        what = wrong or _other_case(log, case_sha256) or _says_it_failed(log) or _says_nothing(log)
        if what is not None:
            return _no_exit(host, log.rank, f"rank {log.rank}: {what}", log.tail)
        if log.rank == 0 and derived.contradictions and not log.is_cut:
            first, *more = derived.contradictions
            message = f"rank 0: FINISHED contradicts its log: {first}" + (f" (and {len(more)} more)" if more else "")
            return _no_exit(host, 0, message, log.tail).model_copy(update={"evidence": [*derived.contradictions]})
    return None


def _says_it_failed(log: RankLog) -> str | None:
    finished = log.value(Event.FINISHED) or {}
    if finished.get("partial") is True:
        return str(finished.get("answer", "its FINISHED is of a part of the steps"))[:MAX_DEVICE_CHARACTERS]
    if finished.get("correct") == "fail":
        return "received data is wrong"
    return "the target was not reached" if finished.get("converged") is False else None


def _says_nothing(log: RankLog) -> str | None:
    """Why it is unknown whether the rank finished, where its log was cut."""
    if not log.is_cut or has_finished(log):
        return None
    return "whether it finished is unknown: of its log, longer than MAX_COLLECT_BYTES, beginning and end were collected"


def _other_case(log: RankLog, case_sha256: str | None) -> str | None:
    """How the case.json that a rank reports to have read differs from the plan's; None if it does not."""
    if case_sha256 is None:
        return None
    found = (log.value(Event.SUBMIT_INFO) or {}).get("case_sha256")
    if found is None:
        return f"its SUBMIT_INFO names no case_sha256: it is unknown whether it ran the plan's {CASE_FILE}"
    if found == case_sha256:
        return None
    return (
        f"it ran another {CASE_FILE} than the plan's: sha256 {str(found)[:SHA256_DIGITS]}, the plan's is {case_sha256}"
    )


def _no_exit(host: str, rank: int | None, message: str, log_tail: str) -> FirstFailure:
    """A failure without the end of a process."""
    return FirstFailure(host=host, rank=rank, exit_code=None, signal=None, message=message, log_tail=log_tail)
