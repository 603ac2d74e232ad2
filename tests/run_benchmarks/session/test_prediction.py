"""A case with `"predict": True` has its predicted iteration beside the measured one in record and report, or says why
not.
"""

import json
from pathlib import Path

import pytest

from protocol.outcome import MeasuredCase, MeasuredRound
from run_benchmarks.report.html import write_report
from run_benchmarks.results.prediction import prediction_of
from run_benchmarks.results.records import RoundRecord, RunRecord, Verdict
from simulation import cli
from simulation.predict.iteration import predict
from simulation.predict.job_table import job_of
from simulation.predict.machine import machines
from tests.run_benchmarks.conftest import Load
from tests.run_benchmarks.results.network_rounds import case as network_case
from tests.run_benchmarks.session.test_session import run, settings_of
from training.benchmarks.catalog import benchmark

LLAMA = {
    "model": "llama", "framework": "pytorch", "config": "config_CPUx1x2", "nproc": 1, "predict": True,
    "overrides": {
        "precision": "bf16", "compile_backend": None, "max_steps": 12, "warmup_steps": 2, "profile": "phases",
        "profile_steps": "8..11", "target_loss": None, "eval_samples": 64, "strategy": "ddp",
        "layout": "auto", "device_memory_bytes": 1 << 30,
    },
}  # fmt: skip


