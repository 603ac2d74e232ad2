"""Workloads on four gloo ranks: what reaches the process groups is what the workload says, op for op, rank for rank."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

from protocol import pulse
from protocol.perflog import Event, check_sequence, parse_line
from tests.training.benchmarks.claimed import contradictions
from tests.training.benchmarks.driver.launch.launching import ROOT, plain_processes, run
from training.benchmarks.aicb.pytorch.running.assembly import Arena, Assembled
from training.benchmarks.aicb.pytorch.running.execution import EpochSteps, Step
from training.benchmarks.aicb.pytorch.running.iterating import Progress
from training.benchmarks.aicb.pytorch.suite import ClockOffset, joined
from training.benchmarks.aicb.pytorch.work.calls import Caller
from training.benchmarks.aicb.pytorch.work.stage import StageWorkload
from training.benchmarks.aicb.pytorch.work.stream import stream_of
from workloads.formats.workload import Workload
from workloads.job.groups import RankGroups
from workloads.oplog import file as oplog
from workloads.oplog.recorder import OpRecorder
from workloads.rows.ops import EPOCH_END, CommGroup, CommType, LogItem
from workloads.rows.ranks import Ranks

WORKLOAD = "tests.training.benchmarks.aicb.pytorch.executing_workload"
RANKS = 4
TINY = {
    "dialect": "aicb",
    **{"hidden_size": 64, "num_layers": 4, "num_attention_heads": 4, "seq_length": 32, "vocab_size": 256},
}
TP, PP2, PP4 = {"tensor_model_parallel_size": 2}, {"pipeline_model_parallel": 2}, {"pipeline_model_parallel": 4}
SP = {**TP, "enable_sequence_parallel": True}
EXPERTS = {"moe_enable": True, "num_experts": 4, "moe_router_topk": 2, "moe_grouped_gemm": True}
ZERO, REAL = {"frame": "DeepSpeed"}, {"dialect": "framework"}
RUN: dict[str, dict[str, object]] = {
    "tensor parallel": {**TP, "epoch_num": 2},
    "sequence parallel, distributed optimizer": {**SP, "use_distributed_optimizer": True},
    "pipeline": {**TP, **PP2, "num_microbatches": 4},
    "experts": {**SP, **EXPERTS, "expert_model_parallel_size": 2},
    "DeepSeek": {
        **{**EXPERTS, "frame": "DeepSeek", "expert_model_parallel_size": 2, "enable_sequence_parallel": True},
        **{"moe_router_topk": 3, "n_dense_layers": 1, "hidden_size": 72, "seq_length": 30},
    },
    "ZeRO 1": {**ZERO, "stage": 1},
    "ZeRO 2": {**ZERO, "stage": 2, "contiguous_gradients": True, "reduce_bucket_size": 20000},
    "ZeRO 3": {**ZERO, "stage": 3, "epoch_num": 2},
    "collective test": {"frame": "collective_test", "test_comm": "all_to_all", "iter_num": 2, "end_size": 1 << 21},
    "Megatron-core's pipeline": {**REAL, **PP4, "num_microbatches": 8, "timing": "stream"},
    "Megatron-core's interleaved pipeline": {**REAL, **PP2, "virtual_pipeline": 2, "num_microbatches": 4},
    "batches as NCCL takes them": {**REAL, **PP2, "virtual_pipeline": 2, "num_microbatches": 4, "in_batches": True},
    "Megatron-core's experts, uneven": {
        **{**REAL, **SP, **EXPERTS, "expert_model_parallel_size": 4, "expert_tensor_parallel_size": 1},
        "routing": "zipf:1.2",
    },
    "FSDP2": {**REAL, "frame": "FSDP2", "timing": "stream"},
    "every collective": {"workload": "every.csv"},
    "every collective, smaller": {"workload": "every.csv", "scale": "1/7"},
    "overlapping": {"workload": "overlapping.csv", "timing": "stream"},
    "replay": {**TP, "computation_enable": True, "timing": "replay"},
    "hidden by computation": {"workload": "hidden.csv", "timing": "replay"},
}
APART = {"overlapping": 3 * 8192, "hidden by computation": 2 * 8192}
"""Bytes of the buffer where calls overlap: so many are under way at once, at most."""
ONE_BY_ONE = [name for name in RUN if name not in APART and "scale" not in RUN[name]]
SPOILT = {f"spoilt {name}": {**RUN[name], "spoilt": True} for name in ("every collective", "tensor parallel")}
REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "ranks without experts": (
        {"workload": "experts.csv", "expert_model_parallel_size": 3},
        r"experts\.csv: ep 3 does not divide the data-parallel size 4: ranks would belong to no group \(ranks 0, 1, 2",
    ),
    "another number of ranks": (
        {"workload": "eight.csv"},
        r"eight\.csv: is for 8 ranks \(tp 1, dp 8, pp 1\), this run has 4",
    ),
    "no such file": ({"workload": "absent.csv"}, r"absent\.csv: No such file"),
    "a stage without a file": ({"stages": "stages"}, r"stages: lacks stage1\.csv; the job has 2 pipeline stages"),
    "stages that do not fit": (
        {"stages": "unfit"},
        r"one another indefinitely: pp_group 0:2:2: rank 0 sends, rank 2 receives: 2 calls on rank 0 and 1 calls",
    ),
    "stages that both receive first": (
        {"stages": "receiving"},
        r"one another indefinitely: rank 0 waits in pp_group 0:2:2: rank 2 sends, rank 0 receives \(its call 1\)",
    ),
    "too large": (
        {**TINY, "hidden_size": 1 << 22, "seq_length": 1 << 12},
        r"the workload needs [\d.]+ GB on rank 0, [\d.]+ GB a rank are free; --set scale=1/\d+ fits",
    ),
    "a replay without computation": (
        {"workload": "overlapping.csv", "timing": "replay"},
        r"timing = 'replay' needs rows of computation, and there are none",
    ),
    "unlike counts": (
        {"workload": "pipeline.csv", "pipeline_model_parallel": 2},
        r"pipeline\.csv: is the workload of pipeline stage 0 of 2; set stages to a folder with stage0\.csv to stage1",
    ),
}


def rows(kind: str, size: float, **more: Any) -> LogItem:
    return LogItem(CommType[kind], more.pop("group", CommGroup.dp_group), msg_size=size, stage="test", **more)


def write_files(folder: Path) -> None:
    """The workloads that the cases name."""
    alone = (CommType.isend, CommType.irecv, CommType.computation, CommType.epoch_end)
    rooted = (CommType.broadcast, CommType.reduce, CommType.gather, CommType.scatter)
    sizes = ((0, None), (1, None), (1001.5, None), (4096, None), (4096, "float32"), (4096, "bool"))
    everything = [
        rows(kind.name, size, dtype=dtype, ranks=Ranks.of(range(RANKS)) if dtype else None, peer=root)
        for kind in CommType
        if kind not in alone
        for root in ([2] if kind in rooted else [None])
        for size, dtype in sizes
    ]
    uneven = rows("all_to_all_single", 64, dtype="float32", in_splits=(0, 16, 32, 16), ranks=Ranks.of(range(RANKS)))
    Workload([EPOCH_END, *everything, uneven, uneven, EPOCH_END]).save(folder / "every.csv")
    late = [rows("all_reduce", 8192, overlap=overlap) for overlap in (2, 0, 3, -1, 0, 0)]
    Workload([EPOCH_END, *late, EPOCH_END]).save(folder / "overlapping.csv")
    work = LogItem(CommType.computation, stage="test", elapsed_time=20_000_000)
    Workload([EPOCH_END, late[0], work, late[1], late[1], work, EPOCH_END]).save(folder / "hidden.csv")
    exchange = rows("all_to_all", 1024, group=CommGroup.ep_group)
    Workload([EPOCH_END, exchange, EPOCH_END]).save(folder / "experts.csv")
    eight = rows("all_reduce", 8, comm_group_size=8)
    Workload([EPOCH_END, eight, EPOCH_END]).save(folder / "eight.csv")
    sent = rows("isend", 64, group=CommGroup.pp_group, additional="send_next")
    got = rows("irecv", 64, group=CommGroup.pp_group, additional="recv_prev")
    known = rows("all_reduce", 8, group=CommGroup.pp_group, comm_group_size=2)
    back, returned = (replace(row, additional=way) for row, way in ((sent, "send_prev"), (got, "recv_next")))
    receiving = ("receiving", [returned, sent], [got, back])
    for name, first, second in (("stages", [sent], None), ("unfit", [sent, sent], [got]), receiving):
        (folder / name).mkdir()
        Workload([EPOCH_END, known, *first, EPOCH_END]).save(folder / name / "stage0.csv")
        if second is not None:
            Workload([EPOCH_END, known, *second, EPOCH_END]).save(folder / name / "stage1.csv")
    Workload([EPOCH_END, sent, EPOCH_END]).save(folder / "pipeline.csv")


def executed(folder: Path, cases: dict[str, dict[str, object]], ranks: int) -> list[dict[str, Any]]:
    """What each rank found in each case, by rank; one start for all."""
    (folder / "cases.json").write_text(json.dumps(cases))
    argv = [sys.executable, "-m", WORKLOAD, str(folder / "cases.json"), str(ranks)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(ranks)]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Every case on four ranks."""
    folder = tmp_path_factory.mktemp("executed")
    write_files(folder)
    cases = {name: settings if "workload" in settings else {**TINY, **settings} for name, settings in RUN.items()}
    cases |= {name: {**TINY, **settings} for name, settings in SPOILT.items()}
    return executed(folder, cases | {name: settings for name, (settings, _) in REFUSED.items()}, RANKS)


