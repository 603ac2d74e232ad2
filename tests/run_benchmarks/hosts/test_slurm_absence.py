"""slurmctld may be away for a while, as at its restart: it is asked again, which is told, and nobody is accused."""

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from run_benchmarks.errors import ConnectError, LinkLostError
from run_benchmarks.hosts.outages import Patience
from run_benchmarks.hosts.slurm import absence, allocation, host
from run_benchmarks.hosts.slurm.absence import Sparingly, outlast
from run_benchmarks.hosts.slurm.allocation import Allocation, AllocationError
from run_benchmarks.hosts.slurm.client import SlurmError, says_away
from run_benchmarks.hosts.slurm.host import JobOverError, SlurmHost

LIMIT = 60.0
AWAY = SlurmError(["sinfo"], "Unable to contact slurm controller (connect failure)", is_away=True)
WRONG = SlurmError(["sinfo"], "Invalid node name specified", is_away=False)


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def waiting(told: list[str], monkeypatch: pytest.MonkeyPatch) -> Patience:
    """LIMIT seconds of a clock that goes on as it is slept."""
    clock = [0.0]
    monkeypatch.setattr(time, "sleep", lambda seconds: clock.append(clock.pop() + seconds))
    return Patience(limit=LIMIT, tell=told.append, now=lambda: clock[0])


def after(times: float, error: Exception, answer: str = "idle") -> Callable[[], str]:
    """Something that fails so many times before it answers."""
    left = [times]

    def ask() -> str:
        left[0] -= 1
        if left[0] >= 0:
            raise error
        return answer

    return ask


def refused() -> AllocationError:
    error = AllocationError("the nodes cannot be looked at")
    error.__cause__ = AWAY
    return error


@pytest.mark.parametrize("error", [AWAY, refused()])
def test_a_slurmctld_that_comes_back_within_the_limit_has_answered(
    error: Exception, waiting: Patience, told: list[str]
) -> None:
    assert outlast(after(LIMIT / absence.ASK_SECONDS, error), waiting) == "idle"
    assert set(told) == {"slurmctld does not answer, or just began; asking again for 60 s"}
    with pytest.raises(type(error)):
        outlast(after(LIMIT / absence.ASK_SECONDS + 1, error), waiting)


def test_what_slurmctld_refuses_and_an_absence_of_a_run_that_has_to_end_are_not_waited_for(
    waiting: Patience, told: list[str]
) -> None:
    with pytest.raises(SlurmError, match="Invalid node"):
        outlast(after(1, WRONG), waiting)
    with pytest.raises(AllocationError):
        outlast(after(1, AllocationError("n2 is drained")), waiting)
    with pytest.raises(SlurmError, match="Unable"):
        outlast(after(1, AWAY), replace(waiting, is_over=lambda: True))
    assert told == []


def test_each_word_for_an_absence_is_known_and_no_other() -> None:
    """Those of slurm_errno.c for a controller that is gone, that begins, and that ends as it is asked."""
    for words in (
        "Unable to contact slurm controller (receive failure)",
        "Zero Bytes were transmitted or received",
        "Slurm backup controller in standby mode",
        "Communication connection failure",
        "Socket timed out on send/recv operation",
    ):
        assert says_away(f"sbatch: error: Batch job submission failed: {words}")
    assert not says_away("sbatch: error: invalid partition specified: none")


@pytest.mark.parametrize("is_pinged", [True, False])
def test_a_first_step_that_begins_as_slurmctld_is_away_is_begun_again(
    is_pinged: bool, waiting: Patience, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is still away as it is asked for a sign of life, or just came back."""
    why = "Slurm began no step within 60 s" if not is_pinged else AWAY.detail
    steps = after(1, LinkLostError("n1", why))
    monkeypatch.setattr(host, "ping", lambda: None if is_pinged else after(1, AWAY)())
    node = SlurmHost("n1", Allocation(number="7", is_ours=True, patience=waiting))
    monkeypatch.setattr(node, "run", lambda *_, **__: steps())
    node.connect()
    assert len(told) == 1


@pytest.mark.parametrize("error", [LinkLostError("n1", "Invalid job id"), JobOverError("n1", "job 7 is over")])
def test_a_node_that_begins_no_step_though_slurmctld_answers_is_told_at_once(
    error: LinkLostError, waiting: Patience, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "ping", lambda: None)
    node = SlurmHost("n1", Allocation(number="7", is_ours=True, patience=waiting))
    monkeypatch.setattr(node, "run", lambda *_, **__: after(1, error)())
    with pytest.raises((ConnectError, JobOverError)):
        node.connect()
    assert told == []


def test_a_job_is_given_back_once_slurmctld_is_there_again(
    waiting: Patience, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would keep the nodes from those that come after it, until its time is over."""
    cancelled = after(3, AWAY)
    monkeypatch.setattr(allocation, "call", lambda *_, **__: cancelled())
    assert Allocation(number="7", is_ours=True, patience=waiting).give_back() == "" and told
    cancelled = after(3, AWAY)
    assert "Unable to contact" in Allocation(number="7", is_ours=True).give_back()


def test_what_a_thousand_nodes_wait_for_is_told_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, told = [0.0], list[str]()
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    tell = Sparingly(told.append, LIMIT)
    for seconds in (0, 1, 59, 60, 61):
        clock[0] = seconds
        tell("slurmctld does not answer")
    assert len(told) == 2
