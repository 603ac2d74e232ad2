"""What a rank executes, without torch: the rows of the shipped cases, calls with their sizes, waiting, and room."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from common.charts.chart import Bars, Curves, Spans
from common.errors import InputProblems
from protocol.case_config import load_case_config, parse_override
from protocol.outcome import MeasuredCase, MeasuredRound, Picture, Table
from training.benchmarks.aicb.pytorch.config import Config
from training.benchmarks.aicb.pytorch.outcome import OUTCOME
from training.benchmarks.aicb.pytorch.running.assembly import fitting_scale, plan
from training.benchmarks.aicb.pytorch.source import stage_files, stage_workload
from training.benchmarks.aicb.pytorch.work import stream
from training.benchmarks.aicb.pytorch.work.calls import Caller
from training.benchmarks.aicb.pytorch.work.footprint import footprint
from training.benchmarks.aicb.pytorch.work.stage import StageWorkload
from training.benchmarks.aicb.pytorch.work.stream import stream_of
from workloads.commands import suite_rows as suite
from workloads.dialects.framework.rows import workload_rows
from workloads.formats.workload import Workload
from workloads.job.errors import AicbError
from workloads.job.groups import RankGroups
from workloads.rows.ops import EPOCH_END, CommGroup, CommType, LogItem
from workloads.rows.ranks import Ranks

VENDORS = Path(__file__).parents[5] / "vendors"
SUITE = sorted((VENDORS / "common" / "aicb-pytorch" / "config").glob("config_suite*.py"))


def stage(rows: list[LogItem], *, world_size: int = 4, pp: int = 1, number: int = 0) -> StageWorkload:
    """The workload of a stage of this job."""
    groups = RankGroups(world_size=world_size, pp=pp)
    return StageWorkload(Workload([*rows, EPOCH_END]), groups, number, number * (world_size // pp), "test.csv", "")


def caller(of: StageWorkload, rank: int = 0, scale: str = "1") -> Caller:
    return Caller(of, rank, of.groups.world_size, Fraction(scale))


@pytest.mark.parametrize("path", SUITE, ids=lambda path: path.stem)
def test_a_case_of_the_suite_executes_the_rows_that_the_verb_suite_writes(path: Path) -> None:
    """AICB's suite on 128 ranks: the same rows as `aicb suite` writes, but for ten iterations."""
    config = load_case_config(Config, path, {})
    row = suite.ROWS[int(path.stem.removeprefix("config_suite")[:2]) - 1]
    assert config.parameters(128) == replace(suite.parameters(row, 128, None, "aicb"), epoch_num=10)
    assert config.refusal(nnodes=16, nproc=8) is None


@pytest.mark.parametrize("name", ["all_reduce", "all_gather", "multi_all_reduce"])
def test_the_checks_of_collectives_go_to_8_gib(name: str) -> None:
    config = load_case_config(Config, SUITE[0].with_name(f"config_coll_{name}.py"), {})
    found = stage_workload(config, 0, 8, None)
    sizes = {item.msg_size for item in found.workload if item.is_communication}
    assert sizes == {4096 << power for power in range(22)}
    groups = {item.comm_group for item in found.workload if item.stage == "test_step"}
    assert groups == {CommGroup.pp_group if name == "multi_all_reduce" else CommGroup.dp_group}


def test_settings_that_break_a_rule_are_refused_before_a_host_is_touched() -> None:
    refusal = Config.model_validate({"tensor_model_parallel_size": 3}).refusal(nnodes=1, nproc=4)
    assert refusal is not None and "world_size" in refusal and "--break_rules" not in refusal


@pytest.mark.parametrize(
    ("size", "kind", "scale", "expected"),
    [
        (25952256.5, "all_to_all", "1", (25952260, "uint8")),
        (8192, "all_to_all", "1", (8192, "bfloat16")),
        (1, "all_reduce", "1", (1, "uint8")),
        (4096, "all_reduce", "1/64", (64, "bfloat16")),
        (10, "all_gather", "1", (12, "uint8")),
        (12, "barrier", "1", (0, "uint8")),
    ],
)
def test_sizes_follow_one_rule(size: float, kind: str, scale: str, expected: tuple[int, str]) -> None:
    row = LogItem(CommType[kind], CommGroup.dp_group, msg_size=size)
    call = caller(stage([row]), scale=scale).call(row)
    assert (call.bytes, call.dtype) == expected


def test_a_typed_size_has_whole_elements_for_each_rank() -> None:
    row = LogItem(CommType.reduce_scatter, CommGroup.dp_group, msg_size=100, dtype="float32", ranks=Ranks.of(range(4)))
    call = caller(stage([row])).call(row)
    assert (call.bytes, call.dtype, call.comm_type) == (112, "float32", CommType.reduce_scatter)


