"""Ranks as plain processes, without torch's agent: who they are, how they fail, and that none is left."""

import signal
import time
from pathlib import Path

import psutil
import pytest

from tests.settling import settled
from tests.training.benchmarks.driver.launch.launching import (
    WORKLOAD,
    command,
    exit_record,
    is_gone,
    plain_processes,
    rank_pids,
    run,
    started,
    wait_until,
)
from training.benchmarks.driver.launch.failures import StartError
from training.benchmarks.driver.launch.processes import environment_of, parse_options


@pytest.mark.nightly
def test_what_rank_0_stores_last_is_read_by_ranks_that_are_late(tmp_path: Path) -> None:
    """Its process serves the store of plain processes."""
    code, _ = run(tmp_path, plain_processes(2), ["tests.training.benchmarks.driver.launch.parting_workload"])
    found = [path.read_text() for path in tmp_path.rglob("*rank1*") if path.is_file()]
    assert code == 0 and any("rank 1 read words" in text for text in found), found


@pytest.mark.parametrize(
    ("how", "exit_code", "name"),
    [
        ("kill", None, "SIGKILL"),
        ("raise", 1, None),
        ("text", 1, None),
        # By day test_launch.py has it, under torchrun.
        pytest.param("exit", 7, None, marks=pytest.mark.nightly),
    ],
)
def test_the_failing_rank_is_named_and_the_other_is_ended(
    how: str, exit_code: int | None, name: str | None, tmp_path: Path
) -> None:
    code, output = run(tmp_path, plain_processes(2), [WORKLOAD, how])
    record = exit_record(tmp_path)
    first, *others = record.failures
    assert (first.rank, first.exit_code, first.signal, first.stopped) == (1, exit_code, name, False), output
    assert code == record.exit_code == (exit_code or 128 + signal.SIGKILL)
    assert record.torch is None
    assert all(other.rank == 0 and (other.lost_peer or other.stopped) for other in others)
    expected = {"raise": "ValueError: the data is not there", "text": "a sentence for people"}
    assert expected.get(how, "its output is in") in first.message


def test_a_signal_takes_every_rank_down(tmp_path: Path) -> None:
    with started(command(tmp_path, plain_processes(2), [WORKLOAD, "sleep"])) as process:
        logs = [tmp_path / f"rank{rank}.out.log" for rank in range(2)]
        wait_until(lambda: all(log.exists() and "a child" in log.read_text() for log in logs), "both ranks run")
        ranks = rank_pids(process)
        assert len(ranks) == 2
        sleeps = psutil.Process(process.pid).num_ctx_switches
        before = settled(lambda: sleeps().voluntary)
        time.sleep(0.5)
        assert sleeps().voluntary == before, "the launcher looks now and then instead of being woken"
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=200)
    assert process.returncode == 128 + signal.SIGTERM
    assert all(map(is_gone, ranks))
    assert exit_record(tmp_path).signal == "SIGTERM"


def test_ranks_know_their_place_among_all_nodes(tmp_path: Path) -> None:
    given = ["--nnodes", "3", "--node_rank", "2", "--nproc_per_node", "4", "--master_addr", "a", "--master_port", "7"]
    arguments = parse_options([*given, "--log_dir", str(tmp_path)], [])
    environment = environment_of(arguments, 1)
    assert (environment["RANK"], environment["WORLD_SIZE"]) == ("9", "12")
    assert (environment["LOCAL_RANK"], environment["LOCAL_WORLD_SIZE"]) == ("1", "4")
    assert (environment["GROUP_RANK"], environment["GROUP_WORLD_SIZE"]) == ("2", "3")
    assert (environment["MASTER_ADDR"], environment["MASTER_PORT"]) == ("a", "7")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--nproc_per_node", "0"], "--nproc_per_node 0"),
        (["--nnodes", "2", "--node_rank", "2"], "--node_rank 2 of --nnodes 2"),
        (["--rdzv_backend", "c10d"], "unrecognized arguments: --rdzv_backend c10d"),
        (["--max_restarts", "3"], "invalid choice: 3"),
    ],
)
def test_options_that_cannot_be_are_refused(given: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(StartError, match=message):
        parse_options([*given, "--log_dir", str(tmp_path)], [])
