"""Cluster patterns among several nodes, and the seed's tools, as their ranks log them."""

import contextlib
import io
import json
import os
import platform
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import JsonValue

from protocol.perflog import Event, PerfLogRecord, check_sequence, parse_line
from tests.training.benchmarks.claimed import contradictions, unnoticed
from tests.training.benchmarks.driver.launch.launching import command, exit_record, plain_processes, run, started
from tests.training.benchmarks.network.conftest import Ended
from tests.training.benchmarks.network.hosts.test_nccl_tests import TABLE, program
from tests.training.benchmarks.network.nccl_parsers import cloudai
from training.benchmarks.network.pytorch.outcome import OUTCOME
from training.benchmarks.network.slow_parts.analysis import analyse

MODULE = "training.benchmarks.network"
CASES = "tests.training.benchmarks.network.cases_workload"


def records(folder: Path, rank: int) -> list[PerfLogRecord]:
    text = (folder / f"rank{rank}.out.log").read_text(encoding="utf-8")
    return [record for record in map(parse_line, text.splitlines()) if record is not None]


def values(folder: Path, event: Event, rank: int = 0) -> list[dict[str, JsonValue]]:
    return [each.value for each in records(folder, rank) if each.event is event and isinstance(each.value, dict)]


def settings(**chosen: object) -> list[str]:
    return [word for key, value in chosen.items() for word in ("--set", f"{key}={value}")]


def run_nodes(folder: Path, nodes: int, **chosen: object) -> list[int]:
    """Exit codes of `nodes` launches of one rank each that form one job; node k's folder is folder/k."""
    options = [*plain_processes(), "--nnodes", str(nodes)]
    with contextlib.ExitStack() as stack:
        running = [
            stack.enter_context(
                started(command(folder / str(k), [*options, "--node_rank", str(k)], [MODULE, *settings(**chosen)]))
            )
            for k in range(nodes)
        ]
        return [process.wait(timeout=200) for process in running]


@pytest.mark.nightly
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
    assert {metric.name for metric in OUTCOME.metrics({"pattern": "pairs"})} <= summary.keys()
    assert contradictions(tmp_path / "0", "network", 1) == []
    assert "noise_percent" not in unnoticed(tmp_path / "0", "network", 1)
    lies: dict[str, list[Any]] = {
        "findings": [{"part": "host", "hosts": ["a"]}],
        "remarks": ["all is well"],
        "not_judged": ["n1"],
    }
    for name, lie in lies.items():
        (said,) = contradictions(tmp_path / "0", "network", 1, **{name: lie})
        assert said.startswith(f"{name}[0] is {lie[0]!r}") and said.endswith("nothing by the rows of its log"), said
    assert len((tmp_path / "0" / "network.csv").read_text().splitlines()) == 1 + 18
    assert float(str(values(tmp_path / "0", Event.TRAIN_START)[0]["predicted_s"])) > 0
    assert not (tmp_path / "1" / "network.csv").exists()


def test_pairs_on_rails_name_the_rail_read_the_topology_and_send_both_ways(tmp_path: Path) -> None:
    table = tmp_path / "racks.csv"
    table.write_text(f"host,rack\n{platform.node()}#0,a\n{platform.node()}#1,b\n")
    chosen: dict[str, object] = {"pattern": "rail_pairs", "sizes": "8", "iterations": 2, "warmup_iterations": 0}
    one_way: dict[str, object] = {"collective": "send_recv", "topology": table}
    assert run_nodes(tmp_path / "good", 2, **chosen, **one_way) == [0, 0]
    steps = values(tmp_path / "good" / "0", Event.STEP_END)
    groups = [group for step in steps for group in cast("list[dict[str, JsonValue]]", step["groups"])]
    for group, order in zip(groups, ([0, 1], [1, 0]), strict=True):
        name = "-".join(f"{platform.node()}#{rank}" for rank in order)
        assert (group["rail"], group["ranks"], group["node_ranks"]) == (0, [0, 1], order)
        assert (group["group"], group["correct"]) == (f"{name} rail 0", "pass")
    assert [step["round"] for step in steps] == ["pairs 1", "pairs 1, back"]


def test_pairs_on_rails_refuse_a_topology_without_their_hosts(tmp_path: Path) -> None:
    table = tmp_path / "racks.csv"
    table.write_text("host,rack\nelsewhere,a\n")
    assert run_nodes(tmp_path / "bad", 2, pattern="rail_pairs", sizes="8", topology=table) == [2, 2]
    errors = (tmp_path / "bad" / "0" / "rank0.out.log").read_text()
    assert f"topology {table}: lacks {platform.node()}#0" in errors and "Traceback" not in errors


