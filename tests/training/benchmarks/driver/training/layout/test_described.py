"""`layout = "auto"`, predict and sweep have one memory model; where it knows a training, traces agree with it."""

import json
from dataclasses import replace
from typing import Any

import pytest

from protocol.outcome import MeasuredCase
from simulation.predict.job_table import job_of
from tests.training.benchmarks.driver.training.tiny import benchmark_of, config_of
from training.benchmarks.catalog import benchmark
from training.benchmarks.driver.training.layout.auto_layout import choose_layout
from training.benchmarks.driver.training.layout.described import described_job
from training.benchmarks.driver.training.layout.memory_estimate import step_bytes, traced_bytes
from training.benchmarks.driver.training.layout.stage_estimate import bytes_of_ranks, traced_stages
from training.benchmarks.driver.training.settings.settings import TrainingConfig
from workloads.job import memory

RANKS = 8


def llama(**settings: Any) -> TrainingConfig:
    sizes: dict[str, Any] = {
        "hidden_size": 512, "num_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 2048,
        "ffn_hidden_size": 1536, "seq_length": 4096, "precision": "bf16", "strategy": "fsdp", "attention": "sdpa",
        "train_batch_size": 2, "compile_backend": None,
    }  # fmt: skip
    return config_of("llama", **(sizes | settings))


FEW_WORDS = {"vocab_size": 64}
"""A trace counts a layer that is computed again beside the loss, which do not meet: the loss must be small."""
LAYOUTS: dict[str, dict[str, Any]] = {
    "fsdp": {},
    "selective": {"activation_checkpointing": "selective", **FEW_WORDS},
    "full": {"activation_checkpointing": True, **FEW_WORDS},
    "accumulated": {"gradient_accumulation_steps": 4},
    "hsdp": {"strategy": "hsdp", "shard_size": 4},
    "divided": {"tensor_parallel_size": 2, "sequence_parallel": True},
    "ddp": {"strategy": "ddp"},
    "ddp, full": {"strategy": "ddp", "activation_checkpointing": True, **FEW_WORDS},
    "wide": {"vocab_size": 32768},
}
STAGES: dict[str, dict[str, Any]] = {
    "pipeline": {"pipeline_parallel_size": 4, "gradient_accumulation_steps": 8},
    "interleaved": {
        "pipeline_parallel_size": 2, "pipeline_stages_per_rank": 2, "gradient_accumulation_steps": 8,
    },
    "pipeline, full": {
        "pipeline_parallel_size": 2, "gradient_accumulation_steps": 4, "activation_checkpointing": True, **FEW_WORDS,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", [*LAYOUTS, *STAGES])
def test_the_trainer_holds_what_predict_says_of_the_job_that_a_report_describes(name: str) -> None:
    config = llama(**(LAYOUTS | STAGES)[name])
    case = MeasuredCase(name="c", config=json.loads(config.model_dump_json()), nnodes=1, nproc=RANKS)
    columns = benchmark("llama", "pytorch").outcome.described_job(case, [])  # type: ignore[attr-defined]
    predicted = job_of({"gpu": "H100", **{key: str(value) for key, value in columns.items()}}, "c")
    ours = described_job(config, world_size=RANKS, per_node=RANKS)
    assert ours is not None
    held = memory.memory_of(replace(predicted, autocast=ours.autocast, whole_logits=ours.whole_logits))
    assert memory.memory_of(ours) == held
    reserved = [each.reserved * memory.GIB for each in held]
    assert bytes_of_ranks(benchmark_of("llama"), config, RANKS) == reserved
    choice = choose_layout(
        benchmark_of("llama"), config.model_copy(update={"layout": "auto"}), world_size=RANKS, per_node=RANKS,
        device_bytes=1 << 40,
    )  # fmt: skip
    assert choice.chosen.bytes == int(max(bytes_of_ranks(benchmark_of("llama"), choice.applied(config), RANKS)))


@pytest.mark.parametrize("name", LAYOUTS)
def test_traces_of_a_step_hold_what_the_memory_model_says(name: str) -> None:
    """What a GPU's kernels keep, without fusion."""
    config = llama(**LAYOUTS[name])
    modelled = step_bytes(benchmark_of("llama"), config, RANKS, allocated=True)
    traced = traced_bytes(benchmark_of("llama"), config, RANKS, allocated=True)
    assert modelled == pytest.approx(traced, rel=0.08), f"{modelled / 1e6:.1f} MB, traced {traced / 1e6:.1f}"


@pytest.mark.parametrize("name", STAGES)
def test_traces_of_stages_hold_what_the_memory_model_says(name: str) -> None:
    config = llama(**STAGES[name])
    modelled = bytes_of_ranks(benchmark_of("llama"), config, RANKS, allocated=True)
    traced = traced_stages(benchmark_of("llama"), config, RANKS, RANKS, "gpu")
    assert modelled == pytest.approx(traced, rel=0.1), (modelled, traced)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("mixtral", {}),
        ("bert", {}),
        ("llama", {"precision": "fp32"}),
        ("llama", {"optimizer": "lamb"}),
        ("llama", {"attention": "eager"}),
        ("llama", {"context_parallel_size": 2}),
        ("llama", {"num_layers": 3, "pipeline_parallel_size": 2, "gradient_accumulation_steps": 2}),
    ],
)
def test_what_the_memory_model_does_not_know_is_traced(name: str, settings: dict[str, Any]) -> None:
    config = llama(**settings) if name == "llama" else config_of(name, precision="bf16", **settings)
    assert described_job(config, world_size=RANKS, per_node=RANKS) is None
    assert described_job(llama(), world_size=RANKS, per_node=RANKS) is not None
