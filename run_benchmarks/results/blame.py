"""Names the rank that broke or stalled a round from all evidence of its ranks, or the reason why none can be named.

A rank that reports a lost peer, or a wait for others that timed out, is a witness and not a cause. Causes are a rank
that failed by itself, one that exited with code 0 but without FINISHED, and a node that failed as a whole
(results.broken_nodes); the first of them by the head node's clock counts, and nodes that broke later are named after
it. Without a cause, results.standstill looks for a rank that hangs.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from common.shortening import few
from protocol.circumstance import CircumstanceKind
from protocol.node_record import NodeExit, RankFailure
from protocol.perflog import Event
from protocol.rank_states import RankState
from run_benchmarks.errors import tail
from run_benchmarks.results.broken_nodes import BrokenNode, broken_node, failure_of, in_order
from run_benchmarks.results.first_failure import FirstFailure
from run_benchmarks.results.node_outcome import NodeOutcome
from run_benchmarks.results.partial import has_finished
from run_benchmarks.results.rank_logs import RankLog
from run_benchmarks.results.standstill import Standing, find_standing

# Largest delay of a rank that exited with 0 behind a peer's failure that it may still have caused: the clocks of two
# hosts differ by milliseconds; within a host, the end of a process that reported nothing is noticed a little late.
SLACK_SECONDS = 0.2
EVIDENCE_LINES = 8
NAMED = 4  # ranks in one sentence
_FRAME = re.compile(" +File ")  # of a traceback


@dataclass(frozen=True, kw_only=True)
class _Cause:
    """A failure with its time in epoch seconds of the head node; `was_seen`: the rank reported the time.

    `node`: it is of a node as a whole. `in_communication`: another failure may have caused it.
    """

    at: float
    failure: FirstFailure
    left_early: bool = False
    was_seen: bool = True
    node: BrokenNode | None = None
    in_communication: bool = False


def first_failure(
    outcomes: Sequence[NodeOutcome], logs: Mapping[int, RankLog], *, timed_out: bool
) -> FirstFailure | None:
    """The cause of a round's failure, None: nothing failed. `timed_out`: the controller ended the round."""
    causes = [cause for outcome in outcomes for cause in _causes(outcome, logs)]
    witnesses = _witnesses(outcomes)
    told = [f"{_place(host, failure.rank)}: {_in_a_line(failure.message)}" for _, host, failure in witnesses]
    if causes:
        first = _first(causes)
        failure = first.failure if first.node is None else _of_nodes(first.node, causes)
        return failure.model_copy(update={"evidence": [*failure.evidence, *told][:EVIDENCE_LINES]})
    if not (timed_out or witnesses):
        return None
    standing = find_standing(_standings(outcomes, logs))
    named = standing.rank
    why = standing.message if timed_out else _nobody_before(outcomes, logs)
    shown = named.rank if named else witnesses[0][2].rank if witnesses else None
    return FirstFailure(
        host=named.host if named else None,
        rank=named.rank if named else None,
        exit_code=None,
        signal=None,
        message=standing.message if named else f"cannot be determined: {why}",
        log_tail=_tail(logs, shown),
        evidence=[*standing.evidence, *told][:EVIDENCE_LINES],
    )


def _first(causes: Sequence[_Cause]) -> _Cause:
    """The earliest cause; a rank that exited early also counts if it is later by less than the clocks may differ."""
    causes = _without_effects(causes)
    others = [cause for cause in causes if not cause.left_early]
    left = min((cause for cause in causes if cause.left_early), key=lambda cause: cause.at, default=None)
    if left is None or not others:
        return left or min(others, key=lambda cause: cause.at)
    first = min(others, key=lambda cause: cause.at)
    exact = left.was_seen and left.failure.host == first.failure.host
    return left if left.at - (0.0 if exact else SLACK_SECONDS) <= first.at else first