@pytest.mark.nightly
def test_halves_of_two_nodes_measure_within_and_across(tmp_path: Path) -> None:
    codes = run_nodes(tmp_path, 2, pattern="halves", sizes="64K", iterations=2, warmup_iterations=0)
    assert codes == [0, 0]
    within, across = values(tmp_path / "0", Event.STEP_END)
    assert [len(step["groups"]) for step in (within, across)] == [2, 1]  # type: ignore[arg-type]
    summary = values(tmp_path / "0", Event.FINISHED)[0]
    assert {metric.name for metric in OUTCOME.metrics({"pattern": "halves"})} <= summary.keys()
    assert contradictions(tmp_path / "0", "network", 1) == []
    assert "bisection_GBps" not in unnoticed(tmp_path / "0", "network", 1)
    assert float(str(summary["bisection_GBps"])) > 0 and "set repeats = 3" in str(summary["answer"])


@dataclass(frozen=True)
class Tool:
    """A question: its settings, the figure that answers it, and the collective of each step."""

    name: str
    chosen: dict[str, object]
    figure: str
    steps: list[str]


TOOLS = [
    Tool("all_gather_object_vs_all_reduce", {}, "object_over_tensor", ["all_gather", "all_reduce"]),
    Tool("all_gather_object_vs_all_gather", {}, "object_over_tensor", ["all_gather", "all_gather"]),
    Tool("all_reduce_latency_comp", {"sizes": 400_000, "dtype": "uint32"}, "many_over_one", ["all_reduce"] * 2),
    Tool("all_reduce_bench", {"sizes": "64K,1M", "expected_link": 100.0}, "measured_over_expected", ["all_reduce"] * 2),
]


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All tools by the same two ranks, each in a folder of its name."""
    folder = tmp_path_factory.mktemp("tools")
    cases = {
        str(folder / tool.name): settings(tool=tool.name, iterations=3, warmup_iterations=1, **tool.chosen)
        for tool in TOOLS
    }
    built = program(folder / "build", results=TABLE).parent
    cases[str(folder / "nccl_tests")] = settings(tool="nccl_tests", sizes="1K, 2K", iterations=2, nccl_tests=built)
    code, output = run(folder, plain_processes(2), [CASES, json.dumps(cases)])
    assert code == 0, output + (folder / "rank0.out.log").read_text()
    return folder


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_a_tool_answers_its_question(answered: Path, tool: Tool) -> None:
    folder = answered / tool.name
    found = values(folder, Event.STEP_END)
    assert [step["collective"] for step in found] == tool.steps
    assert all(step["correct"] == "pass" for step in found)
    assert check_sequence(records(folder, 1)) == []
    assert contradictions(folder, "network", 2) == []
    assert contradictions(folder, "network", 2, **{tool.figure: 1e9})
    summary = values(folder, Event.FINISHED)[0]
    assert float(str(summary[tool.figure])) > 0
    settings = values(folder, Event.SUBMIT_INFO)[0]["config"]
    assert isinstance(settings, dict)
    assert {metric.name for metric in OUTCOME.metrics(settings)} <= summary.keys()
    log = (folder / "rank0.out.log").read_text()
    assert all(f"# {sentence}" in log for sentence in str(summary["answer"]).split("; ")[:1])
    assert (folder / "network.html").exists() == (tool.name == "all_reduce_bench")
    if tool.name == "all_reduce_latency_comp":
        assert {step["size_bytes"] for step in found} == {400_000}
        assert "1000 of 0.0004 MB take" in str(summary["answer"])
    if tool.name == "all_reduce_bench":
        theirs = max(cast("dict[str, float]", step["original_timing"])["busbw_GBps"] for step in found)
        assert summary["original_max_busbw_GBps"] == theirs > 0
        assert f"# as the original takes it, the best busbw is {theirs:.4g} GB/s" in log


def test_ours_stands_beside_nccl_tests(answered: Path) -> None:
    """The first of two ranks runs the program."""
    log = (answered / "nccl_tests" / "rank0.out.log").read_text()
    assert "# 1K: ours " in log and "nccl-tests 11.21 us, 0.16 GB/s: " in log
    assert "# 2K: nccl-tests did not measure it" in log
    assert re.search(r'"ours_over_nccl_tests": {"1K": [0-9.e-]+}', log)


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({"pattern": "pairs"}, "pattern 'pairs' needs 2 hosts or more, found 1"),
        ({"collective": "send_recv"}, "'send_recv' needs groups of 2 ranks or more; pattern 'all' makes one of 1 here"),
        ({"cuda_graph": "true"}, "cuda_graph = True needs a device with graphs, this run has cpu"),
        ({"sizes": "1048576G"}, r"1048576G does not fit: .* lower the end of sizes"),
        ({"dtype": "float8_e5m2"}, "gloo cannot add 8-bit floating point"),
        ({"tool": "all_reduce_latency_comp", "dtype": "float8_e5m2", "sizes": "4K"}, "gloo cannot add 8-bit floating"),
        ({"dtype": "int8", "op": "avg"}, "gloo takes no mean of integers"),
        ({"tool": "nccl_tests", "nccl_tests": "/nowhere"}, "all_reduce_perf is not in /nowhere"),
    ],
)
def test_what_cannot_run_here_is_refused(
    run_alone: Callable[..., Ended], chosen: dict[str, object], expected: str
) -> None:
    ended = run_alone(backend="gloo", **chosen)
    assert ended.code == 2
    assert re.search(expected, ended.errors)
    assert Event.FINISHED not in {record.event for record in map(parse_line, ended.output.splitlines()) if record}


def test_a_size_that_does_not_fit_is_skipped_with_its_reason(run_alone: Callable[..., Ended]) -> None:
    ended = run_alone(backend="gloo", sizes="8, 1048576G", iterations=1)
    assert ended.code == 0, ended.errors
    found = [record for record in map(parse_line, ended.output.splitlines()) if record is not None]
    assert [record.event for record in found].count(Event.STEP_END) == 1
    (summary,) = [record.value for record in found if record.event is Event.FINISHED]
    assert isinstance(summary, dict) and isinstance(summary["skipped_sizes"], dict)
    assert re.fullmatch(r"[0-9.]+ GB a rank are needed, [0-9.]+ GB are free", str(summary["skipped_sizes"]["1048576G"]))
    assert "# 1048576G is skipped: " in ended.output


def test_every_variant_is_a_step_of_its_own(run_alone: Callable[..., Ended]) -> None:
    chosen = {"collective": "all_gather", "in_place": "both", "after_compute_ms": 1, "timing": "nccl-tests"}
    ended = run_alone(backend="gloo", sizes="64", iterations=2, aggregate=3, **chosen)
    assert ended.code == 0, ended.errors
    found = [record.value for record in map(parse_line, ended.output.splitlines()) if record]
    steps = [value for value in found if isinstance(value, dict) and "time_us" in value]
    assert [(step["in_place"], step.get("after_compute_ms")) for step in steps] == [
        (False, None),
        (True, None),
        (False, 1),
        (True, 1),
    ]
    assert all(step["aggregate"] == 3 and step["correct"] == "pass" for step in steps)
    assert ["nccl_tests_timing" in step for step in steps] == [True, True, False, False]
    assert float(str(steps[2]["last_rank_us"])) > 0 and isinstance(steps[2]["added_us"], float)
    assert ended.output.count("# after 1 ms of compute") == 1, "both forms share a line"
    ((size, figures),) = cloudai(ended.output)
    (out, inside) = (cast("dict[str, float]", step["nccl_tests_timing"]) for step in steps[:2])
    assert (size, figures[0], figures[3]) == (64, round(out["time_us"], 2), round(inside["time_us"], 2))


def test_all_roots_and_an_operation(run_alone: Callable[..., Ended]) -> None:
    ended = run_alone(backend="gloo", sizes="64", iterations=2, collective="reduce", root="all", op="max")
    assert ended.code == 0, ended.errors
    assert '"op": "max", "root": 0' in ended.output
    assert re.search(r"^ +64 +16 +float +max +0 ", ended.output, re.MULTILINE)


def test_one_rank_and_data_that_is_not_checked(run_alone: Callable[..., Ended], tmp_path: Path) -> None:
    chosen = {"tool": "all_reduce_bench", "sizes": "64K", "check": "false", "dtype": "bfloat16"}
    ended = run_alone("--", "--output_dir", str(tmp_path / "by" / "hand"), backend="gloo", **chosen)
    assert ended.code == 0, ended.errors
    left = sorted(path.name for path in (tmp_path / "by" / "hand").iterdir())
    assert left == ["network.csv", "network.html", "network.jsonl"]
    found = [record for record in map(parse_line, ended.output.splitlines()) if record is not None]
    (step,) = [record.value for record in found if record.event is Event.STEP_END]
    assert isinstance(step, dict)
    assert (step["correct"], step["wrong_elements"], step["world_size"]) == ("not_checked", None, 1)
    assert step["checked_iterations"] == 0
    assert step["busbw_GBps"] == 0 and float(str(step["algbw_GBps"])) > 0
    (summary,) = [record.value for record in found if record.event is Event.FINISHED]
    assert isinstance(summary, dict) and summary["correct"] == "not_checked"


def test_a_folder_that_cannot_be_made_is_refused(run_alone: Callable[..., Ended], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ended = run_alone("--output_dir", str(tmp_path / "file" / "folder"), backend="gloo")
    assert ended.code == 2 and "--output_dir" in ended.errors and "cannot be made" in ended.errors
    assert not ended.output


def test_each_line_of_the_table_is_one_write(
    run_alone: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By hand all ranks share one stdout, unbuffered under torchrun: another's PerfLog must not land inside a row."""
    written: list[bytes] = []
    write = os.write

    with (tmp_path / "out").open("wb", buffering=0) as raw, io.TextIOWrapper(raw, write_through=True) as stdout:
        own = raw.fileno()

        def record(descriptor: int, data: bytes) -> int:
            if descriptor == own:
                written.append(bytes(data))
            return write(descriptor, data)

        monkeypatch.setattr("sys.stdout", stdout)
        monkeypatch.setattr("os.write", record)
        assert run_alone(backend="gloo", sizes="64K,128K", iterations=1).code == 0
    whole = (tmp_path / "out").read_bytes()
    assert b"        65536 " in whole and b"Avg bus bandwidth" in whole
    assert all(data.endswith(b"\n") for data in written if data[:1] in b" #") and b"".join(written) == whole
