"""Cluster patterns among several nodes, and the seed's tools, as their ranks log them."""

import contextlib
import socket
from pathlib import Path

import pytest
from pydantic import JsonValue

from tests.training.benchmarks.driver.launching import command, exit_record, run, started
from training.benchmarks.driver.perflog import Event, PerfLogRecord, check_sequence, parse_line
from training.benchmarks.network.analysis import analyse

MODULE = "training.benchmarks.network"


def records(folder: Path, rank: int) -> list[PerfLogRecord]:
    text = (folder / f"rank{rank}.out.log").read_text(encoding="utf-8")
    return [record for record in map(parse_line, text.splitlines()) if record is not None]


def values(folder: Path, event: Event, rank: int = 0) -> list[dict[str, JsonValue]]:
    return [each.value for each in records(folder, rank) if each.event is event and isinstance(each.value, dict)]


def settings(**chosen: object) -> list[str]:
    return [word for key, value in chosen.items() for word in ("--set", f"{key}={value}")]


def run_nodes(folder: Path, nodes: int, **chosen: object) -> list[int]:
    """Exit codes of `nodes` launches of one rank each that form one job; node k's folder is folder/k."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = [
        "--nnodes",
        str(nodes),
        "--nproc_per_node",
        "1",
        "--master_addr",
        "127.0.0.1",
        "--master_port",
        str(port),
    ]
    with contextlib.ExitStack() as stack:
        running = [
            stack.enter_context(
                started(command(folder / str(k), [*options, "--node_rank", str(k)], [MODULE, *settings(**chosen)]))
            )
            for k in range(nodes)
        ]
        return [process.wait(timeout=120) for process in running]


def test_pairs_of_three_nodes_rest_in_turn_and_are_all_measured(tmp_path: Path) -> None:
    codes = run_nodes(tmp_path, 3, pattern="pairs", repeats=3, sizes="8,64K", iterations=3, warmup_iterations=1)
    assert codes == [0, 0, 0], exit_record(tmp_path / "0").failures
    steps = values(tmp_path / "0", Event.STEP_END)
    assert len(steps) == 3 * 3 * 2 == steps[0]["total_steps"]
    for rank in range(3):
        assert check_sequence(records(tmp_path / str(rank), rank)) == []
    met = []
    for step in steps:
        groups = step["groups"]
        assert isinstance(groups, list) and len(groups) == 1 and step["correct"] == "pass"
        group = groups[0]
        assert isinstance(group, dict) and group["world_size"] == 2 and group["ranks"] == group["node_ranks"]
        assert group["size_bytes"] == step["size_bytes"] and group["wrong_elements"] == 0
        met.append((step["repeat"], step["size_bytes"], str(group["ranks"])))
    assert len(set(met)) == 18
    found = analyse(steps, slow_percent=15)
    assert found is not None and len(found.groups) == 3 and found.groups[0].rate.n == 3
    summary = values(tmp_path / "0", Event.FINISHED)[0]
    assert summary["correct"] == "pass" and summary["answer"] == "; ".join(found.sentences)
    assert len((tmp_path / "0" / "network.csv").read_text().splitlines()) == 1 + 18
    assert not (tmp_path / "1" / "network.csv").exists()


def test_halves_of_two_nodes_measure_within_and_across(tmp_path: Path) -> None:
    codes = run_nodes(tmp_path, 2, pattern="halves", sizes="64K", iterations=2, warmup_iterations=0)
    assert codes == [0, 0]
    within, across = values(tmp_path / "0", Event.STEP_END)
    assert [len(step["groups"]) for step in (within, across)] == [2, 1]  # type: ignore[arg-type]
    summary = values(tmp_path / "1", Event.FINISHED, rank=1)[0]
    assert float(str(summary["bisection_GBps"])) > 0 and "set repeats = 3" in str(summary["answer"])


@pytest.mark.parametrize(
    ("tool", "chosen", "figure", "steps"),
    [
        ("all_gather_object_vs_all_reduce", {}, "object_over_tensor", ["all_gather", "all_reduce"]),
        ("all_gather_object_vs_all_gather", {}, "object_over_tensor", ["all_gather", "all_gather"]),
        ("all_reduce_latency_comp", {"sizes": 400_000}, "many_over_one", ["all_reduce", "all_reduce"]),
        ("all_reduce_bench", {"sizes": "64K,1M", "expected_link": 100.0}, "measured_over_expected", ["all_reduce"] * 2),
    ],
)
def test_a_tool_answers_its_question(
    tmp_path: Path, tool: str, chosen: dict[str, object], figure: str, steps: list[str]
) -> None:
    arguments = settings(tool=tool, iterations=5, warmup_iterations=1, **chosen)
    code, output = run(tmp_path, ["--nproc_per_node", "2"], [MODULE, *arguments])
    assert code == 0, output
    found = values(tmp_path, Event.STEP_END)
    assert [step["collective"] for step in found] == steps
    assert all(step["correct"] == "pass" for step in found)
    summary = values(tmp_path, Event.FINISHED)[0]
    assert float(str(summary[figure])) > 0
    log = (tmp_path / "rank0.out.log").read_text()
    assert all(f"# {sentence}" in log for sentence in str(summary["answer"]).split("; ")[:1])
    assert (tmp_path / "network.svg").exists() == (tool == "all_reduce_bench")
    if tool == "all_reduce_latency_comp":
        assert {step["size_bytes"] for step in found} == {400_000}
        assert "1000 of 0.0004 MB take" in str(summary["answer"])


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({"pattern": "pairs"}, "pattern 'pairs' needs 2 hosts or more, found 1"),
        ({"collective": "send_recv"}, "'send_recv' needs groups of 2 ranks or more; pattern 'all' makes one of 1 here"),
        ({"cuda_graph": "true"}, "cuda_graph = True needs backend nccl, this run has gloo"),
    ],
)
def test_what_cannot_run_here_is_refused(tmp_path: Path, chosen: dict[str, object], expected: str) -> None:
    code, _ = run(tmp_path, [], [MODULE, *settings(**chosen)])
    assert code == 2
    assert expected in exit_record(tmp_path).failures[0].message
