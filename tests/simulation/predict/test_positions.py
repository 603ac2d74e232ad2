"""A sequence past the positions of a model is told, with model, limit and what is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.errors import MistakeList
from simulation import cli as simulation
from simulation.predict import hugging_face
from simulation.predict.job_table import job_of, preset
from tests.simulation.predict.calling import asked
from workloads import cli

pytestmark = pytest.mark.usefixtures("in_an_empty_folder")
JOB = ("predict", "--model", "llama3_8b", "--gpu", "H100", "--gpus", "8")
SAID = "llama3_8b has positions for 8192 tokens (max_position_embeddings), {} are asked"


@pytest.mark.parametrize(
    ("scaling", "reach"),
    [
        ({}, 4096),
        ({"rope_scaling": None}, 4096),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 512}}, 4096),
        ({"rope_scaling": {"type": "longrope", "factor": 8.0}}, 4096),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, 16384),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2}}, 8192),
        ({"rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 1024}}, 40960),
        ({"rope_scaling": {"type": "yarn", "factor": float("nan")}}, 4096),
        ({"rope_scaling": {"type": "yarn", "factor": 2.0, "original_max_position_embeddings": 10**400}}, 8192),
        ({"rope_scaling": {"type": "linear", "factor": 1e6}, "max_position_embeddings": 1 << 30}, 1 << 31),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}, "max_position_embeddings": 10**400}, None),
        ({"max_position_embeddings": 10**13}, None),
        ({"max_position_embeddings": "many"}, None),
    ],
)
def test_a_configuration_says_how_far_its_positions_reach(scaling: dict[str, object], reach: int | None) -> None:
    """The rule of vLLM's _get_and_verify_max_len."""
    config = {"model_type": "llama", "num_hidden_layers": 2, "max_position_embeddings": 4096, **scaling}
    assert hugging_face.columns(config, "config.json", MistakeList()).get("max_position_embeddings") == reach


def test_rows_may_say_that_the_reach_of_positions_is_unknown() -> None:
    row = {**preset("llama3_8b"), "gpu": "H100", "gpus": "8", "max_position_embeddings": "0"}
    assert job_of(row, "row").positions == 0


def test_a_job_past_its_models_positions_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    for seq, is_told in ((8192, False), (16384, True)):
        notes = asked(capsys, *JOB, "--seq", str(seq))["notes"]
        assert any(SAID.format(seq) in note for note in notes) == is_told  # type: ignore[attr-defined]


def test_a_token_after_a_full_prompt_lies_past_the_positions(capsys: pytest.CaptureFixture[str]) -> None:
    for phase, seq, tokens in (("prefill", 8192, 0), ("decode", 8191, 0), ("decode", 8192, 8193)):
        notes = asked(capsys, *JOB, "--phase", phase, "--seq", f"1024,{seq}")["notes"]
        told = [note for note in notes if note.startswith("warning")]  # type: ignore[attr-defined]
        assert [SAID.format(tokens) in note for note in told] == ([True] if tokens else [])


def test_a_workload_past_its_models_positions_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    for more, is_told in (((), False), (("--seq_length", "16384"), True)):
        assert cli.main(["generate", "-m", "llama3_8b", "--output", "w.csv", "--force", *more]) == 0
        assert (f"warning: {SAID.format(16384)}" in capsys.readouterr().err) == is_told


def test_positions_that_are_not_embedded_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["generate", "-m", "gpt3_13b", "--output", "w.csv", "--seq_length", "4096"]
    assert cli.main(words) == 2
    assert "seq_length 4096: at most max_position_embeddings 2048" in capsys.readouterr().err
    assert cli.main([*words, "--max_position_embeddings", "4096"]) == 0


def test_a_model_that_is_named_alone_has_its_own_positions(capsys: pytest.CaptureFixture[str]) -> None:
    """Not the 4096 that a job has which says nothing of them, as one that an older version wrote."""
    Path("job.yaml").write_text("model_name: llama3_8b\n")
    for job in (("--model_name", "llama3_8b"), ("--job", "job.yaml")):
        for seq, is_told in ((8192, False), (16384, True)):
            assert cli.main(["generate", *job, "--seq_length", str(seq), "--output", "w.csv", "--force"]) == 0
            said = capsys.readouterr().err
            assert (f"warning: {SAID.format(seq)}" in said) == ("positions" in said) == is_told


def test_a_token_after_a_full_prompt_is_past_the_positions_of_a_workload(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["generate", "--phase", "decode", "--output", "w.csv", "--force", "-m"]
    for seq, is_told in ((8191, False), (8192, True)):
        assert cli.main([*words, "llama3_8b", "--seq_length", str(seq)]) == 0
        assert (f"warning: {SAID.format(8193)}" in capsys.readouterr().err) == is_told
    assert cli.main([*words, "gpt3_13b", "--seq_length", "2047"]) == 0
    assert cli.main([*words, "gpt3_13b"]) == 2
    said = "seq_length 2048 and the token after it: at most max_position_embeddings 2048"
    assert said in capsys.readouterr().err


def test_a_sweep_past_its_models_positions_is_noted_once(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("sweep", "--model", "llama3_8b", "--gpu", "H100", "--gpus", "8", "--gbs", "8", "--mbs", "1", "--seq")
    said = SAID.format(16384)
    assert asked(capsys, *words, "8192")["notes"] == []
    notes = asked(capsys, *words, "16384")["notes"]
    assert isinstance(notes, list) and [said in note for note in notes] == [True]
    assert simulation.main([*words, "16384"]) == 0
    assert capsys.readouterr().out.count(f"note: {said}") == 1


def test_scaling_is_said_of_rotary_positions_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """Those of GPT-3 are a learned table, which no scaling lengthens."""
    words = ("predict", "--model", "gpt3_13b", "--gpu", "H100", "--gpus", "8", "--seq", "4096")
    said = [note for note in asked(capsys, *words)["notes"] if "positions" in note]  # type: ignore[attr-defined]
    assert len(said) == 1 and said[0].endswith("unless rotary positions are scaled; a learned table ends there")
