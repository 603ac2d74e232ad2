"""Pipeline schedules: the bubble that is measured is the one that the literature derives."""

from collections import Counter
from pathlib import Path

import pytest

from simulation.analytical.schedules import GPIPE, INTERLEAVED, ONE_F_ONE_B, order, run_schedule
from tests.simulation.analytical.asking import CLUSTER, ask, row, write

STAGES = (1, 2, 3, 4, 8, 16)


@pytest.mark.parametrize("schedule", [GPIPE, ONE_F_ONE_B])
@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize("micro_batches", [1, 2, 5, 16, 64])
def test_bubble_of_gpipe_and_1f1b_is_p_minus_1_over_m(schedule: str, stages: int, micro_batches: int) -> None:
    run = run_schedule(schedule, stages, micro_batches, 1, 1.0, 2.0, 0.0)
    assert run.bubble / run.busy == pytest.approx((stages - 1) / micro_batches)


@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize("rounds", [1, 2, 8])
@pytest.mark.parametrize("chunks", [1, 2, 3, 8])
def test_bubble_of_interleaving_is_p_minus_1_over_m_times_v(stages: int, rounds: int, chunks: int) -> None:
    run = run_schedule(INTERLEAVED, stages, stages * rounds, chunks, 3.0, 5.0, 0.0)
    assert run.bubble / run.busy == pytest.approx((stages - 1) / (stages * rounds * chunks))


@pytest.mark.parametrize(("schedule", "chunks"), [(GPIPE, 1), (ONE_F_ONE_B, 1), (INTERLEAVED, 2)])
def test_every_stage_runs_every_pass_once(schedule: str, chunks: int) -> None:
    for stage in range(4):
        passes = Counter(order(schedule, 4, stage, 8, chunks))
        assert len(passes) == 2 * 8 * chunks and set(passes.values()) == {1}


def test_1f1b_keeps_at_most_p_micro_batches_and_gpipe_all() -> None:
    def most_alive(schedule: str) -> int:
        alive = most = 0
        for one in order(schedule, 4, 0, 32, 1):
            alive += 1 if one.forward else -1
            most = max(most, alive)
        return most

    assert (most_alive(ONE_F_ONE_B), most_alive(GPIPE)) == (4, 32)


def test_transfers_lengthen_the_run() -> None:
    """GPipe: 2(p-1) transfers on the way there and back."""
    assert run_schedule(GPIPE, 4, 8, 1, 1.0, 2.0, 0.5).makespan == pytest.approx((8 + 3) * 3 + 6 * 0.5)
    assert run_schedule(ONE_F_ONE_B, 4, 8, 1, 1.0, 2.0, 0.5).makespan > (8 + 3) * 3 + 6 * 0.5


@pytest.mark.parametrize("schedule", [GPIPE, ONE_F_ONE_B, INTERLEAVED])
def test_the_command_measures_the_closed_formulas_bubble(schedule: str, tmp_path: Path) -> None:
    rows = [row("ALLREDUCE 1073741824", "ALLREDUCE 1073741824", ns=1_000_000, name=f"layer{n}") for n in range(6)]
    path = write(tmp_path / "w", rows, tp=2, pp=4, ga=8, vpp=2 if schedule == INTERLEAVED else 1)
    options = ["-w", str(path), "-g", "8", *CLUSTER, "-r", str(tmp_path / "x-"), "--json"]
    closed, run = ask(*options).summary, ask(*options, "--schedule", schedule).summary
    assert run["bubble_us"] == pytest.approx(closed["bubble_us"]) and run["bubble_us"] > 0
    assert run["total_us"] == pytest.approx(closed["total_us"])


def test_transfers_of_a_schedule_are_its_pipeline_time(tmp_path: Path) -> None:
    path = write(tmp_path / "w", [row(ns=1_000_000)], tp=8, pp=2, ga=4, pp_comm=48_500_000)
    options = ["-w", str(path), "-g", "16", *CLUSTER, "-r", str(tmp_path / "x-"), "--json", "--schedule", "gpipe"]
    assert ask(*options).summary["pipeline_us"] == pytest.approx(2 * 1000)
    assert ask(*options, "-pp_o", "1").summary["pipeline_us"] == 0


def test_what_does_not_fit_the_schedule_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "w", [row(ns=1)], pp=4, ga=6, vpp=2)
    options = ["-w", str(path), "-g", "8", *CLUSTER, "-r", str(tmp_path / "x-"), "--schedule", "interleaved"]
    answer = ask(*options)
    assert answer.code == 2 and "ga 6 is no multiple of pp 4; 8 is" in answer.err
    assert not list(tmp_path.glob("x-*"))
    assert ask(*options, "--ga", "8").code == 0
    assert ask(*options, "--ga", "8", "--dialect", "simai").code == 2
