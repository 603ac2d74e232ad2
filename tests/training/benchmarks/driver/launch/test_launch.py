import os
import re
import signal
import socket
import time
from pathlib import Path

import pytest

from protocol.node_record import NODE_EXIT_FILE
from tests.run_benchmarks.hosts.sshd import free_port
from tests.training.benchmarks.driver.launch.launching import (
    WORKLOAD,
    command,
    exit_record,
    is_gone,
    lock_is_held,
    plain_processes,
    rank_pids,
    run,
    started,
    wait_until,
)
from training.benchmarks.driver.launch import launcher

TWO_RANKS = ["--nproc_per_node", "2"]


def log_of(folder: Path, rank: int) -> str:
    return (folder / f"rank{rank}.out.log").read_text(encoding="utf-8")


def test_two_nodes_name_the_rank_that_left_and_the_other_follows(tmp_path: Path) -> None:
    port = str(free_port())
    folders = [tmp_path / f"node{index}" for index in range(2)]
    options = [
        ["--nnodes", "2", "--node_rank", str(index), "--master_addr", "127.0.0.1", "--master_port", port]
        for index in range(2)
    ]
    with (
        started(command(folders[0], options[0], [WORKLOAD, "exit"]), OMP_NUM_THREADS="3") as first,
        started(command(folders[1], options[1], [WORKLOAD, "exit"]), GLOO_SOCKET_IFNAME="lo") as second,
    ):
        outputs = [process.communicate(timeout=200)[0] for process in (first, second)]
    assert second.returncode == 7, outputs
    assert first.returncode not in (0, 7)
    record = exit_record(folders[1])
    assert record.exit_code == 7
    assert [(each.rank, each.local_rank, each.exit_code, each.signal) for each in record.failures] == [(1, 0, 7, None)]
    assert "rank 1 left with exit code 7" in record.failures[0].message
    assert exit_record(folders[0]).failures[0].rank == 0
    # Logs are named by global rank and hold what children print too.
    assert sorted(path.name for path in folders[1].glob("rank*.log")) == ["rank1.out.log"]
    assert "rank 1 is ready\na child of rank 1\n" in log_of(folders[1], 1)
    # Values that were set before win.
    assert exit_record(folders[0]).environment["OMP_NUM_THREADS"] == "3"
    assert record.environment["GLOO_SOCKET_IFNAME"] == "lo"
    assert "NCCL_SOCKET_IFNAME" not in record.environment  # NCCL does not use loopback
    assert record.interface == "lo"


@pytest.mark.nightly  # by day the ranks are plain processes: test_processes.py
def test_the_rank_that_was_killed_comes_before_its_peers(tmp_path: Path) -> None:
    code, output = run(tmp_path, TWO_RANKS, [WORKLOAD, "kill"])
    assert code == 128 + signal.SIGKILL, output
    record = exit_record(tmp_path)
    first, *others = record.failures
    assert (first.rank, first.exit_code, first.signal, first.stopped) == (1, None, "SIGKILL", False)
    # Beside other work the launcher may end the peer before it notices.
    assert [(each.rank, each.is_effect) for each in others] == [(0, True)]
    assert not first.is_effect
    assert record.started_ms < first.time_ms <= others[0].time_ms <= record.finished_ms
    assert "rank 1: SIGKILL" in output


def test_a_traceback_is_in_the_ranks_log_and_in_the_record(tmp_path: Path) -> None:
    (tmp_path / "rank1.out.log").write_text("from before\n")
    code, output = run(tmp_path, TWO_RANKS, [WORKLOAD, "raise"])
    assert code == 1, output
    first = exit_record(tmp_path).failures[0]
    assert (first.rank, first.exit_code) == (1, 1)
    for text in (first.message, log_of(tmp_path, 1), output):
        assert "Traceback (most recent call last)" in text
        assert "failing_workload.py" in text
        assert "ValueError: the data is not there" in text
    assert log_of(tmp_path, 1).startswith("from before\n")


@pytest.mark.nightly
def test_a_sentence_by_which_a_rank_leaves_is_the_message(tmp_path: Path) -> None:
    code, _ = run(tmp_path, TWO_RANKS, [WORKLOAD, "text"])
    assert code == 1
    assert exit_record(tmp_path).failures[0].message == "a sentence for people"


def test_sigterm_takes_every_rank_down_and_is_recorded(tmp_path: Path) -> None:
    (tmp_path / NODE_EXIT_FILE).write_text("{}")
    with started(command(tmp_path, TWO_RANKS, [WORKLOAD, "sleep"])) as process:
        wait_until(lambda: lock_is_held(tmp_path), "the lock is taken")
        assert process.poll() is None
        logs = [tmp_path / f"rank{rank}.out.log" for rank in range(2)]
        wait_until(lambda: all(log.exists() and "a child" in log.read_text() for log in logs), "both ranks run")
        assert not (tmp_path / NODE_EXIT_FILE).exists(), "the record of an earlier launch must not stay"
        ranks = rank_pids(process)
        assert len(ranks) == 2

        code, output = run(tmp_path, TWO_RANKS, [WORKLOAD, "exit"])
        assert code == 2 and "another workload runs" in output
        assert not (tmp_path / NODE_EXIT_FILE).exists(), "a refused launch must not write into another's record"

        os.kill(ranks[0], signal.SIGUSR1)
        wait_until(lambda: "failing_workload.py" in logs[0].read_text() + logs[1].read_text(), "the stack dump")

        assert lock_is_held(tmp_path)
        begin = time.monotonic()
        process.terminate()
        process.terminate()
        output, _ = process.communicate(timeout=200)
        assert time.monotonic() - begin < 15
    assert process.returncode == 128 + signal.SIGTERM
    assert all(is_gone(pid) for pid in ranks)
    assert not lock_is_held(tmp_path)
    record = exit_record(tmp_path)
    assert (record.exit_code, record.signal, record.error) == (143, "SIGTERM", None)


