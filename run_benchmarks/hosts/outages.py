"""Repeats an action on a host whose link breaks, until the host has been out of reach for too long."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from run_benchmarks import errors
from run_benchmarks.hosts.base import Host

ValueT = TypeVar("ValueT")
HEARTBEAT_SECONDS = 5.0
RECONNECT_SECONDS = 1.0
Outage = tuple[int, int, str]  # its begin and end in epoch ms, and the error that began it


class OutOfReachError(errors.LinkLostError):
    """A host was out of reach for longer than it may be."""


FINAL = (errors.HostKeyError, OutOfReachError)  # a host that answers so is not asked again


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long an answer of a host is waited for: `limit` seconds by the clock `now`, or until `is_over`.

    `tell` receives each outage as it begins; `check` raises what ends the run; `slept`: the seconds in which this
    process could not run, which `now` leaves out.
    """

    limit: float = 0.0
    is_over: Callable[[], bool] = lambda: False
    check: Callable[[], None] = lambda: None
    tell: Callable[[str], None] = lambda _: None
    now: Callable[[], float] = lambda: time.monotonic()
    slept: Callable[[], float] = lambda: 0.0


IMPATIENT = Patience()


def answers(host: Host, seconds: float = HEARTBEAT_SECONDS) -> bool:
    """Whether a host answers within `seconds`, or after that over a new connection (with a time-out of its own)."""
    return refusal(host, seconds) is None


class Reconnecting:
    """Asks a host something until the answer comes, across outages of its link; use once.

    `note` receives each outage once it is over.
    """

    def __init__(self, host: Host, patience: Patience, note: Callable[[Outage], None] = lambda _: None) -> None:
        self._host, self._patience, self._note = host, patience, note
        self._heard: tuple[float, int] | None = None  # when it last answered: by the clock, in epoch ms
        self._outage: tuple[float, int, str] | None = None  # that lasts: its begin, likewise, and its error

    def heard(self) -> None:
        """For the action to call: it goes on, and the host has just answered."""
        if self._outage is not None:
            _, began_ms, first = self._outage
            self._outage = None
            self._note((began_ms, _now_ms(), first))
        self._heard = self._patience.now(), _now_ms()

    def run(self, action: Callable[[], ValueT]) -> ValueT:
        """Run the action; where its answer is lost on the way, or not awaited, reconnect and run it again.

        The action may run any number of times, also after it took effect.

        Raises:
            OutOfReachError: the host did not answer for as long as it may.
            HostKeyError: another key came when reconnecting.
            HostError: whatever the action raises; of an outage, if the host answers and the action does not.
        """
        while True:
            began, slept = self._patience.now(), self._patience.slept()
            try:
                result = action()
            except errors.HostError as error:
                if self._patience.limit <= 0 or self._patience.is_over():
                    raise
                if self._patience.slept() != slept:  # its answer may have come while nobody listened
                    self._patience.tell(f"{self._host.name}: asked again, since the controller itself was suspended")
                    refusal(self._host)
                    continue
                if not _is_outage(error, self._host):
                    raise
                self._wait(error, began)
            else:
                self.heard()
                return result

    def _wait(self, trouble: errors.HostError, tried: float) -> None:
        """Wait until the host answers; `trouble` broke an action that began at `tried`, by the clock."""
        now, limit = self._patience.now, self._patience.limit
        is_again = self._outage is not None
        if is_again and now() - tried > limit and not is_up(self._host):  # it broke anew, after a time in which it held
            self.heard()
        if self._outage is None:
            since, since_ms = self._heard or (now(), _now_ms())
            self._outage = since, since_ms, str(trouble)
            self._patience.tell(f"{trouble}; trying to reconnect for {limit:g} s")
        if is_again:
            time.sleep(RECONNECT_SECONDS)
        since, began_ms, first = self._outage
        silence = self._silence(since + limit)
        seconds = now() - since
        if silence is None and seconds <= limit:
            return
        self._note((began_ms, _now_ms(), first))
        if silence is None:
            raise trouble
        if isinstance(silence, FINAL):
            raise silence from trouble
        name = self._host.name
        why = f"{first.removeprefix(f'{name}: ')}; connecting again: {silence.detail}"
        raise OutOfReachError(name, f"out of reach for {seconds:.0f} s ({why})") from trouble

    def _silence(self, until: float) -> errors.HostError | None:
        """Wait for the host until then, by the clock, or until its answer is FINAL; returns why it does not answer."""
        while (silence := refusal(self._host, HEARTBEAT_SECONDS)) is not None:
            if isinstance(silence, FINAL) or self._patience.is_over() or self._patience.now() >= until:
                break
            time.sleep(RECONNECT_SECONDS)
        return silence


def across_outages(
    host: Host, action: Callable[[], ValueT], patience: Patience, note: Callable[[Outage], None] = lambda _: None
) -> ValueT:
    """Run an action on a host, again after each outage of its link: see Reconnecting."""
    return Reconnecting(host, patience, note).run(action)


def _is_outage(error: errors.HostError, host: Host) -> bool:
    """Whether an error is of the way to a host, and not of what was asked of it."""
    cause = error.__cause__ if isinstance(error, errors.CollectError) else error
    if isinstance(cause, errors.DeadlineError):  # a frozen connection looks open
        return not is_up(host) and (refusal(host) is not None or is_up(host))
    return isinstance(cause, errors.LinkLostError | errors.ConnectError) and not isinstance(
        cause, errors.HostKeyError | errors.EngineSilentError | OutOfReachError
    )


def refusal(host: Host, seconds: float = HEARTBEAT_SECONDS) -> errors.HostError | None:
    """Why a host answers neither over the present connection nor over a new one; None if it does."""
    if not is_up(host, seconds):
        try:
            host.reconnect()
        except errors.HostError as error:
            return error
    return None


def is_up(host: Host, seconds: float = HEARTBEAT_SECONDS) -> bool:
    """Whether a host answers over the present connection."""
    try:
        host.run(["true"], deadline=seconds)
    except errors.HostError:
        return False
    return True


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
