"""A job is waited for with Slurm's reason and estimate, for as long as that helps, and else cancelled."""

from collections.abc import Callable, Sequence

import pytest

from run_benchmarks.hosts.slurm import allocation, jobs
from run_benchmarks.hosts.slurm.allocation import Allocation, AllocationError, obtain
from run_benchmarks.hosts.slurm.jobs import Job, from_squeue
from run_benchmarks.hosts.slurm.script import Request
from tests.run_benchmarks.hosts.test_slurm_jobs import PENDING, as_asked

RECORDED = {job.id: job for job in from_squeue("\n".join(map(as_asked, PENDING[1:])))}
BEGUN = Job(id="40", state="RUNNING", hosts=("n1",), start="2026-11-23T16:45:15")
Wait = Callable[..., Allocation]
MOST_CHECKS = 100


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def called() -> list[str]:
    return []


@pytest.fixture
def wait(said: list[str], called: list[str], monkeypatch: pytest.MonkeyPatch) -> Wait:
    """Waits for a job of which these queries tell, the last one for ever; nothing waits for the next one."""

    def call(argv: Sequence[str], **_: object) -> str:
        called.append(" ".join(argv))
        return "40\n"

    for name in ("QUERY_SECONDS", "FIRST_SECONDS", "POLL_SECONDS"):
        monkeypatch.setattr(allocation, name, 0.0)
    monkeypatch.setattr(allocation, "call", call)

    def waited(
        *answers: Job | None,
        number: str | None = None,
        limit: float = 60.0,
        check_nodes: Callable[[], None] = lambda: None,
    ) -> Allocation:
        left = [*answers]
        monkeypatch.setattr(jobs, "job_of", lambda _: left.pop(0) if len(left) > 1 else left[0])
        request, checked = Request(name="clusterdyno-x", nodes=1), iter(range(MOST_CHECKS))

        def check() -> None:
            assert next(checked, None) is not None, "waits on"

        return obtain(
            number or request, note=called.append, limit=limit, check=check, tell=said.append, check_nodes=check_nodes
        )

    return waited


def test_the_reason_and_slurm_s_estimate_are_told_and_each_other_reason_after_them(
    wait: Wait, said: list[str], called: list[str]
) -> None:
    away, behind = RECORDED["35"], RECORDED["40"]
    assert wait(away, away, behind, behind, BEGUN).number == "40"
    assert said == [
        "Slurm's job 40 waits: ReqNodeNotAvail, UnavailableNodes:n2",
        "Slurm's job 40 waits: Priority; Slurm expects it to begin at 2026-11-23T16:45:15",
    ]
    assert called[:2] == ["sbatch --parsable", "40"] and not any("scancel" in each for each in called)


@pytest.mark.parametrize("number", ["38", "43", "44"])
def test_a_reason_that_does_not_pass_ends_the_waiting_and_the_job(number: str, wait: Wait, called: list[str]) -> None:
    with pytest.raises(AllocationError, match=f"would wait for ever: {RECORDED[number].reason}"):
        wait(RECORDED["40"], RECORDED[number])
    assert called[-1] == "scancel 40"


@pytest.mark.parametrize(("number", "is_asked"), [("34", True), ("35", True), ("40", False)])
def test_the_nodes_are_looked_at_while_the_job_waits_for_some_that_are_away(
    number: str, is_asked: bool, wait: Wait, called: list[str]
) -> None:
    def check_nodes() -> None:
        raise AllocationError("n2 is drained (disk)")

    if is_asked:
        with pytest.raises(AllocationError, match="n2 is drained"):
            wait(RECORDED[number], BEGUN, check_nodes=check_nodes)
        assert called[-1] == "scancel 40"
    else:
        assert wait(RECORDED[number], BEGUN, check_nodes=check_nodes).number == "40"


def test_a_limit_ends_the_waiting_with_the_last_reason(wait: Wait, called: list[str]) -> None:
    with pytest.raises(AllocationError, match=r"job 40 had no nodes after 0 s: Priority"):
        wait(RECORDED["40"], limit=0.0)
    assert called[-1] == "scancel 40"


def test_a_job_that_ended_before_it_was_ours_is_no_allocation(wait: Wait) -> None:
    with pytest.raises(AllocationError, match=r"somebody cancelled it \(CANCELLED, by 7101\)"):
        wait(Job(id="40", state="CANCELLED", reason="by 7101"))


def test_a_job_that_is_not_known_is_told_after_some_queries(
    wait: Wait, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wait(*[None] * (allocation.MISSING_LOOKS - 1), BEGUN)
    assert said == []
    wait(*[None] * allocation.MISSING_LOOKS, BEGUN)
    assert said == ["Slurm's job 40: Slurm knows no such job; asking again"]
    monkeypatch.setattr(Allocation, "_ask", lambda _: None)
    with pytest.raises(AssertionError, match="waits on"):
        wait(None)
    assert said[1:] == ["Slurm's job 40: slurmctld does not answer; asking again"]


def test_the_job_of_an_earlier_controller_is_looked_at_at_once(
    wait: Wait, called: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new one is given the time that most need to begin, since the next query may come 5 s later only."""
    monkeypatch.setattr(allocation, "FIRST_SECONDS", 3600.0)
    assert wait(BEGUN, number="40").number == "40"
    assert called == ["scontrol ping"]
    with pytest.raises(AssertionError, match="waits on"):
        wait(BEGUN)
