"""A run that a lost rank or Ctrl-C ends early: its exit code, where the others waited, and no process that stays."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from protocol.rank_states import RANK_STATES_FILE, NodeRanks
from tests.training.benchmarks.driver.launch.launching import (
    command,
    exit_record,
    is_gone,
    plain_processes,
    rank_pids,
    started,
    wait_until,
)

LONG = [
    *("training.benchmarks.aicb.pytorch", "--vendor", "cpu", "--set", "dialect=aicb", "--set", "frame=collective_test"),
    *("--set", "begin_size=4096", "--set", "end_size=4096", "--set", "iter_num=1", "--set", "iterations=1000000"),
]


@contextmanager
def running(folder: Path) -> Iterator[tuple[subprocess.Popen[str], dict[int, int]]]:
    """Two ranks in the middle of a run that takes minutes: its launch, and the pid of each rank."""
    with started(command(folder, plain_processes(2), LONG)) as process:
        log = folder / "rank0.out.log"
        wait_until(lambda: log.is_file() and "STEP_END" in log.read_text(), "an iteration")
        yield process, {int(psutil.Process(pid).environ()["RANK"]): pid for pid in rank_pids(process)}


def test_the_others_of_a_lost_rank_wait_in_a_named_operation_and_end_with_it(tmp_path: Path) -> None:
    with running(tmp_path) as (process, ranks):
        os.kill(ranks[1], signal.SIGSTOP)
        wait_until(lambda: waits_in(tmp_path, 0) == "op 2 all_reduce dp, test_step", "rank 0 to wait for rank 1")
        os.kill(ranks[1], signal.SIGKILL)
        output, _ = process.communicate(timeout=200)
    assert process.returncode == 128 + signal.SIGKILL, output
    first = exit_record(tmp_path).failures[0]
    assert (first.rank, first.signal) == (1, "SIGKILL")
    assert all(map(is_gone, ranks.values()))


def waits_in(folder: Path, rank: int) -> str | None:
    """Where a rank says that it waits."""
    if not (folder / RANK_STATES_FILE).is_file():
        return None
    return next((state.waits_in for state in NodeRanks.read(folder).ranks if state.rank == rank), None)


@pytest.mark.nightly  # by day a lost rank ends it
def test_ctrl_c_ends_every_rank(tmp_path: Path) -> None:
    with running(tmp_path) as (process, ranks):
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=200)
    assert process.returncode == 128 + signal.SIGINT
    assert exit_record(tmp_path).signal == "SIGINT"
    assert all(map(is_gone, ranks.values()))
