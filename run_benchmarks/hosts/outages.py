"""Repeats an action on a host whose link breaks, until the host has been out of reach for too long."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from run_benchmarks.errors import (
    CollectError,
    ConnectError,
    DeadlineError,
    EngineSilentError,
    HostError,
    HostKeyError,
    LinkLostError,
)
from run_benchmarks.hosts.base import Host

ValueT = TypeVar("ValueT")
HEARTBEAT_SECONDS = 5.0
RECONNECT_SECONDS = 1.0
Outage = tuple[int, int, str]  # its begin and end in epoch ms, and the error that began it


class OutOfReachError(LinkLostError):
    """A host was out of reach for longer than it may be."""


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long an answer of a host is waited for: `limit` seconds, or until `is_over`; `tell` receives each outage."""

    limit: float = 0.0
    is_over: Callable[[], bool] = lambda: False
    tell: Callable[[str], None] = lambda _: None


def answers(host: Host, seconds: float = HEARTBEAT_SECONDS) -> bool:
    """Whether a host answers within `seconds`, or after that over a new connection (with a time-out of its own)."""
    return refusal(host, seconds) is None


def across_outages(
    host: Host, action: Callable[[], ValueT], patience: Patience, note: Callable[[Outage], None] = lambda _: None
) -> ValueT:
    """Run an action on a host; where its answer is lost on the way, reconnect and run it again.

    The action may run any number of times, also after it took effect. `note` receives the outage once it is over.

    Raises:
        OutOfReachError: the host did not answer for as long as it may.
        HostKeyError: another key came when reconnecting.
        HostError: whatever the action raises; of an outage, if the host answers and the action does not.
    """
    began, began_ms, first = 0.0, 0, ""
    while True:
        try:
            result = action()
        except HostError as error:
            if patience.limit <= 0 or patience.is_over() or not _is_outage(error, host):
                raise
            trouble = error
        else:
            if first:
                note((began_ms, _now_ms(), first))
            return result
        if first:
            time.sleep(RECONNECT_SECONDS)
        else:
            began, began_ms, first = time.monotonic(), _now_ms(), str(trouble)
            patience.tell(f"{trouble}; trying to reconnect for {patience.limit:g} s")
        silence = _wait_for(host, began + patience.limit, patience.is_over)
        seconds = time.monotonic() - began
        if silence is not None or seconds > patience.limit:
            note((began_ms, _now_ms(), first))
            if silence is None:
                raise trouble
            raise OutOfReachError(host.name, f"out of reach for {seconds:.0f} s ({silence})") from trouble


def _is_outage(error: HostError, host: Host) -> bool:
    """Whether an error is of the way to a host, and not of what was asked of it."""
    cause = error.__cause__ if isinstance(error, CollectError) else error
    if isinstance(cause, DeadlineError):  # a frozen connection looks open
        return refusal(host, HEARTBEAT_SECONDS) is not None
    return isinstance(cause, LinkLostError | ConnectError) and not isinstance(cause, HostKeyError | EngineSilentError)


def _wait_for(host: Host, until: float, is_over: Callable[[], bool]) -> HostError | None:
    """Wait until the host answers, at most until then (monotonic seconds); returns why it does not.

    Raises:
        HostKeyError: it answers with another key.
    """
    while (silence := refusal(host, HEARTBEAT_SECONDS)) is not None:
        if isinstance(silence, HostKeyError):
            raise silence
        if is_over() or time.monotonic() >= until:
            break
        time.sleep(RECONNECT_SECONDS)
    return silence


def refusal(host: Host, seconds: float = HEARTBEAT_SECONDS) -> HostError | None:
    """Why a host answers neither over the present connection nor over a new one; None if it does."""
    try:
        host.run(["true"], deadline=seconds)
    except HostError:
        try:
            host.reconnect()
        except HostError as error:
            return error
    return None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
