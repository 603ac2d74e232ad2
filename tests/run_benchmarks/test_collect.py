"""A node's files come over, and the launch is written down without secrets, whatever happens."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from run_benchmarks.collect import collect_node
from run_benchmarks.errors import CollectError
from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.results.judge import NodeOutcome
from tests.run_benchmarks.results.rounds import node_plan


@pytest.fixture
def outcome(tmp_path: Path) -> NodeOutcome:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "rank0.out.log").write_text("log\n")
    (tmp_path / "here").mkdir()
    plan = node_plan("node1", 0, (0, 1)).model_copy(update={"log_dir_host": str(tmp_path / "there")})
    return NodeOutcome(node=plan, folder=tmp_path / "here", exit_code=7, output="out\nput\n", error="node1: bad")


def test_files_and_the_launch_log(outcome: NodeOutcome) -> None:
    files = collect_node(LocalHost("node1"), outcome.node, outcome, "pytorch", 29501)
    assert files == {"rank0.out.log": hashlib.sha256(b"log\n").hexdigest()}
    log = (outcome.folder / "start_pytorch_task.log").read_text()
    for line in (
        "host: node1",
        "node rank: 0, ranks 0, 1",
        "image: none (process runtime)",
        "  HF_TOKEN=***",
        "  NCCL_DEBUG=WARN",
        "argv: python3 --port 29501",
        "exit code: 7",
        "error: node1: bad",
        "out\nput",
    ):
        assert f"{line}\n" in log
    assert "hf_secret" not in log


def test_the_launch_log_is_there_also_where_the_files_are_not(outcome: NodeOutcome) -> None:
    outcome.exit_code, outcome.error = None, None
    plan = outcome.node.model_copy(update={"log_dir_host": "/no/such/folder"})
    with pytest.raises(CollectError, match="/no/such/folder"):
        collect_node(LocalHost("node1"), plan, outcome, "pytorch", 29501)
    log = (outcome.folder / "start_pytorch_task.log").read_text()
    assert "exit code: none\n" in log
    assert "error:" not in log
