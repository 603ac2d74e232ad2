"""What a user sets and what changes nothing of the prediction is told, of one job, of passes and of tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from simulation import cli
from simulation.predict.idle import idle_columns
from simulation.predict.job_table import preset
from tests.simulation.predict.calling import asked, refused

LLAMA = {**preset("llama3_8b"), "seq": "4096"}
WORDS = ("--gpu", "H100", "--gpus", "8")

pytestmark = pytest.mark.usefixtures("in_an_empty_folder")


@pytest.mark.parametrize(
    ("more", "idle"),
    [
        ({"topk": 2, "moe_ffn": 1024, "first_dense_layers": 1}, {"topk", "moe_ffn", "first_dense_layers"}),
        ({"q_lora": 512, "cp_comm": "a2a"}, {"q_lora", "cp_comm"}),
        ({"q_lora": 512, "cp_comm": "a2a", "mla": 1, "cp": 2}, {"kv_heads", "head_dim"}),
        ({"sliding_window": 6000}, {"sliding_window"}),
        ({"sliding_window": 1024}, set()),
        ({"compile": 1, "sp": 1}, {"compile", "sp"}),
        ({"compile": 1, "sp": 1, "fsdp": 1, "tp": 2}, set()),
        # What says the usual is not without effect.
        ({"tp": 1, "ep": 1, "mbs": 1, "micro_batches": 1, "overlap": "on", "ce_fusion": "te", "topk": 0}, set()),
    ],
)
def test_columns_of_a_job_that_change_nothing_are_told(
    more: dict[str, object], idle: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("job.json").write_text(json.dumps(LLAMA | more))
    told = asked(capsys, "predict", "--job", "job.json", *WORDS)["without_effect"]
    assert isinstance(told, list) and set(told) == idle


def test_what_a_preset_says_is_nobodys_and_options_are(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("predict", "--model", "mixtral_8x7b", *WORDS, "--gbs", "8", "--power-limit")
    # A H100 draws 700 W.
    assert [asked(capsys, *words, watts)["without_effect"] for watts in ("700", "500")] == [["power_limit_W"], []]


def test_columns_of_training_are_told_in_a_pass_without_gradients(capsys: pytest.CaptureFixture[str]) -> None:
    more = {"gbs": 64, "fsdp": 8, "cp": 2, "recompute": "full", "grad_dtype": "bf16", "sliding_window": 1024}
    Path("job.json").write_text(json.dumps(LLAMA | more))
    told = asked(capsys, "predict", "--job", "job.json", *WORDS, "--tp", "2", "--phase", "both")["without_effect"]
    assert told == ["gbs", "fsdp", "cp", "recompute", "grad_dtype"]


def test_a_column_that_changes_a_pass_of_one_length_has_an_effect(capsys: pytest.CaptureFixture[str]) -> None:
    Path("job.json").write_text(json.dumps(LLAMA | {"sliding_window": 4096}))
    words = ("predict", "--job", "job.json", *WORDS, "--phase", "decode", "--seq")
    told = {lengths: asked(capsys, *words, lengths)["without_effect"] for lengths in ("2048", "32768,2048")}
    assert told == {"2048": ["sliding_window"], "32768,2048": []}


def test_words_of_a_configuration_of_hugging_face_are_nobodys(capsys: pytest.CaptureFixture[str]) -> None:
    config = {
        "model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 32000,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "num_local_experts": 8,
        "num_experts_per_tok": 2,
    }  # fmt: skip
    Path("config.json").write_text(json.dumps(config))
    words = ("predict", "--job", "config.json", *WORDS, "--seq", "4096", "--mbs", "1", "--gbs", "8")
    assert asked(capsys, *words)["without_effect"] == []
    assert asked(capsys, *words, "--power-limit", "700")["without_effect"] == ["power_limit_W"]


def test_a_column_is_without_effect_if_it_changes_no_row(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [",".join([*LLAMA, "gpu", "gpus", "cp", "cp_comm", "compile"])]
    lines += [",".join([*LLAMA.values(), "H100", "8", cp, "a2a", "1"]) for cp in ("1", "2")]
    Path("rows.csv").write_text("\n".join(lines))
    assert asked(capsys, "predict", "--rows", "rows.csv", "--output", "out.csv")["without_effect"] == ["compile"]


def table(rows: Sequence[Mapping[str, object]]) -> tuple[str, ...]:
    """The words that predict jobs of LLAMA with these columns."""
    its = [{**LLAMA, "gpu": "H100", "gpus": 8, **row} for row in rows]
    lines = [",".join(its[0]), *(",".join(map(str, row.values())) for row in its)]
    Path("rows.csv").write_text("\n".join(lines))
    return "predict", "--rows", "rows.csv", "--output", "out.csv", "--force"


def test_a_sample_of_a_long_table_is_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    """Of 300 lengths a hundred are tried; the five rows that have cp_comm are all."""
    words = table([
        {"seq": 128 * at, "compile": 1, "cp_comm": "a2a" if at <= 5 else "", "cluster": 1} for at in range(1, 301)
    ])  # fmt: skip
    found = asked(capsys, *words)
    assert found["without_effect"] == ["cluster", "cp_comm"]
    assert found["without_effect_in_sample"] == {"compile": {"tried": 100, "layouts": 300}}
    assert cli.main([*words]) == 0
    said = capsys.readouterr().out.splitlines()
    assert "without effect: cluster, cp_comm" in said
    assert "without effect in a sample: compile (tried in 100 of 300 layouts)" in said


def test_rows_that_differ_in_their_names_and_measurements_are_one_layout(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"mbs": 1 + at % 2, "compile": 1, "name": f"job{at}", "measured_ms": 1 + at} for at in range(1000)]
    found = asked(capsys, *table(rows))
    assert found["without_effect"] == ["compile"] and found["without_effect_in_sample"] == {}


def test_a_column_that_works_beside_a_rare_value_has_an_effect() -> None:
    """Three of a thousand rows divide sequences, whose way cp_comm says: a hundred at random miss them in 73 % of
    draws.
    """
    rows = [{"cp_comm": "a2a", "cp": "2" if at in (7, 500, 993) else "1", "seq": str(at)} for at in range(1, 1001)]
    asked_of = set[str]()

    def figures(row: Mapping[str, str]) -> object:
        asked_of.add(row["seq"])
        return row["cp_comm"] if row["cp"] == "2" else ""

    assert idle_columns(["cp_comm"], rows, figures) == {} and len(asked_of) <= 100


def test_a_column_is_tried_in_a_hundred_of_the_rows_that_have_it() -> None:
    rows = [{"compile": "" if at % 2 else "1", "mbs": str(at)} for at in range(1, 1001)]
    asked_of = list[str]()
    found = idle_columns(["compile"], rows, lambda row: asked_of.append(row["mbs"]))
    assert found == {"compile": (100, 500)}
    assert len(set(asked_of)) == 100 and all(int(each) % 2 == 0 for each in asked_of)


def test_mistakes_of_all_batches_and_lengths_of_a_pass_are_told_together(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(
        capsys, "predict", "--model", "llama3_8b", *WORDS, "--phase", "prefill", "--mbs", "1,x", "--seq", "128,y,z"
    )
    assert [said.count(each) for each in ("mbs x: must", "seq y: must", "seq z: must")] == [1, 1, 1]


def test_a_pass_takes_a_prompt_that_tensor_parallel_ranks_do_not_divide(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing divides a sequence without gradients, as Megatron-core's static batching has it."""
    words = ("predict", "--model", "llama3_8b", *WORDS, "--tp", "8", "--seq", "1001", "--phase", "prefill")
    assert asked(capsys, *words)["gpus"] == 8


def test_heads_that_a_configuration_leaves_out_are_missed_by_their_own_name(capsys: pytest.CaptureFixture[str]) -> None:
    config = {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 128256}
    Path("config.json").write_text(json.dumps(config))
    assert "config.json: num_attention_heads: is missing" in refused(
        capsys, "predict", "--job", "config.json", *WORDS, "--phase", "decode"
    )
