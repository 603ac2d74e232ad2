"""Tests ZeRO in the dialect `framework` beyond what was recorded: long jobs, defaults, refusals."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workloads import options
from workloads.cli import main
from workloads.dialects.framework import periodic, zero3
from workloads.dialects.framework.rows import rank_of
from workloads.dialects.framework.zero3 import Zero3Rank
from workloads.library import CommType, ParameterError, WorkloadArgs, generate
from workloads.rows.blocks import Block
from workloads.rows.calls import Call

ZERO: dict[str, Any] = {
    "frame": "DeepSpeed", "world_size": 8, "num_layers": 3, "hidden_size": 64, "num_attention_heads": 4,
    "vocab_size": 2000, "seq_length": 16, "global_batch": 8,
}  # fmt: skip


def without_turns(
    count: int, state: periodic.State, run: Callable[[periodic.State], tuple[Block[Call], periodic.State]]
) -> tuple[periodic.Periodic, periodic.State]:
    """What `in_turns` says, one after the other."""
    blocks = []
    for _ in range(count):
        block, state = run(state)
        blocks.append(block)
    return periodic.Periodic(head=tuple(blocks)), state


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"prefetch_bucket_size": 60_000, "param_persistence_threshold": 0},
        {"max_reuse_distance": 150_000, "activation_recompute": "full", "prefetch_bucket_size": 50_000},
        {"max_live_parameters": 90_000, "max_reuse_distance": 30_000, "swiglu": True, "untie_embeddings": True},
    ],
)
def test_a_long_job_repeats_what_it_would_say_in_full(values: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    args = WorkloadArgs(**{**ZERO, "global_batch": 8 * 9, "epoch_num": 5, **values})
    short = generate(args, dialect="framework")
    monkeypatch.setattr(zero3, "in_turns", without_turns)
    assert list(generate(args, dialect="framework")) == list(short)


@pytest.mark.parametrize("values", [{"frame": "FSDP2"}, {"stage": 1}, {"stage": 2}, {"stage": 3}])
def test_equal_layers_stand_once_in_a_file(values: dict[str, Any], tmp_path: Path) -> None:
    args = WorkloadArgs(**{**ZERO, "num_layers": 80, "reduce_bucket_size": 70_000, "swiglu": True, **values})
    workload = generate(args, dialect="framework")
    rank = rank_of(args, 0)
    calls = [call for block in (rank.setup(), *rank.iterations(1)) for call in block]
    rows = [row for row in workload if row.is_communication]
    assert len(calls) > 80
    assert [(row.comm_type, row.msg_size, row.module or "", row.micro_batch) for row in rows] == [
        (call.comm_type, call.bytes, call.module, call.micro_batch) for call in calls
    ]
    assert workload.save(tmp_path / "x.csv", "full") < 20_000


def test_states_that_take_turns_are_one_block() -> None:
    def run(state: int) -> tuple[Block[Call], int]:
        call = Call(CommType.barrier, "dp", Zero3Rank(WorkloadArgs(**ZERO), 0).ranks, "uint8", state, "init")
        return Block([call]), state + 1 if state < 4 else 2

    for count in range(12):
        made, state = periodic.in_turns(count, 0, run)
        plain, last = without_turns(count, 0, run)
        assert [list(block) for block in made] == [list(block) for block in plain]
        assert list(made.numbered()) == list(plain.numbered())
        assert state == last
    assert len(periodic.in_turns(10**9, 0, run)[0].cycle) == 3


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_large_job_costs_what_its_distinct_calls_cost(stage: int) -> None:
    args = WorkloadArgs(**{**ZERO, "stage": stage, "global_batch": 8_000_000, "epoch_num": 10})
    rows = generate(args, dialect="framework")
    assert rows.iterations == 10
    sent = rows.rows.count_where(lambda row: row.comm_type in (CommType.all_reduce, CommType.reduce_scatter_tensor))
    # Overflow, norm and a bucket; ZeRO 3 has no overflow with bfloat16.
    assert sent == {1: 10 * 3, 2: 10 * (1_000_000 + 2), 3: 10 * (1_000_000 + 1)}[stage]


def test_deepspeed_has_its_own_defaults() -> None:
    made = options.resolve({"frame": "DeepSpeed"}, None, "csv", "framework")
    assert (made.contiguous_gradients, made.prefetch_bucket_size) == (True, 50_000_000)
    given = {"frame": "DeepSpeed", "contiguous_gradients": False}
    assert not options.resolve(given, None, "csv", "framework").contiguous_gradients
    assert not options.resolve({"frame": "DeepSpeed"}, None, "csv", "aicb").contiguous_gradients


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"tensor_model_parallel_size": 2}, "but frame DeepSpeed has data-parallel ranks alone; nearest: 1"),
        ({"sub_group_size": 0}, "sub_group_size is 0; it must be at least 1"),
        ({"prefetch_bucket_size": -1}, "prefetch_bucket_size is -1; it must be at least 0"),
        ({"num_query_groups": 3}, "num_attention_heads 4 must be a multiple of num_query_groups 3"),
        ({"dtype": "float32"}, "dtype is 'float32'; only bfloat16 and float16 has been traced"),
        ({"dtype": "float16", "frame": "FSDP2"}, "only bfloat16 has been traced"),
    ],
)
def test_what_zero_cannot_do_is_refused(values: dict[str, Any], text: str) -> None:
    with pytest.raises(ParameterError) as caught:
        generate(WorkloadArgs(**ZERO | values), dialect="framework")
    assert any(text in str(problem) for problem in caught.value.problems)


@pytest.mark.parametrize("target", ["generate", "simai"])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--frame=DeepSpeed --zero_stage=1 --global_batch=4", "makes 0 micro-batches a rank; it must make at least 1"),
        (
            "--frame=DeepSpeed --zero_stage=2 --global_batch=-8",
            "makes -1 micro-batches a rank; it must make at least 0",
        ),
        (
            "--frame=DeepSpeed --zero_stage=3 --global_batch=-8",
            "makes -1 micro-batches a rank; it must make at least 0",
        ),
        ("--frame=Megatron --global_batch=-8", "makes -1 micro-batches a rank; it must make at least 0"),
        ("--frame=FSDP2 --global_batch=-8", "makes -1 micro-batches a rank; it must make at least 0"),
    ],
)
def test_a_step_without_micro_batches_is_refused_in_a_sentence(
    target: str, words: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = [target, "--dialect=framework", "--world_size=8", *words.split(), "--output", str(tmp_path / "job")]
    assert main([*job, "--break_rules"]) == 2
    assert f"{said}, nearest: 8" in capsys.readouterr().err


def test_the_command_line_names_what_a_stage_does_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["generate", "--dialect=framework", "--frame=DeepSpeed", "--zero_stage=2", "--world_size=4"]
    words += ["--sub_group_size=9", "--reduce_bucket_size=1000000", "--allgather_bucket_size=1000"]
    assert main([*words, "--output", str(tmp_path / "zero.csv")]) == 0
    said = capsys.readouterr().err
    assert "no effect on this workload: --allgather_bucket_size, --sub_group_size" in said