@pytest.mark.parametrize("name", RUN)
def test_what_is_sent_is_what_the_workload_says(results: list[dict[str, Any]], name: str) -> None:
    for rank, found in enumerate(results):
        case = found[name]
        assert case.get("refused") is None and case["wrong"] == [], (rank, case)
        assert case["found"] == [] or "scale" in RUN[name], (rank, case)
        assert case["calls"] > 0 and case["recorded"] == case["calls"] + case["epochs"] + len(case["computed_ns"])


@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_the_arena_is_as_large_as_the_largest_call(results: list[dict[str, Any]], name: str) -> None:
    """Batches of sends and receives need room side by side; they are never the largest here."""
    for found in results:
        assert found[name]["arena"] == found[name]["largest"]


@pytest.mark.parametrize("name", APART)
def test_overlapping_calls_lie_apart(results: list[dict[str, Any]], name: str) -> None:
    assert {found[name]["arena"] for found in results} == {APART[name]}


def test_a_replay_computes_between_the_calls(results: list[dict[str, Any]]) -> None:
    """Each of two computations lasts its 20 ms; no call is waited for longer than it lasts."""
    for found in results:
        computed, exposed_is_part = (
            found["hidden by computation"]["computed_ns"],
            found["hidden by computation"]["part"],
        )
        assert len(computed) == 2 and min(computed) >= 20_000_000 and exposed_is_part
        assert len(found["replay"]["computed_ns"]) > 10