def test_groups_and_peers_follow_the_rank() -> None:
    row = LogItem(CommType.isend, CommGroup.pp_group, 1, 64, additional="send_next")
    of = stage([row], pp=2)
    assert [(tuple(caller(of, rank).call(row).ranks), caller(of, rank).call(row).peer) for rank in (0, 1)] == [
        ((0, 2), 2),
        ((1, 3), 3),
    ]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (LogItem(CommType.all_reduce, CommGroup.dp_group, 8, 64), "comm_group_size is 8, this job's dp_group has 4"),
        (LogItem(CommType.all_reduce, CommGroup.expert_tp_group, None, 64), "expert_tp_group has is not stated"),
        (LogItem(CommType.all_reduce, CommGroup.dp_group, None, -1), "msg_size is -1, not bytes"),
        (LogItem(CommType.isend, CommGroup.pp_group, None, 8), "additional is '', not send_next"),
        (LogItem(CommType.all_reduce, None, None, 8, ranks=Ranks.of([0, 9])), "ranks beyond the 4 of this run"),
        (LogItem(CommType.all_reduce, None, None, 8, dtype="int4", ranks=Ranks.of([0])), "dtype is 'int4'"),
        (LogItem(CommType.broadcast, CommGroup.dp_group, None, 8, src=7), "its root is place 7 of 4 ranks"),
        (
            LogItem(CommType.all_to_all_single, CommGroup.dp_group, None, 64, in_splits=(32, 32)),
            "in_splits has 2 shares for 4 ranks",
        ),
    ],
)
def test_a_row_that_cannot_be_called_is_named(row: LogItem, says: str) -> None:
    of = stage([row])
    with pytest.raises(AicbError, match=f"test.csv: row {row.comm_type.name}.*{says}"):
        stream_of(of, caller(of), blocking=True)


def test_sends_and_receives_of_megatron_go_in_batches() -> None:
    """A stage in the middle of 1F1B: the send and the receive to the same neighbour are issued before either ends."""
    config = Config.model_validate({
        "dialect": "framework", "pipeline_model_parallel": 4, "num_microbatches": 8, "hidden_size": 64, "num_layers": 4,
        "num_attention_heads": 4, "seq_length": 32,
    })  # fmt: skip
    found = stage_workload(config, 1, 4, None)
    epoch = stream_of(found, caller(found, 1), blocking=True).epochs[1]
    batched = [index for index, until in enumerate(epoch.until.tolist()) if until > index]
    kinds = [list(workload_rows(config.parameters(4), 1))[epoch.first + index].comm_type for index in batched]
    assert batched and set(kinds) == {CommType.isend}
    assert all(epoch.until[index] == index + 1 for index in batched)


def test_a_run_of_sends_and_receives_is_over_before_what_follows_it() -> None:
    """Where calls are waited for one by one, as AICB does, a send that overlaps more is waited for with its run."""
    sent = LogItem(CommType.isend, CommGroup.pp_group, None, 64, additional="send_next", overlap=2)
    got = LogItem(CommType.irecv, CommGroup.pp_group, None, 64, additional="recv_next", overlap=0)
    of = stage([sent, got, LogItem(CommType.all_reduce, CommGroup.dp_group, None, 64)], pp=2)
    assert stream_of(of, caller(of), blocking=True).epochs[0].until.tolist() == [1, 1, 2]
    assert stream_of(of, caller(of), blocking=False).epochs[0].until.tolist() == [2, 1, 2]


def test_a_workload_of_more_rows_than_can_be_logged_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    of = stage([LogItem(CommType.all_reduce, CommGroup.dp_group, None, 64)])
    monkeypatch.setattr(stream, "MOST_ROWS", 1)
    with pytest.raises(AicbError, match=r"test\.csv: has 2 rows; at most 1 can be run and logged"):
        stream_of(of, caller(of), blocking=True)


def test_issue_and_wait_come_from_the_overlap() -> None:
    rows = [LogItem(CommType.all_reduce, CommGroup.dp_group, None, 64, overlap=overlap) for overlap in (1, 0, -1, 0)]
    of = stage([*rows[:2], LogItem(CommType.computation), *rows[2:]])
    found = stream_of(of, caller(of), blocking=False)
    assert found.epochs[0].until.tolist() == [1, 1, 2, 4, 4]
    assert stream_of(of, caller(of), blocking=True).epochs[0].until.tolist() == [0, 1, 2, 3, 4]
    room = plan(found, [0 if call is None else 64 for call in found.calls])
    assert (room.bytes, room.offsets[0].tolist()) == (128, [0, 64, 0, 0, 64])


@pytest.mark.parametrize("name", ["megatron", "moe", "pipeline", "zero3"])
def test_the_controller_knows_the_least_memory_of_a_rank(name: str) -> None:
    """The arena of the stage that has the smallest; in the pipeline overlapping messages are beside it."""
    config = load_case_config(Config, VENDORS / "cpu" / "aicb-pytorch" / "config" / f"config_{name}.py", {})
    arenas = []
    for rank in range(4):
        found = stage_workload(config, rank, 4, None)
        stream = stream_of(found, caller(found, rank), blocking=True)
        totals = [0 if call is None else footprint(call, rank).total for call in stream.calls]
        arenas.append(plan(stream, totals).bytes)
    need = config.memory_need(nnodes=2, nproc=2)
    assert need is not None and need.bytes_per_rank == min(arenas)
    smaller = config.model_copy(update={"scale": "1/64"}).memory_need(nnodes=2, nproc=2)
    assert smaller is not None and smaller.bytes_per_rank <= need.bytes_per_rank // 60


