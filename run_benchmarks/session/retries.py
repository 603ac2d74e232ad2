"""Decides whether a round is run again, and names the attempts before the one that counts."""

from collections.abc import Sequence
from pathlib import Path

from run_benchmarks.plan.plan import round_folder
from run_benchmarks.results.records import EarlierAttempt, RoundRecord, Verdict, read_round


def may_retry(verdict: Verdict, failures: int, retries: int) -> bool:
    """Whether a round is run again after an attempt with this verdict.

    Args:
        failures: attempts at the round that count as failed, this one included, earlier controllers' too.
        retries: how often the case wants a failed round to be run again.
    """
    return verdict.is_failure and failures <= retries


def failures_that_count(failures: int, losses: int, retry_lost: int) -> int:
    """The failed attempts at a round; of those that the infrastructure lost, the ones beyond RETRY_LOST."""
    return failures + max(0, losses - retry_lost)


def earlier_attempts(case_folder: Path, rounds: Sequence[RoundRecord]) -> list[EarlierAttempt]:
    """The attempts before `rounds`, which count, by their records; an attempt without a record was interrupted."""
    found = []
    for record in rounds:
        for attempt in range(1, record.attempt):
            old = read_round(case_folder / round_folder(record.round, attempt))
            verdict, reason = (old.verdict, old.reason) if old else (None, "it left no record")
            lost = old is not None and old.is_lost
            found.append(EarlierAttempt(round=record.round, attempt=attempt, verdict=verdict, reason=reason, lost=lost))
    return found


def passed_late(rounds: Sequence[RoundRecord], earlier: Sequence[EarlierAttempt]) -> str:
    """For a case whose rounds all passed: a statement of that, with the rounds that needed several attempts."""
    late = [record for record in rounds if record.attempt > 1]
    if not late:
        return "all rounds passed"
    parts = []
    for record in late:
        before = [str(each) for each in earlier if each.round == record.round]
        parts.append(f"round {record.round} in attempt {record.attempt} ({'; '.join(before)})")
    return f"all rounds passed, {', '.join(parts)}"
