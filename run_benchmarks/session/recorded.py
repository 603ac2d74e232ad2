"""Reads which rounds of a run an earlier controller has completed, from its journal and its records."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from run_benchmarks.console.console import LOG
from run_benchmarks.plan.plan import CasePlan, RoundPlan, round_folder
from run_benchmarks.results.records import RECORD_FILE, RoundRecord, Verdict, load_record
from run_benchmarks.session.retries import failures_that_count, may_retry
from run_benchmarks.state.journal import JournalState


def recorded_rounds(past: JournalState, case: CasePlan, result_dir: Path) -> list[RoundRecord]:
    """The records of the case's rounds that an earlier controller completed, in the order of the rounds."""
    found = (_recorded_round(past, case, plan.index, result_dir) for plan in case.rounds)
    return [record for record in found if record is not None]


def rounds_to_run(
    past: JournalState, case: CasePlan, records: Sequence[RoundRecord], retry_lost: int = 0
) -> list[RoundPlan]:
    """The case's rounds without a record that counts, and those that failed with retries of the case left."""
    known = {record.round: record.verdict for record in records}

    def is_settled(index: int) -> bool:
        verdict = known.get(index, Verdict.ABORTED)
        key = case.name, index
        failures = failures_that_count(past.failures[key], past.losses[key], retry_lost)
        return verdict is not Verdict.ABORTED and not may_retry(verdict, failures, case.retries)

    return [plan for plan in case.rounds if not is_settled(plan.index)]


def put(records: list[RoundRecord], record: RoundRecord) -> None:
    """Put a record into those of a case's rounds, instead of one of the same round unless that is a later attempt."""
    if any(each.round == record.round and each.attempt > record.attempt for each in records):
        return
    others = [each for each in records if each.round != record.round]
    records[:] = sorted([*others, record], key=lambda each: each.round)


def _recorded_round(past: JournalState, case: CasePlan, index: int, result_dir: Path) -> RoundRecord | None:
    """The record of a round that an earlier controller completed; None without a valid one."""
    ended = past.ended.get((case.name, index))
    if ended is None or ended.verdict is Verdict.ABORTED:
        return None
    path = result_dir / case.folder / round_folder(index, ended.attempt) / RECORD_FILE
    try:
        record = load_record(path, RoundRecord)
    except (OSError, ValidationError) as error:
        LOG.warning("%s cannot be read (%s): the round is run again", path, error)
        return None
    LOG.info("-== Testcase %s Round %d: %s, as recorded ==-", case.name, index, record.verdict)
    return record