def test_the_controller_knows_no_memory_of_files_on_the_hosts() -> None:
    assert Config.model_validate({"workload": "far.csv"}).memory_need(nnodes=1, nproc=4) is None
    assert Config.model_validate({"tensor_model_parallel_size": 3}).memory_need(nnodes=1, nproc=4) is None


@pytest.mark.parametrize(("text", "factor"), [("1", "1"), ("0.25", "1/4"), ("1/64", "1/64")])
def test_a_scale_is_given_as_a_number_or_a_fraction(text: str, factor: str) -> None:
    assert load_case_config(Config, None, dict([parse_override(f"scale={text}")])).factor == Fraction(factor)
    with pytest.raises(InputProblems, match="scale = True: expected text"):
        load_case_config(Config, None, {"scale": True})


def test_the_largest_scale_that_fits_is_named() -> None:
    assert fitting_scale(Fraction(1), 177 << 30, 3 << 30) == "1/64"
    assert fitting_scale(Fraction(1, 64), 100, 60) == "1/128"


def test_two_files_of_one_stage_are_refused(tmp_path: Path) -> None:
    for name in ("stage0.csv", "gpt.stage1.csv", "other.csv"):
        (tmp_path / name).write_text("")
    assert {number: path.name for number, path in stage_files(tmp_path).items()} == {
        0: "stage0.csv",
        1: "gpt.stage1.csv",
    }
    (tmp_path / "gpt.stage0.csv").write_text("")
    with pytest.raises(AicbError, match=r"gpt\.stage0\.csv and stage0\.csv are both of stage 0"):
        stage_files(tmp_path)


def test_the_report_shows_classes_iterations_and_the_scale() -> None:
    row = {"type": "all_reduce", "group": "tp_group", "ranks": 2, "bytes": 64, "count": 3, "total_ms": 1.5}
    metrics = {
        **{"scale": "1/64", "timing": "stream", "exposed_ms": 1.0, "hidden_ms": 2.0},
        "classes": [row | {"p50_ms": 0.5, "p99_ms": 0.6, "busbw_GBps": 0.1}, {"type": "hostile"}, 7],
        "slowest_iteration": {
            **{"iteration": 3, "ms": 4.0, "ranks": [0, 7]},
            "spans": {"all_reduce tp": [[0, 0.5, 1.0], [1, 2.0, 4.0], [2, 0.0, 1.0], ["x", 0, 1]], "evil": 7},
        },
        "critical_path": {"iteration": 1, "parts": [{"what": "program", "ms": 1.0, "percent": 100.0}, {"ms": "x"}]},
    }
    steps: list[dict[str, object]] = [{"step": 1, "iteration_ms": 4.0}, {"step": "x"}]
    measured = MeasuredRound(number=1, metrics=metrics, steps=steps, hosts={0: "a"})
    case = MeasuredCase(name="tiny", config={"units": "GiB", "frame": "Megatron"}, nnodes=1, nproc=2)
    blocks = OUTCOME.report(case, measured)
    assert [len(block.rows) for block in blocks if isinstance(block, Table)] == [1]
    bars = [block.chart.bars for block in blocks if isinstance(block, Picture) and isinstance(block.chart, Bars)]
    assert [[(bar.name, bar.value) for bar in each] for each in bars] == [
        [("all_reduce tp_group, 64", 1.5)], [("program", 1.0)]
    ]  # fmt: skip
    assert not any(isinstance(block, Picture) and isinstance(block.chart, Curves) for block in blocks)
    (drawn,) = [block.chart for block in blocks if isinstance(block, Picture) and isinstance(block.chart, Spans)]
    assert (drawn.rows, drawn.kinds) == (["rank 0", "rank 7"], ["all_reduce tp"])
    assert drawn.spans == [[(0, 0.5, 1.0), (1, 2.0, 4.0)]]
    several = replace(measured, steps=[*steps, {"step": 2, "iteration_ms": 5.0}])
    (curves,) = [
        block.chart for block in OUTCOME.report(case, several)
        if isinstance(block, Picture) and isinstance(block.chart, Curves)
    ]  # fmt: skip
    assert [(list(line.x), list(line.y)) for line in curves.panels[0].series if line.x is not None] == [
        ([1, 2], [4.0, 5.0])
    ]
    assert any("1/64" in getattr(block, "text", "") for block in blocks)
    assert OUTCOME.conditions(case) == {"frame": "Megatron", "nnodes": 1, "nproc": 2}