@pytest.mark.parametrize(
    ("limit", "has_torch"),
    [("2", False), *(pytest.param(limit, True, marks=pytest.mark.nightly) for limit in ("6", "0.5"))],
)
def test_after_max_seconds_it_stops_by_itself(tmp_path: Path, limit: str, has_torch: bool) -> None:
    """After half a second torch is still being loaded."""
    options = TWO_RANKS if has_torch else plain_processes(2)
    begin = time.monotonic()
    code, output = run(tmp_path, [*options, "--max_seconds", limit], [WORKLOAD, "sleep"])
    assert code == 128 + signal.SIGTERM and f"its --max_seconds {limit} are over" in output
    assert float(limit) < time.monotonic() - begin < 45
    assert exit_record(tmp_path).signal == "SIGTERM" and not lock_is_held(tmp_path)


@pytest.mark.parametrize("limit", ["0", "-3", "nan", "inf", "soon"])
def test_a_limit_that_is_no_number_of_seconds_is_refused(limit: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        launcher.parse(["--log_dir", "x", *TWO_RANKS, "--max_seconds", limit, "--", "-m", WORKLOAD])
    assert end.value.code == 2 and "argument --max_seconds" in capsys.readouterr().err


@pytest.mark.nightly
def test_sigterm_while_torch_waits_for_the_other_nodes(tmp_path: Path) -> None:
    """There torch blocks in C++, where Python handles no signal; the master here accepts and never answers."""
    with socket.socket() as master:
        master.bind(("127.0.0.1", 0))
        master.listen()
        master.settimeout(60)
        port = str(master.getsockname()[1])
        options = ["--nnodes", "2", "--node_rank", "1", "--master_addr", "127.0.0.1", "--master_port", port]
        with started(command(tmp_path, options, [WORKLOAD, "exit"])) as process:
            connection, _ = master.accept()
            process.terminate()
            output, _ = process.communicate(timeout=200)
            connection.close()
    assert process.returncode == 128 + signal.SIGTERM
    assert "while torch waited for the other nodes" in output
    record = exit_record(tmp_path)
    assert (record.exit_code, record.signal, record.failures) == (143, "SIGTERM", [])
    assert not lock_is_held(tmp_path)


def test_ranks_die_with_a_launcher_that_is_killed(tmp_path: Path) -> None:
    with started(command(tmp_path, ["--nproc_per_node", "1"], [WORKLOAD, "sleep"])) as process:
        log = tmp_path / "rank0.out.log"
        wait_until(lambda: log.exists() and "a child" in log.read_text(), "the rank runs")
        ranks = rank_pids(process)
        process.kill()
        process.wait()
    assert len(ranks) == 1
    wait_until(lambda: all(is_gone(pid) for pid in ranks), "the rank is gone")
    assert not lock_is_held(tmp_path)


@pytest.mark.parametrize(
    ("options", "module", "expected"),
    [
        (TWO_RANKS, "training.benchmarks.nothing", "there is no entry module 'training.benchmarks.nothing'"),
        (TWO_RANKS, "no_package.module", "the entry module 'no_package.module' cannot be found"),
        # test_agent.py asks torchrun's reader for them, without another process.
        *(
            pytest.param(options, WORKLOAD, said, marks=pytest.mark.nightly)
            for options, said in (
                ([*TWO_RANKS, "--wrong", "1"], "torchrun refuses its options: .*--wrong"),
                (["--nproc_per_node", "many"], "--nproc_per_node many: Unsupported"),
            )
        ),
        (["--launcher", "processes", "--interface", "eth77"], WORKLOAD, "no interface 'eth77'"),
    ],
)
def test_a_launch_that_cannot_begin_says_why(tmp_path: Path, options: list[str], module: str, expected: str) -> None:
    code, output = run(tmp_path, options, [module, "exit"])
    assert code == 2
    record = exit_record(tmp_path)
    assert record.exit_code == 2 and record.error is not None
    assert re.search(expected, record.error), record.error
    assert record.error in output
    assert "Traceback" not in output


def test_without_a_module_the_usage_is_shown(tmp_path: Path) -> None:
    argv = command(tmp_path, TWO_RANKS, [])[:-2]
    with started(argv) as process:
        output, _ = process.communicate(timeout=200)
    assert process.returncode == 2
    assert "after the options must follow: -- -m MODULE ARGUMENTS" in output
