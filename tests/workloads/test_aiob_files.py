"""What aiob writes: shapes of one rank, AICB's sections, a time for each product, what the notes say; without torch."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.training.benchmarks.aicb.aiob_records import GPT, LATENT, record, times
from training.benchmarks.aicb.measuring.command import Measured
from training.benchmarks.aicb.measuring.parts import Part, parts_of
from workloads.cli import main
from workloads.compute.aiob import read
from workloads.compute.lookup import ComputeTimes
from workloads.library import CompFileError, Workload, WorkloadArgs, generate
from workloads.rows.ops import CommType, gemm_of, gemms_of

OPTIONS = [
    "--world_size=8", "--tp=2", "--hidden_size=64", "--num_layers=4", "--num_attention_heads=4", "--seq_length=32",
    "--global_batch=8", "--vocab_size=256",
]  # fmt: skip


def _sizes(parts: list[Part], name: str) -> dict[str, int]:
    return next(part.sizes for part in parts if part.name == name)


def test_the_shapes_of_gpt_175b_over_eight_ranks() -> None:
    args = WorkloadArgs(
        world_size=8, tensor_model_parallel_size=8, hidden_size=12288, num_layers=96, num_attention_heads=96,
        seq_length=2048, vocab_size=50257, global_batch=1,
    )  # fmt: skip
    parts = parts_of(args, fused=True)
    assert _sizes(parts, "attention_qkv") == {"m": 2048, "k": 12288, "n": 4608, "bias": 0}
    assert _sizes(parts, "attention_output") == {"m": 2048, "k": 1536, "n": 12288, "bias": 0}
    assert _sizes(parts, "mlp_in") == {"m": 2048, "k": 12288, "n": 6144, "bias": 0}
    assert _sizes(parts, "mlp_out") == {"m": 2048, "k": 6144, "n": 12288, "bias": 0}
    core = _sizes(parts, "attention_core")
    assert (core["heads"], core["groups"], core["qk"], core["seq"]) == (12, 12, 128, 2048)
    assert _sizes(parts, "embedding") == {"tokens": 2048, "width": 12288, "vocab": 51200 // 8}
    # 12 h^2 / tp and two norms in a layer; embedding and head; the last norm.
    elements = 96 * (12 * 12288**2 // 8 + 2 * 12288) + 2 * 51200 // 8 * 12288 + 12288
    assert _sizes(parts, "optimizer") == {"elements": elements}


def test_grouped_queries_gates_and_sequence_parallelism_change_the_shapes() -> None:
    args = replace(GPT, num_query_groups=2, swiglu=True, enable_sequence_parallel=True, ffn_hidden_size=96)
    parts = parts_of(args, fused=False)
    assert _sizes(parts, "attention_qkv")["n"] == (2 + 2 * 1) * 16
    assert _sizes(parts, "mlp_in")["n"] == 2 * 48 and _sizes(parts, "mlp_out")["k"] == 48
    assert _sizes(parts, "input_norm") == {"tokens": 16, "width": 64, "shift": 0}
    assert [part.section for part in parts if part.kind.startswith("core")] == [
        "atten_core_qk", "atten_core_softmax", "atten_core_contex",
    ]  # fmt: skip
    assert parts_of(replace(args, num_query_groups=1), fused=True)[3].sizes["groups"] == 1


def test_experts_of_a_rank_get_their_even_share_of_the_tokens() -> None:
    parts = parts_of(replace(LATENT, expert_model_parallel_size=2), fused=True)
    # 2 ranks of tokens (ep) * 32 tokens * 2 experts a token, over 4 experts.
    assert _sizes(parts, "experts_in") == {"experts": 2, "m": 32, "k": 64, "n": 2 * LATENT.ffn_size // 2}
    assert _sizes(parts, "shared_in")["n"] == 2 * LATENT.ffn_size // 2
    alone = parts_of(replace(LATENT, expert_tensor_parallel_size=1), fused=True)
    assert _sizes(alone, "experts_in") == {"experts": 4, "m": 8, "k": 64, "n": 2 * LATENT.ffn_size}


@pytest.mark.parametrize(
    ("args", "attention"),
    [(GPT, "sdpa"), (GPT, "unfused"), (LATENT, "sdpa"), (replace(LATENT, q_lora_rank=0), "sdpa")],
)
def test_the_description_has_every_section_that_aicb_reads(args: WorkloadArgs, attention: str, tmp_path: Path) -> None:
    path = tmp_path / "times.txt"
    path.write_text(Measured(record(args, attention=attention)).description())
    found = read(path)
    assert found.missing(deepseek=args.frame == "DeepSeek") == []
    assert found.train_iter == 3
    every = record(args, attention=attention)["parts"]
    total = sum(statistics.average for statistics in found.sections.values())
    assert total == pytest.approx(sum(part["forward"]["average"] for part in every) / 1000)


def test_a_section_is_the_sum_of_its_parts_forward() -> None:
    made = record(GPT)
    sections = Measured(made).sections()
    core = [part["forward"]["average"] for part in made["parts"] if part["section"] == "atten_flash"]
    assert len(core) == 2 and sections["atten_flash"].average == pytest.approx(sum(core))
    assert sections["atten_flash"].maximum == pytest.approx(1.1 * sum(core))


@pytest.mark.parametrize("args", [GPT, replace(GPT, enable_sequence_parallel=True), LATENT])
def test_each_gemm_of_a_workload_gets_its_own_time(args: WorkloadArgs, tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    made = record(args)
    path.write_text(Measured(made).to_json())
    timed = generate(replace(args, aiob_enable=True, comp_filepath=str(path)), dialect="aicb")
    wanted = {(each["op"], each["m"], each["k"], each["n"]): round(each["average"]) for each in made["gemms"]}
    rows = [item for item in timed.rows if item.comm_type is CommType.computation]
    assert rows and len(set(wanted.values())) == len(wanted)
    for item in rows:
        gemm = gemm_of(item)
        assert gemm is not None and item.elapsed_time == wanted[gemm.op, gemm.m, gemm.k, gemm.n], item


def test_forward_and_both_gradients_of_a_linear_layer_are_three_products() -> None:
    rows = generate(replace(GPT, computation_enable=True), dialect="aicb").rows
    qkv = {gemm_of(item) for item in rows if "attention_column" in item.stage}
    shapes = {(gemm.op, gemm.shape) for gemm in qkv if gemm is not None}
    assert shapes == {
        ("gemm", "m=32 k=64 n=96"),
        ("gemm_dgrad", "m=32 k=96 n=64"),
        ("gemm_wgrad", "m=96 k=32 n=64"),
    }
    assert len(gemms_of(rows)) == 12


def test_both_generators_read_what_aiob_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured = Measured(record(GPT))
    (tmp_path / "times.txt").write_text(measured.description())
    (tmp_path / "times.txt.json").write_text(measured.to_json())
    written = []
    for name in ("times.txt", "times.txt.json"):
        words = [*OPTIONS, "--aiob_enable", "--comp_filepath", str(tmp_path / name), "--output", str(tmp_path / "out")]
        words.append("--force")
        for dialect in ("aicb", "framework"):
            assert main(["simai", *words, "--dialect", dialect]) == 0, capsys.readouterr().err
            written.append((tmp_path / "out").read_text())
        assert main(["generate", *words, "--dialect", "aicb"]) == 0
    assert written[0] == written[2] and written[1] == written[3]
    assert Workload.load(tmp_path / "out")[0].rows.count_where(lambda row: row.elapsed_time is not None) > 0


def test_times_of_another_layer_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "times.json", tmp_path / "out"
    path.write_text(Measured(record(replace(GPT, hidden_size=128, num_layers=2))).to_json())
    words = [
        "generate",
        *OPTIONS,
        "--dialect",
        "aicb",
        "--aiob_enable",
        "--comp_filepath",
        str(path),
        "--output",
        str(out),
    ]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert "measured with hidden_size 128 (here 64)" in error and "num_layers" not in error
    assert main([*words, "--break_rules"]) == 2
    assert "lacks 9 of this workload's matrix products" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"version": 2}, "expected an object with format"),
        ({"sections": None}, "is no record of aiob"),
        ({"gemms": [{"op": "sorcery", "m": 1, "k": 1, "n": 1}]}, "is no matrix product"),
        ({"sections": {"Emb": {"maximum": 1, "minimum": 1, "average": -1}}}, "average is '-1'"),
        ({"sections": {"Emb": {"maximum": 1, "minimum": 1}}}, "lacks the key 'average'"),
        ({"sections": {"Embed": times(1.0)}}, "unknown section 'Embed'"),
        ({"job": {}}, "lacks the key"),
    ],
)
def test_a_broken_record_is_named(change: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    path.write_text(json.dumps({**json.loads(Measured(record(GPT)).to_json()), **change}))
    with pytest.raises(CompFileError) as caught:
        read(path)
    assert str(path) in str(caught.value) and complaint in str(caught.value)


def test_a_record_of_any_depth_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    path.write_text('{"a":' * 100_000)
    with pytest.raises(CompFileError, match="is no record of aiob"):
        read(path)


def _notes(layer_ns: float) -> list[str]:
    return Measured(record(GPT, layer_ns=layer_ns)).notes()


def test_parts_that_do_not_add_up_to_the_layer_are_noted() -> None:
    made = record(GPT)
    assert Measured(made).layer()["agrees"] and Measured(made).notes() == []
    summed = Measured(made).layer()["parts_ns"] / 3
    for factor, agrees in ((1.08, True), (0.93, True), (1.2, False), (0.85, False)):
        measured = Measured(record(GPT, layer_ns=summed * factor))
        assert measured.layer()["agrees"] is agrees
        assert any("add up to" in note for note in measured.notes()) is not agrees
    assert any("add up to 50% of the whole layer's time" in note for note in _notes(layer_ns=2 * summed))


def test_what_did_not_settle_and_what_was_scaled_is_noted() -> None:
    made = record(GPT)
    made["parts"][2]["backward"] = times(1.0, settled=False)
    made["parts"][-1]["measured_elements"] = 10
    notes = Measured(made).notes()
    assert notes[0].startswith("1 did not settle within 50 calls or 20 s: attention_qkv backward")
    assert "the optimizer was measured on 10 of" in notes[1]


def test_what_did_not_settle_is_in_no_database() -> None:
    made = record(GPT)
    every = [time.op for time in Measured(made).times()]
    made["gemms"][0] |= times(1.0, settled=False)
    norm = next(part for part in made["parts"] if part["kind"] == "norm")
    norm["forward"] = times(1.0, settled=False)
    kept = [time.op for time in Measured(made).times()]
    assert Counter(every) - Counter(kept) == {made["gemms"][0]["op"]: 1, "norm": 1}
    assert "no database gets their times" in Measured(made).notes()[0]


def test_measured_times_are_found_in_the_database() -> None:
    found = ComputeTimes(Measured(record(LATENT)).times())
    answer = found.look_up(
        "A test's processor", "attention_backward", "batch=1 seq=32 heads=2 groups=2 qk=12 v=8 causal=1", "bf16"
    )
    assert answer.how == "exact" and answer.basis[0].source == "aicb aiob, 2026-11-22 12:00:00 UTC"
    assert answer.basis[0].versions == "torch 0, 1 threads" and answer.basis[0].kernel == "sdpa"
    assert {"adam", "experts", "gemm_wgrad", "gated_activation", "norm", "loss", "embedding"} <= {
        row.op for row in found.rows
    }


def test_mistakes_are_told_at_once_and_nothing_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "--tp 8 --world_size 16 --num_attention_heads 12 --device gpu --iterations 0 --dtype int8"
    words += " --context_parallel_size 2"
    assert main(["aiob", *words.split(), "--output", str(tmp_path / "times.txt")]) == 2
    error = capsys.readouterr().err
    for complaint in (
        "device is 'gpu'",
        "iterations is 0",
        "dtype is 'int8'",
        "context_parallel_size",
        "num_attention_heads 12 must be",
    ):
        assert complaint in error
    assert list(tmp_path.iterdir()) == []
