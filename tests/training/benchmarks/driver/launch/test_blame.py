"""Who is named for a round of real ranks in which one leaves without a word, or stands still: that rank, each time."""

import contextlib
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.results.judge import Judgement, judge
from run_benchmarks.results.node_outcome import NodeOutcome
from run_benchmarks.results.records import Verdict
from run_benchmarks.rounds.stall import StallWatch
from run_benchmarks.state.context import RunningNode
from tests.run_benchmarks.results.rounds import node_plan, write_monitor
from tests.tiers import NIGHTLY
from tests.training.benchmarks.driver.launch.launching import command, started, wait_until

WORKLOAD = "tests.training.benchmarks.driver.launch.leaving_workload"
STALL_SECONDS = 6.0
REPETITIONS = 10
RANKS = 4 if NIGHTLY else 2
FAULTY = RANKS // 2  # of two nodes the second one's first rank
# The other ways, and each of them again and again, are of make nightly; a stopped rank has a test of its own below.
LEAVING = [("sys.exit", 2)]
STANDING = [("sleep", "apart", 2)]


@contextlib.contextmanager
def launched(
    folder: Path, nodes: int, workload: Sequence[str], launcher: str = "torchrun"
) -> Iterator[list[subprocess.Popen[str]]]:
    """`RANKS` ranks on one node, or half of them on each of two."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = str(listener.getsockname()[1])
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(
                started(
                    command(
                        folder / f"node{node}",
                        [
                            *(
                                "--nnodes",
                                str(nodes),
                                "--node_rank",
                                str(node),
                                "--nproc_per_node",
                                str(RANKS // nodes),
                            ),
                            *("--master_addr", "127.0.0.1", "--master_port", port, "--launcher", launcher),
                        ],
                        [WORKLOAD, *workload],
                    )
                )
            )
            for node in range(nodes)
        ]


def outcomes_of(folder: Path, nodes: int) -> list[NodeOutcome]:
    per_node = RANKS // nodes
    found = []
    for node in range(nodes):
        ranks = tuple(range(node * per_node, (node + 1) * per_node))
        plan = node_plan(f"node{node}", node, ranks).model_copy(update={"log_dir_host": str(folder / f"node{node}")})
        found.append(NodeOutcome(node=plan, folder=folder / f"node{node}"))
    return found


def assert_named(judgement: Judgement, rank: int, nodes: int) -> None:
    failure = judgement.first_failure
    assert failure is not None
    host = f"node{rank // (RANKS // nodes)}"
    assert (failure.host, failure.rank) == (host, rank), f"{judgement.reason}\n{failure.evidence}"
    assert f"rank {rank} on {host}" in judgement.reason and failure.evidence


def judge_leaving(folder: Path, how: str, nodes: int) -> None:
    with launched(folder, nodes, [how, str(FAULTY), "together"]) as processes:
        outputs = [process.communicate(timeout=200)[0] for process in processes]
    outcomes = outcomes_of(folder, nodes)
    for outcome, process in zip(outcomes, processes, strict=True):
        outcome.exit_code = process.returncode
        write_monitor(outcome.folder)
    judgement = judge(outcomes, ended_early=None)
    assert judgement.verdict is Verdict.FAIL, outputs
    assert_named(judgement, FAULTY, nodes)
    assert "exit code 0: it exited early, without FINISHED" in judgement.reason


def judge_standing(folder: Path, how: str, together: str, nodes: int) -> Judgement:
    """Ended by the stall limit, as the controller does it: stacks first, then the stop."""
    # By day as plain processes, whose launcher loads no torch.
    with launched(folder, nodes, [how, str(FAULTY), together], "torchrun" if NIGHTLY else "processes") as processes:
        outcomes = outcomes_of(folder, nodes)
        watched = [RunningNode(plan=each.node, host=LocalHost(each.node.host), outcome=each) for each in outcomes]
        logs = [each.folder / f"rank{rank}.out.log" for each in outcomes for rank in each.node.ranks]
        wait_until(lambda: all(log.exists() and "STEP_END" in log.read_text() for log in logs), "all ranks step")
        with StallWatch(watched, STALL_SECONDS) as stall:
            wait_until(lambda: stall.stalled() is not None, "the stall is seen")
            reason = stall.stalled()
        assert reason is not None and all(process.poll() is None for process in processes)
        for process in processes:
            process.send_signal(signal.SIGUSR1)
        time.sleep(1.0)
        for process in processes:
            process.terminate()
        for process in processes:
            process.communicate(timeout=200)
    judgement = judge(outcomes, ended_early=(Verdict.TIMEOUT, reason))
    assert judgement.verdict is Verdict.TIMEOUT and judgement.reason.startswith(reason)
    assert_named(judgement, FAULTY, nodes)
    if how == "stop":
        assert "its process is stopped (state T)" in judgement.reason
    if together == "apart":
        assert reason.startswith(f"rank {FAULTY} on ") and "while others did" in reason
    return judgement


@pytest.mark.parametrize(("how", "nodes"), LEAVING)
def test_a_rank_that_leaves_without_a_word_is_named(how: str, nodes: int, tmp_path: Path) -> None:
    judge_leaving(tmp_path, how, nodes)


@pytest.mark.parametrize(("how", "together", "nodes"), STANDING)
def test_a_rank_that_stands_still_is_named(how: str, together: str, nodes: int, tmp_path: Path) -> None:
    judge_standing(tmp_path, how, together, nodes)


@pytest.mark.nightly
def test_torchs_flight_recorder_tells_what_the_others_wait_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "100")
    judgement = judge_standing(tmp_path, "stop", "together", 1)
    assert judgement.first_failure is not None
    evidence = judgement.first_failure.evidence
    waiting = [line for line in evidence if line.startswith("rank 0 ")]
    assert waiting and "in flight: gloo:all_reduce 20 of default_pg" in waiting[0], evidence


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("how", ["sys.exit", "os._exit", "return"])
def test_a_rank_that_leaves_is_named_each_time(how: str, nodes: int, tmp_path: Path) -> None:
    for repetition in range(REPETITIONS):
        judge_leaving(tmp_path / str(repetition), how, nodes)


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize(("how", "together"), [("stop", "together"), ("print", "together"), ("sleep", "apart")])
def test_a_rank_that_stands_still_is_named_each_time(how: str, together: str, nodes: int, tmp_path: Path) -> None:
    for repetition in range(REPETITIONS):
        judge_standing(tmp_path / str(repetition), how, together, nodes)
