"""An action on a host across outages: what is waited for, for how long, and what is not."""

import threading
import time
from typing import cast

import pytest

from run_benchmarks.errors import (
    CollectError,
    CommandError,
    ConnectError,
    DeadlineError,
    HostError,
    HostKeyError,
    LinkLostError,
)
from run_benchmarks.hosts import outages
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.outages import Outage, OutOfReachError, Patience, across_outages

LOST = LinkLostError("h", "the SSH connection is gone")


class Away:
    """A host that answers from its `back`-th question on; `refusal` until then."""

    name = "h"

    def __init__(self, back: int, refusal: HostError | None = None) -> None:
        self._back, self._refusal = back, refusal or ConnectError("h", "refused")
        self.asked = 0

    def run(self, argv: list[str], *, deadline: float) -> None:
        assert argv == ["true"]
        self.asked += 1
        if self.asked < self._back:
            raise LOST

    def reconnect(self) -> None:
        if self.asked < self._back:
            raise self._refusal


class Action:
    """Fails with these errors, one a call, and then answers."""

    def __init__(self, *errors: HostError) -> None:
        self._errors, self.calls = list(errors), 0

    def __call__(self) -> str:
        self.calls += 1
        if self._errors:
            raise self._errors.pop(0)
        return "done"


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes in this thread's pauses alone; other threads keep theirs."""
    now, mine, monotonic, sleep = [0.0], threading.get_ident(), time.monotonic, time.sleep

    def pause(seconds: float) -> None:
        if threading.get_ident() != mine:
            return sleep(seconds)
        now[0] += seconds

    monkeypatch.setattr(time, "monotonic", lambda: now[0] if threading.get_ident() == mine else monotonic())
    monkeypatch.setattr(time, "sleep", pause)


def host(back: int, refusal: HostError | None = None) -> Host:
    return cast("Host", Away(back, refusal))


def broken_transfer(cause: Exception) -> CollectError:
    error = CollectError("h", "the transfer broke")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("error", [LOST, ConnectError("h", "refused"), broken_transfer(LOST)])
def test_the_action_is_run_again_once_the_host_is_back(error: HostError) -> None:
    noted: list[Outage] = []
    told: list[str] = []
    action = Action(error)
    assert across_outages(host(12), action, Patience(limit=30, tell=told.append), noted.append) == "done"
    assert action.calls == 2 and len(noted) == 1 and noted[0][2] == str(error)
    assert told == [f"{error}; trying to reconnect for 30 s"] and time.monotonic() == 11 * outages.RECONNECT_SECONDS


@pytest.mark.parametrize(
    "error",
    [
        CommandError("h", ["false"], 1, ""),
        HostKeyError("h", "another key"),
        DeadlineError("h", ["sleep"], 5, ""),  # the host answers: it is the command that takes long
        broken_transfer(OSError("no space left")),
    ],
)
def test_what_is_no_outage_is_raised_at_once(error: HostError) -> None:
    action = Action(error)
    with pytest.raises(type(error)):
        across_outages(host(1), action, Patience(limit=30))
    assert action.calls == 1 and time.monotonic() == 0


def test_a_command_past_its_deadline_on_a_host_that_does_not_answer_is_run_again() -> None:
    action = Action(DeadlineError("h", ["sleep"], 5, ""))
    assert across_outages(host(3), action, Patience(limit=30)) == "done"


def test_a_host_that_stays_away_is_out_of_reach_after_the_limit() -> None:
    action = Action(LOST)
    why = "the SSH connection is gone; connecting again: refused"
    with pytest.raises(OutOfReachError, match=rf"out of reach for 30 s \({why}\)"):
        across_outages(host(10_000), action, Patience(limit=30))
    assert action.calls == 1


def test_an_engine_that_stays_silent_on_a_host_that_answers_is_its_own_error() -> None:
    silent = LinkLostError("h", "the Docker engine did not answer")
    action = Action(*[silent] * 10_000)
    with pytest.raises(LinkLostError, match="engine") as found:
        across_outages(host(1), action, Patience(limit=30))
    assert not isinstance(found.value, OutOfReachError) and 30 <= time.monotonic() <= 32


def test_another_key_is_said_at_once() -> None:
    with pytest.raises(HostKeyError):
        across_outages(host(10_000, HostKeyError("h", "another key")), Action(LOST), Patience(limit=30))
    assert time.monotonic() == 0


def test_a_run_that_has_to_end_waits_for_nobody() -> None:
    with pytest.raises(LinkLostError):
        across_outages(host(3), Action(LOST), Patience(limit=30, is_over=lambda: True))
    assert time.monotonic() == 0


@pytest.mark.parametrize("error", [LOST, DeadlineError("h", ["sleep"], 5, ""), CommandError("h", ["false"], 137, "")])
def test_what_nobody_listened_to_is_asked_again(error: HostError) -> None:
    """The controller itself was suspended while the action ran: its deadline passed, and the host is no worse."""
    slept, noted, told, errors = [0.0], list[Outage](), list[str](), [error]

    def action() -> str:
        if errors:
            slept[0] += 40.0
            raise errors.pop()
        return "done"

    patience = Patience(limit=30, slept=lambda: slept[0], tell=told.append)
    assert across_outages(host(1), action, patience, noted.append) == "done"
    assert noted == [] and told == ["h: asked again, since the controller itself was suspended"]
