"""Describes and orders the failures of a node's ranks, the cause first, for any launcher. Needs no torch."""

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.memory_group import MemoryGroup
from protocol.node_record import RankFailure, signal_name
from training.benchmarks.driver.launch.rank import log_name

# Seconds between SIGTERM and SIGKILL for the ranks; below Docker's 10 s between its own two, above what gloo needs.
RANK_GRACE_S = 5
# Largest delay with which the watching thread notices an end on a busy host (measured: below 10 ms, rarely more).
WATCH_LATENESS_MS = 200
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGKILL)
# Messages of gloo, NCCL and torch's TCPStore for a connection that the other end closed.
LOST_PEER = (
    "connection closed by peer",
    "connection reset by peer",
    "connection closed by remote peer",
    "caused by a remote worker",
    "remote process exited or there was a network error",
    "did the remote server shutdown or crash",
)
# Their messages for a wait that timed out: they do not name the absent rank, but it was not this one.
WAITED_IN_VAIN = (
    "timed out waiting", "wait timeout after", "collective operation timeout",
    "application timeout caused pair closure", "failed to pass monitoredbarrier", "socket timeout",
)  # fmt: skip


class LaunchError(Exception):
    """The launch cannot begin; the message states what was found and what is needed."""


class StartError(Exception):
    """The ranks of this node could not be started: unusable options, or they could not be brought together."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EndedRank:
    """A rank that did not end with 0.

    `returncode` is negative for a signal. Also holds the time when its launcher noticed the end, and the content of its
    error file, which driver.launch.rank writes ({} without one).
    """

    rank: int
    local_rank: int
    pid: int
    returncode: int
    noticed_ms: int
    error_file: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class SeenFailure:
    """A failure with the keys of its order: the end of the process in epoch ms, and whether it recorded its error.

    `by_itself`: no signal that the launcher sends ended the process. `was_watched`: the end is known to the
    millisecond; otherwise the rank ended before it announced itself.
    """

    failure: RankFailure
    ended_ms: int
    recorded: bool
    by_itself: bool = True
    was_watched: bool = True


def ordered(seen: Sequence[SeenFailure]) -> list[RankFailure]:
    """The failures, the cause first: by time, with effects (a lost peer, a timed-out wait, an end by torchrun) last.

    `seen` is in the order in which the launcher noticed the ends. It ends ranks only after it has noticed one, so
    neither the first nor a rank that ended before it is `stopped`.

    The end of a rank that left no error is noticed up to WATCH_LATENESS_MS late, while its peers record their errors at
    once. If it was noticed before any of them ended, it comes first, and its time is at most theirs. An error in
    communication for which the launcher has no name is an effect if another rank was a cause before it.
    """
    noticed = seen[0]
    first_recorded_end = min((each.ended_ms for each in seen if each.recorded and each.by_itself), default=0)

    def is_sudden(each: SeenFailure) -> bool:
        return not each.recorded and each.was_watched and each.ended_ms < first_recorded_end

    def is_stopped(each: SeenFailure) -> bool:
        before = each.was_watched and noticed.was_watched and each.ended_ms < noticed.ended_ms
        return each.failure.stopped and not (each is noticed or before or is_sudden(each))

    def time_ms(each: SeenFailure) -> int:
        return each.failure.time_ms - (WATCH_LATENESS_MS if is_sudden(each) else 0)

    def is_effect(each: SeenFailure) -> bool:
        return each.failure.lost_peer or each.failure.waited or is_stopped(each)

    causes = [each for each in seen if not is_effect(each) and not each.failure.in_communication]
    first_cause = min((time_ms(each) for each in causes), default=None)

    def classified(each: SeenFailure) -> RankFailure:
        lost = first_cause is not None and first_cause <= each.failure.time_ms + WATCH_LATENESS_MS
        lost_peer = each.failure.lost_peer or (each.failure.in_communication and lost)
        return each.failure.model_copy(update={"stopped": is_stopped(each), "lost_peer": lost_peer})

    pairs = [(classified(each), time_ms(each)) for each in seen]
    first, *others = (it[0] for it in sorted(pairs, key=lambda it: (it[0].is_effect, it[1], it[0].stopped)))
    first_ms = min([first.time_ms, *(each.failure.time_ms for each in seen if each.was_watched)])
    return [first.model_copy(update={"stopped": False, "time_ms": first_ms}), *others]


def explained(failures: Sequence[RankFailure], group: MemoryGroup, kills: int) -> list[RankFailure]:
    """The failures; the first one names the kernel's out-of-memory killer where it is a SIGKILL and `kills` is above 0.

    `kills` counts the processes of `group` that the kernel ended for lack of memory during the launch.
    """
    first, *others = failures
    if kills == 0 or first.signal != signal.SIGKILL.name:
        return list(failures)
    limit = group.limit()
    bound = "" if limit is None else f" (limit: {limit} bytes)"
    message = f"out of memory{bound}: the kernel ended it; {first.message}"
    return [first.model_copy(update={"message": message}), *others]


def seen(failure: EndedRank, ended: Mapping[int, int], log_dir: Path) -> SeenFailure:
    """The failure of a rank, with the time of its end from `ended` (pid to epoch ms) and the error that it recorded."""
    rank = failure.rank
    signal_number = max(0, -failure.returncode)
    exit_code = max(0, failure.returncode)
    ended_ms = time_ms = ended.get(failure.pid, failure.noticed_ms)
    how = f"was ended by {signal_name(signal_number)}" if signal_number else f"left with exit code {exit_code}"
    message = f"rank {rank} {how}; its output is in {log_dir / log_name(rank)}"
    recorded = failure.error_file.get("message")
    if isinstance(recorded, dict):
        extra = recorded["extraInfo"]
        message = extra["py_callstack"]
        time_ms = extra.get("time_ms", time_ms)  # torchrun's own error handler records whole seconds only
        if signal_number in _STOP_SIGNALS:
            # It had failed by itself and was still exiting when torchrun ended it.
            signal_number, exit_code = 0, extra.get("exit_code", 1)
    record = RankFailure(
        rank=rank,
        local_rank=failure.local_rank,
        pid=failure.pid,
        exit_code=None if signal_number else exit_code,
        signal=signal_name(signal_number) if signal_number else None,
        time_ms=time_ms,
        message=message,
        stopped=signal_number in _STOP_SIGNALS,
        lost_peer=isinstance(recorded, dict) and any(phrase in message.lower() for phrase in LOST_PEER),
        waited=isinstance(recorded, dict) and any(phrase in message.lower() for phrase in WAITED_IN_VAIN),
        in_communication=isinstance(recorded, dict) and recorded["extraInfo"].get("in_communication") is True,
    )
    return SeenFailure(
        failure=record,
        ended_ms=ended_ms,
        recorded=isinstance(recorded, dict),
        by_itself=-failure.returncode not in _STOP_SIGNALS,
        was_watched=failure.pid in ended,
    )