def test_a_scale_shrinks_what_is_sent(results: list[dict[str, Any]]) -> None:
    whole, small = (results[0][name]["bytes"] for name in ("every collective", "every collective, smaller"))
    assert whole / 8 < small < whole / 6


@pytest.mark.parametrize("name", SPOILT)
def test_a_wrong_element_is_seen(results: list[dict[str, Any]], name: str) -> None:
    assert any("elements" in text for found in results for text in found[name]["wrong"])
    if name == "spoilt every collective":
        seen = {text.split()[0] for found in results for text in found[name]["wrong"]}
        assert seen >= {"all_reduce", "all_gather", "all_gather_into_tensor", "reduce", "reduce_scatter_tensor"}
        assert seen >= {"gather", "all_to_all", "all_to_all_single", "reduce_scatter"}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_run_is_refused_on_every_rank_alike(results: list[dict[str, Any]], name: str) -> None:
    said = {found[name].get("refused") for found in results}
    assert len(said) == 1
    text = str(said.pop())
    assert re.search(REFUSED[name][1], text), text


def test_a_case_as_the_controller_runs_it(tmp_path: Path) -> None:
    config = Path("vendors/cpu/aicb-pytorch/config/config_pipeline.py")
    options = ["--config_file", str(config), "--vendor", "cpu", "--set", "print_ops=true"]
    code, output = run(tmp_path, plain_processes(2), ["training.benchmarks.aicb.pytorch", *options])
    log = (tmp_path / "rank0.out.log").read_text()
    assert code == 0, output + log[-2000:]
    records = [record for record in map(parse_line, log.splitlines()) if record is not None]
    assert check_sequence(records) == []
    value = next(record.value for record in records if record.event is Event.FINISHED)
    assert isinstance(value, dict)
    assert value["correct"] == "pass" and value["iterations"] == 5 and value["timing"] == "stream"
    assert isinstance(value["classes"], list) and value["classes"]
    path = value["critical_path"]
    assert isinstance(path, dict) and isinstance(path["parts"], list)
    parts: Any = path["parts"]
    assert "program" in {part["what"] for part in parts}
    assert abs(sum(part["percent"] for part in parts) - 100) < 1e-6
    assert "comm op: CommType.isend | comm group: CommGroup.pp_group" in log
    found = oplog.read_folder(tmp_path)
    assert [each.facts.stage for each in found] == [0, 1]
    for each in found:
        assert np.all(each.done_ns >= each.issue_ns) and each.facts.clock_error_ns < 10**9
        kinds = [item.comm_type for item in each.workload]
        assert [kinds[op] for op in each.op[-1:]] == [CommType.epoch_end]
    assert (tmp_path / "workload_log.csv").is_file()
    assert contradictions(tmp_path, "aicb", 2) == []
    own: list[Any] = [each.value for each in records if each.event is Event.STEP_END]
    least, most = (function(value["iteration_ms"] for value in own) for function in (min, max))
    lies = {"iterations": 6, "init_ms": 1e9, "e2e_time": 0.01, "iteration_max_ms": most / 2}
    lies |= {f"iteration_{name}_ms": least / 2 for name in ("min", "mean", "p50", "p90", "p99")}
    lies |= {name: 2 * float(str(value[name])) + 1 for name in ("exposed_ms", "hidden_ms")}
    lies |= {"max_busbw_GBps": 1e9}
    for name, lie in lies.items():
        (said,) = contradictions(tmp_path, "aicb", 2, **{name: lie})
        assert said.startswith(f"{name} is ") and " by FINISHED, " in said, said
    one, *others = cast("list[dict[str, Any]]", value["classes"])
    for name in ("count", "total_ms", "p50_ms", "p99_ms", "busbw_GBps"):
        said, *_ = contradictions(tmp_path, "aicb", 2, classes=[{**one, name: 100 * one[name] + 1}, *others])
        assert f": {name} is " in said and said.startswith(f"{one['type']} {one['group']} {one['ranks']} "), said
    (said,) = contradictions(tmp_path, "aicb", 2, classes=[{**one, "bytes": 3}, *others])
    assert said.endswith(" 3 by FINISHED, no such ones by the iterations in its log"), said
    (said,) = contradictions(tmp_path, "aicb", 2, classes=[])
    assert said.startswith("classes are none by FINISHED, "), said
    slowest: Any = value["slowest_iteration"]
    assert slowest["ranks"] == [0, 1] and slowest["ms"] >= 0.9 * float(str(value["iteration_max_ms"]))
    of = [(each, each.iteration == slowest["iteration"]) for each in found]
    begin = min(int(each.on_rank_0(each.issue_ns)[chosen].min()) for each, chosen in of)
    spans = [span for each in slowest["spans"].values() for span in each]
    assert all(0 <= start < stop <= slowest["ms"] + 1e-3 for _, start, stop in spans)
    for rank, (each, chosen) in enumerate(of):
        kept = np.flatnonzero(chosen & (each.op != each.op[chosen][-1]))  # without the row that ends it
        longest = kept[np.argmax(each.duration_ns[kept])]
        issue, done = (float(each.on_rank_0(column)[longest] - begin) / 1e6 for column in (each.issue_ns, each.done_ns))
        assert any(row == rank and start <= (issue + done) / 2 <= stop for row, start, stop in spans), rank