@pytest.mark.nightly
@pytest.mark.torch
def test_a_training_stands_beside_its_prediction_or_the_report_says_why_not(
    tmp_path: Path, load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    """A real run on this CPU, of which no table has kernels; then the same records as if an H100 had measured them."""
    folder = tmp_path / "result"
    record = run(settings_of(load, tmp_path, f"ONE = {LLAMA!r}"), folder)
    (its,) = record.cases
    assert its.verdict is Verdict.PASS, its.reason
    assert its.prediction is not None and "is none of A100, " in its.prediction.problem
    assert its.prediction.predicted_ms is None
    assert f"Not predicted: {its.prediction.problem}." in (folder / "report.html").read_text()

    rounds = [RoundRecord.model_validate_json((folder / its.folder / "round1/round.json").read_bytes())]
    on_gpu = [rounds[0].model_copy(update={"devices": ["NVIDIA H100 80GB HBM3"]})]
    found = prediction_of(its, on_gpu, folder)
    metrics = rounds[0].metrics
    assert metrics["attention_kernel"] in ("flash_attention", "math")
    assert not found.problem
    assert found.measured_ms == pytest.approx(1e3 * metrics["step_time_p50"])
    measured = {each.part: each.measured_ms for each in found.parts}
    assert measured["optimizer"] == pytest.approx(1e3 * metrics["phase_optimizer"])
    assert found.deviates == max(found.parts, key=lambda each: abs(each.measured_ms - each.predicted_ms)).part
    assert f"most of it in {found.deviates}" in found.sentences[0]
    # The same job, asked for by hand.
    chosen = metrics["chosen_layout"]
    assert chosen["train_batch_size"] * chosen["gradient_accumulation_steps"] == 32
    words = ("--gpu", "H100", "--gpus", "1", "--mbs", str(chosen["train_batch_size"]), "--gbs", "32")
    job = {
        "hidden": 64, "ffn": 128, "layers": 2, "heads": 4, "kv_heads": 2, "vocab": 128, "seq": 32, "compile": 0,
        "distributed_optimizer": 0, "fsdp": 1, "recompute": chosen["activation_checkpointing"], "gpus_per_node": 1,
    }  # fmt: skip
    (tmp_path / "job.json").write_text(json.dumps(job))
    assert cli.main(["predict", "--job", str(tmp_path / "job.json"), *words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["predicted_ms"] == pytest.approx(found.predicted_ms)

    said = its.model_copy(update={"prediction": found})
    write_report(folder, RunRecord.model_validate({**record.model_dump(), "cases": [said.model_dump()]}), rounds)
    page = (folder / "report.html").read_text()
    assert "Predicted and measured" in page and found.sentences[0] in page
    assert all(f"{each.measured_ms:.4g}" in page for each in found.parts)


def test_a_case_that_is_no_training_says_that_it_cannot_be_predicted(tmp_path: Path) -> None:
    assert prediction_of(network_case("network"), [], tmp_path).problem.startswith("no iteration of its benchmark")


@pytest.mark.parametrize(
    ("changes", "nproc", "expected"),
    [
        ({}, 8, {"fsdp": 8, "micro_batches": 1, "recompute": "full", "precision": "bf16", "tp": 1, "sp": 0}),
        ({"tensor_parallel_size": 2, "sequence_parallel": True}, 8, {"fsdp": 4, "tp": 2, "sp": 1}),
        ({"pipeline_parallel_size": 4, "gradient_accumulation_steps": 8}, 8, {"pp": 4, "fsdp": 2, "micro_batches": 8}),
        ({"context_parallel_size": 4}, 8, {"cp": 4, "cp_comm": "a2a", "fsdp": 8, "tp": 1}),
        ({"fp8": "rowwise", "strategy": "ddp"}, 1, {"fsdp": 1, "ddp": 0, "precision": "fp8 rowwise"}),
        ({"strategy": "ddp"}, 8, {"fsdp": 0, "ddp": 1, "precision": "bf16"}),
    ],
)
def test_a_published_layout_reaches_the_prediction_as_it_runs(
    changes: dict[str, object], nproc: int, expected: dict[str, object]
) -> None:
    its = benchmark("llama", "pytorch")
    config = {"max_steps": 10, "strategy": "fsdp", "activation_checkpointing": True, "precision": "bf16", **changes}
    job = its.outcome.described_job(MeasuredCase(name="c", config=config, nnodes=1, nproc=nproc), [])  # type: ignore[attr-defined]
    assert {key: job[key] for key in expected} == expected


def test_the_kernel_that_torch_picked_for_attention_reaches_the_prediction() -> None:
    """As our H100 measured it: 32,768 tokens take 317 ms with cuDNN's kernel, FlashAttention-2 would take 387."""
    settings = {
        "max_steps": 10, "strategy": "fsdp", "precision": "bf16", "compile_backend": "inductor", "num_layers": 2,
        "seq_length": 32768, "train_batch_size": 1, "activation_checkpointing": "none",
    }  # fmt: skip
    case, its = MeasuredCase(name="c", config=settings, nnodes=1, nproc=1), benchmark("llama", "pytorch").outcome
    ms = {}
    for kernel in ("cudnn_attention", "flash_attention"):
        measured = MeasuredRound(number=1, metrics={"attention_kernel": kernel}, steps=[], hosts={})
        job = its.described_job(case, [measured])  # type: ignore[attr-defined]
        row = {key: str(value) for key, value in job.items()}
        ms[kernel] = predict(job_of({**row, "gpu": "NVIDIA H100 80GB HBM3"}, ""), machines()["H100"]).ms
    assert ms["cudnn_attention"] == pytest.approx(316.9, rel=0.03) and ms["flash_attention"] > 1.15 * 316.9


def test_experts_reach_the_prediction() -> None:
    config = {"max_steps": 10, "strategy": "fsdp", "expert_parallel_size": 4}
    case = MeasuredCase(name="c", config=config, nnodes=1, nproc=8)
    job = benchmark("mixtral", "pytorch").outcome.described_job(case, [])  # type: ignore[attr-defined]
    assert {key: job[key] for key in ("experts", "topk", "moe_ffn", "ep")} == {
        "experts": 8, "topk": 2, "moe_ffn": 14336, "ep": 4,
    }  # fmt: skip


def test_copied_key_value_heads_are_not_predicted() -> None:
    config = {"max_steps": 10, "strategy": "fsdp", "num_key_value_heads": 2, "context_parallel_size": 4}
    case = MeasuredCase(name="c", config=config, nnodes=1, nproc=8)
    with pytest.raises(ValueError, match="key-value heads"):
        benchmark("llama", "pytorch").outcome.described_job(case, [])  # type: ignore[attr-defined]