def _without_effects(causes: Sequence[_Cause]) -> list[_Cause]:
    """A failure in communication is an effect of any other until then, and of one whose time is unknown."""
    certain = [cause.at for cause in causes if not cause.in_communication]
    return [
        cause
        for cause in causes
        if not cause.in_communication or all(cause.at + SLACK_SECONDS < at < math.inf for at in certain)
    ]


def _of_nodes(first: BrokenNode, causes: Sequence[_Cause]) -> FirstFailure:
    """The failure of the node that broke first, which the round is over with, and of all that broke after it."""
    nodes = in_order([cause.node for cause in causes if cause.node is not None])
    first = nodes[0] if first.is_silent else first
    return failure_of(first, [node for node in nodes if node is not first])


def describe(failure: FirstFailure) -> str:
    """A failure in one line."""
    last = _in_a_line(failure.message)
    if failure.host is None:
        return f"who is to blame {last}"
    if failure.signal:
        how = f"ended by {failure.signal}: "
    elif failure.exit_code is not None:
        how = f"exit code {failure.exit_code}: "
    else:
        how = "no exit code: " if failure.rank is None else ""
    return f"{_place(failure.host, failure.rank)}: {how}{last}".rstrip(": ")


def _causes(outcome: NodeOutcome, logs: Mapping[int, RankLog]) -> Iterator[_Cause]:
    record = outcome.exit_record()
    failures = record.failures if record else []
    offset = outcome.clock_offset
    own = [failure for failure in failures if not failure.is_effect]
    for failure in own:
        at, in_communication = failure.time_ms / 1000 - offset, failure.in_communication
        yield _Cause(at=at, failure=_of_rank(outcome, failure, logs), in_communication=in_communication)
    left = list(_left_early(outcome, logs, {failure.rank for failure in own}))
    yield from left
    if any(not failure.in_communication for failure in own) or left:
        return
    # Ranks that lost a peer do not report on their own node: its engine may have crashed, its host be unreachable.
    if outcome.error is None and any(not failure.stopped for failure in failures):
        return
    broken = broken_node(outcome, began=any(_began(logs[rank]) for rank in outcome.node.ranks if rank in logs))
    if broken is not None:
        yield _Cause(at=broken.at, failure=failure_of(broken, ()), node=broken)


def _of_rank(outcome: NodeOutcome, failure: RankFailure, logs: Mapping[int, RankLog]) -> FirstFailure:
    full = outcome.circumstance(CircumstanceKind.DISK)
    return FirstFailure(
        host=outcome.node.host,
        rank=failure.rank,
        exit_code=failure.exit_code,
        signal=failure.signal,
        message=failure.message if full is None else f"{failure.message}; {full}",
        log_tail=_tail(logs, failure.rank) or tail(outcome.output),
    )


def _left_early(outcome: NodeOutcome, logs: Mapping[int, RankLog], failed: set[int]) -> Iterator[_Cause]:
    """Ranks that were working and exited with code 0 without FINISHED, as their launcher reports."""
    node = outcome.node_ranks()
    for state in node.ranks if node else []:
        log = logs.get(state.rank)
        zero = _left_with_zero(state) or _reaped_with_zero(state, outcome.exit_record())
        if log is None or state.rank in failed or not zero or not _began(log) or _may_have_finished(log, state):
            continue
        moment = state.left_us or state.ended_us or 0
        last = _last_event(log)
        seconds = f"{moment / 1e6 - outcome.clock_offset:.6f}"
        ended = "" if state.ended_us is None else f", its process ended {(state.ended_us - moment) / 1000:.3f} ms later"
        failure = FirstFailure(
            host=outcome.node.host,
            rank=state.rank,
            exit_code=0,
            signal=None,
            message=f"it exited early, without FINISHED; {last}",
            log_tail=log.tail,
            evidence=[f"{_place(outcome.node.host, state.rank)}: left at {seconds} (head node's clock){ended}; {last}"],
        )
        at = moment / 1e6 - outcome.clock_offset
        yield _Cause(at=at, failure=failure, left_early=True, was_seen=state.left_us is not None)