class Waiting:
    """A runner whose program waits for a row, or for none."""

    def __init__(self, position: int | None) -> None:
        self._position = position

    def waits_for(self) -> int | None:
        return self._position


@pytest.mark.nightly
def test_a_wrong_element_is_exit_code_1(tmp_path: Path) -> None:
    spoilt = "tests.training.benchmarks.aicb.pytorch.spoilt_workload"
    options = ["--vendor", "cpu", "--set", "dialect=aicb", "--set", "frame=collective_test", "--set", "iter_num=1"]
    code, _ = run(
        tmp_path, plain_processes(2), [spoilt, *options, "--set", "begin_size=4096", "--set", "end_size=4096"]
    )
    log = (tmp_path / "rank0.out.log").read_text()
    assert code == 1, log[-2000:]
    finished = [line for line in log.splitlines() if "FINISHED" in line]
    assert len(finished) == 1 and '"correct": "fail"' in finished[0]
    assert "aicb: wrong data was received: rank 0: all_reduce dp, 4096 bytes: 1 of 2048 elements" in log


@pytest.mark.nightly
def test_eight_ranks_send_what_the_workloads_say(tmp_path: Path) -> None:
    generated = {name: {**TINY, **settings} for name, settings in RUN.items() if "workload" not in settings}
    for rank, found in enumerate(executed(tmp_path, generated, 8)):
        for name, case in found.items():
            assert case.get("refused") is None and case["found"] == [] and case["wrong"] == [], (rank, name, case)


