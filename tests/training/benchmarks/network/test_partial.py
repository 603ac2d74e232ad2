"""What was measured is kept, and marked as partial, when a run is stopped or loses a rank."""

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from protocol.perflog import Event, PerfLogger, parse_line
from tests.training.benchmarks.driver.launch.launching import (
    ALONE,
    ROOT,
    command,
    plain_processes,
    run,
    started,
    wait_until,
)
from training.benchmarks.network.pytorch.measuring.partial import KeptSteps

WORKLOAD = "tests.training.benchmarks.network.ending_workload"
SETTINGS = ["--set", "sizes=1K, 2K, 4K, 8K", "--set", "iterations=2", "--set", "warmup_iterations=1"]


def finished(log: str) -> dict[str, Any]:
    """The value of FINISHED."""
    records = [record for record in map(parse_line, log.splitlines()) if record is not None]
    (value,) = [record.value for record in records if record.event is Event.FINISHED]
    assert isinstance(value, dict)
    return value


def check(folder: Path, why: str) -> None:
    """Two of four steps are in FINISHED, in the files and in the table, and all say that they are a part."""
    log = (folder / "rank0.out.log").read_text()
    value = finished(log)
    assert (value["partial"], value["completed_steps"], value["total_steps"]) == (True, 2, 4)
    assert value["max_algbw_GBps"] > 0 and value["peak_size_bytes"] in (1024, 2048) and value["correct"] == "pass"
    assert value["answer"].startswith("partial: 2 of 4 steps were measured: ") and why in value["answer"]
    assert f"# {value['answer']}" in log and "# Avg bus bandwidth" in log
    with (folder / "network.csv").open() as file:
        assert [row["size_bytes"] for row in csv.DictReader(file)] == ["1024", "2048"]
    assert [json.loads(line)["size_bytes"] for line in (folder / "network.jsonl").open()] == [1024, 2048]


def test_a_stop_while_rank_0_is_blocked_in_an_operation_keeps_the_steps(tmp_path: Path) -> None:
    """Rank 1 hangs, and rank 0 waits in gloo for it: Python calls no signal handler there."""
    argv = command(tmp_path, plain_processes(2), [WORKLOAD, "hang", *SETTINGS])
    with started(argv) as process:
        log = tmp_path / "rank1.out.log"
        wait_until(lambda: log.is_file() and "hangs now" in log.read_text(), "rank 1 to hang")
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    check(tmp_path, "stopped by SIGTERM")


def test_a_lost_rank_costs_nothing_that_was_measured(tmp_path: Path) -> None:
    code, _ = run(tmp_path, plain_processes(2), [WORKLOAD, "die", *SETTINGS])
    assert code == 9
    check(tmp_path, "")


def test_a_signal_that_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with KeptSteps(PerfLogger(0), is_first=True, total_steps=2, conclude=lambda _steps, _why: {}) as kept:
            kept.add({"step": 1})
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGHUP, marks=pytest.mark.nightly)])
def test_ctrl_c_by_hand_ends_by_the_signal_with_the_steps_kept(number: signal.Signals, tmp_path: Path) -> None:
    environment = {**os.environ, **ALONE, "GROUP_RANK": "0"}
    argv = [sys.executable, "-m", WORKLOAD, "hang", "--output_dir", str(tmp_path), *SETTINGS]
    process = subprocess.Popen(argv, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "hangs now" in line:
            process.send_signal(number)
    assert process.wait(60) == -number
    (tmp_path / "rank0.out.log").write_text("".join(lines))
    check(tmp_path, f"stopped by {number.name}")