def _may_have_finished(log: RankLog, state: RankState) -> bool:
    """Whether it logged FINISHED; of a log that was cut, unless the rank itself reported another last event."""
    if has_finished(log) or not log.is_cut:
        return has_finished(log)
    return state.left_us is None or state.last_event == Event.FINISHED


def _left_with_zero(state: RankState) -> bool:
    """Whether a rank began to exit with code 0; its end does not matter: its launcher ends all ranks."""
    if state.left_us is not None:
        return state.left_code == 0 and state.exit_code in (0, None)
    return state.exit_code == 0


def _reaped_with_zero(state: RankState, record: NodeExit | None) -> bool:
    """Whether the launch's record implies code 0, if the parent reaped the rank first: it lists all other ends."""
    is_unknown = state.ended_us is not None and (state.left_us, state.exit_code, state.signal) == (None, None, None)
    if not is_unknown or record is None or record.signal is not None or record.error is not None:
        return False
    return state.rank not in {failure.rank for failure in record.failures}


def _witnesses(outcomes: Sequence[NodeOutcome]) -> list[tuple[float, str, RankFailure]]:
    """Ranks that lost a peer or timed out: sorted (epoch s of the head node's clock, host, failure)."""
    found = []
    for outcome in outcomes:
        record = outcome.exit_record()
        for failure in record.failures if record else []:
            if not failure.stopped and (failure.lost_peer or failure.waited):
                found.append((failure.time_ms / 1000 - outcome.clock_offset, outcome.node.host, failure))
    return sorted(found, key=lambda item: item[0])


def _nobody_before(outcomes: Sequence[NodeOutcome], logs: Mapping[int, RankLog]) -> str:
    """Why no rank can be named where ranks lost others: none exited before, or only those that had finished did."""
    done = [
        _place(outcome.node.host, rank)
        for outcome in outcomes
        for rank in outcome.node.ranks
        if rank in logs and has_finished(logs[rank])
    ]
    if not done:
        return "every failed rank lost another or waited for it, and none exited before"
    names = few(done, NAMED)
    return f"the failed ranks lost others, and only {names} had exited, with FINISHED: they differ in what they did"


def _standings(outcomes: Sequence[NodeOutcome], logs: Mapping[int, RankLog]) -> list[Standing]:
    found = []
    for outcome in outcomes:
        look = outcome.look
        node = look.ranks if look else outcome.node_ranks()
        states = {state.rank: state for state in node.ranks} if node else {}
        for rank in outcome.node.ranks:
            log = logs.get(rank)
            found.append(
                Standing(
                    host=outcome.node.host,
                    rank=rank,
                    state=states.get(rank),
                    written_ms=node.written_ms if node else None,
                    clock_offset=outcome.clock_offset,
                    has_finished=log is not None and has_finished(log),
                    last_event="no PerfLog event" if log is None else _last_event(log),
                    unrenewed_seconds=look.silent_seconds if look else 0.0,
                )
            )
    return found


def _began(log: RankLog) -> bool:
    return bool(log.latest)


def _last_event(log: RankLog) -> str:
    return f"its last event is {list(log.latest)[-1]}" if log.latest else "it logged no event"


def _tail(logs: Mapping[int, RankLog], rank: int | None) -> str:
    return logs[rank].tail if rank is not None and rank in logs else ""


def _place(host: str, rank: int | None) -> str:
    return host if rank is None else f"rank {rank} on {host}"


def _in_a_line(message: str) -> str:
    """The line of the exception in a message that ends with a traceback, whose text may go on; else the last line."""
    lines = message.strip().splitlines()
    frames = [number for number, line in enumerate(lines) if _FRAME.match(line)]
    after = lines[frames[-1] + 1 :] if frames else []
    return next((line for line in after if line and not line.startswith(" ")), lines[-1] if lines else "")