def test_the_operation_in_which_a_rank_waits_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The words of the verdict: `rank 3 on host waits in op 1,204 all_gather_into_tensor tp, forward.layer7`."""
    row = LogItem(CommType.all_gather, CommGroup.tp_group, 4, 64, "forward.layer7")
    of = StageWorkload(Workload([EPOCH_END, *([row] * 2000), EPOCH_END]), RankGroups(world_size=4, tp=4), 0, 0, "x", "")
    stream = stream_of(of, Caller(of, 3, 4, Fraction(1)), blocking=True)
    run = Assembled(stream, {}, torch.zeros(0), Arena(0, []), 3)
    steps = EpochSteps([Step(1 + place, lambda: None, True, None) for place in range(2000)], 2001)
    recorder = OpRecorder(2000)
    progress = Progress(Waiting(None), recorder, run)  # type: ignore[arg-type] # what it asks of a runner
    progress.begin(1, steps)
    recorder.count = 1203
    said = "op 1,204 all_gather_into_tensor tp, forward.layer7"
    assert progress.words("all_gather_into_tensor") == said
    assert progress.words(None) is None
    # The host waits for a device in functions that are not torch.distributed's.
    device = Progress(Waiting(None), recorder, run, is_device=True)  # type: ignore[arg-type] # as above
    recorder.count = 0
    device.begin(1, steps)
    recorder.count = 1203
    assert device.words(None) == said
    waits = Progress(Waiting(1204), recorder, run)  # type: ignore[arg-type] # as above
    waits.begin(1, steps)
    assert waits.words(None) == said
    monkeypatch.setattr(pulse, "where_it_waits", lambda frame: "all_gather_into_tensor")
    pulse.describe(progress.words)
    try:
        assert pulse._described(0) == said
        pulse.describe(lambda waits_in: str(1 // 0))
        assert pulse._described(0) == "all_gather_into_tensor"
    finally:
        pulse.describe(None)
    assert pulse._described(0) == "all_gather_into_tensor"


def test_a_clock_that_drifts_has_a_larger_error() -> None:
    found = joined(ClockOffset(1000, 50), ClockOffset(1100, 20))
    assert (found.offset_ns, found.error_ns) == (1050, 100)
