"""Derives again what rank 0's FINISHED claims, from the lines of the ranks' logs: the benchmark knows the rule."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from common.errors import in_brief
from protocol.claims import ClaimsOutcome, LoggedRun, LoggedStep
from protocol.perflog import Event
from protocol.rank_states import NodeRanks
from run_benchmarks.results.outcomes import CaseLike, measured_case, outcome_of
from run_benchmarks.results.rank_logs import RankLog

# The ranks of a training begin and end it together: what their hosts' clocks may differ by, and how late one may be.
RANKS_TOLERANCE, RANKS_SECONDS = 0.05, 2.0
# How late a launcher on a busy host may hear that a training begins or ends.
LAUNCHER_SECONDS = 5.0
MAX_SENTENCES, MAX_CHARACTERS = 20, 500


@dataclass(frozen=True, kw_only=True)
class Derivation:
    """Sentences on how FINISHED contradicts its log. `unchecked`: why not all was derived."""

    contradictions: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()


def derive(
    case: CaseLike, logs: Mapping[int, RankLog], *, is_whole: bool, launchers: Iterable[NodeRanks | None] = ()
) -> Derivation:
    """Derive FINISHED of a round from the logs of its ranks; nothing for a benchmark that declares no claims.

    `is_whole`: whether the collected logs are as the ranks wrote them. Nothing is derived from a part of one.
    `launchers`: what each host's launcher saw of its ranks, by a clock that is not theirs; None where it is not known.
    """
    outcome = outcome_of(case)
    if not isinstance(outcome, ClaimsOutcome) or 0 not in logs:
        return Derivation()
    if not is_whole or logs[0].step_lines is None:
        return Derivation(unchecked=("the log of rank 0 was cut: its FINISHED is not derived from it",))
    try:
        found = [
            *outcome.contradictions(measured_case(case), facts_of(logs[0], case.nnodes * case.nproc, case.nproc)),
            *_other_clocks(logs),
            *_launchers_clocks(logs, launchers),
        ]
    except ValidationError as error:
        return Derivation(unchecked=(f"FINISHED is not derived: settings of another version: {in_brief(error)}",))
    except Exception as error:  # noqa: BLE001 - whatever a host wrote, a training that is right writes no such log
        found = [f"FINISHED cannot be derived from its log: {in_brief(error)}"]
    return Derivation(contradictions=tuple(sentence[:MAX_CHARACTERS] for sentence in found[:MAX_SENTENCES]))


def facts_of(log: RankLog, world_size: int, nproc: int) -> LoggedRun:
    """The lines of rank 0's log in the form that an outcome takes."""
    lines = log.step_lines or ()
    are_all = len(log.steps) == log.counts[Event.STEP_END]
    return LoggedRun(
        steps=[LoggedStep(number=number, begin_ms=begin, end_ms=end) for number, begin, end in lines],
        times_ms={event: record.metadata.time_ms for event, record in log.latest.items()},
        values={event: log.value(event) or {} for event in log.latest},
        world_size=world_size,
        nproc=nproc,
        rows=log.steps if are_all else None,
    )


def _other_clocks(logs: Mapping[int, RankLog]) -> list[str]:
    """A sentence on the first rank whose training was longer or shorter by its lines than that of rank 0."""
    own = _trained_seconds(logs[0])
    for rank, log in sorted(logs.items()):
        other = _trained_seconds(log)
        if abs(other - own) > RANKS_TOLERANCE * max(own, other) + RANKS_SECONDS:
            return [
                f"the training took {own:.6g} s by the lines of rank 0, {other:.6g} s by those of rank {rank}:"
                " the clock of one of their hosts is wrong"
            ]
    return []


def _launchers_clocks(logs: Mapping[int, RankLog], launchers: Iterable[NodeRanks | None]) -> list[str]:
    """A sentence on the first rank whose clock has another pace than that of its launcher, on the same host."""
    spans = {state.rank: state.train_ms for each in launchers if each is not None for state in each.ranks}
    for rank, log in sorted(logs.items()):
        span = spans.get(rank)
        if span is None:
            continue
        own, heard = _trained_seconds(log), (span[1] - span[0]) / 1000
        if abs(heard - own) > RANKS_TOLERANCE * max(own, heard) + LAUNCHER_SECONDS:
            return [
                f"the training took {own:.6g} s by the lines of rank {rank}, {heard:.6g} s by the clock of its"
                " launcher, on the same host: one of the two clocks is wrong"
            ]
    return []


def _trained_seconds(log: RankLog) -> float:
    begin, end = (log.latest[event].metadata.time_ms for event in (Event.TRAIN_START, Event.TRAIN_END))
    return (end - begin) / 1000
