"""Mixtral 8x7B at true size on tensors without storage: parameters, FLOPs, memory; what is refused; tiny, it learns."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from protocol.case_config import load_case_config
from protocol.config_file import config_file
from protocol.perflog import Event, parse_line
from tests.training.benchmarks.driver.launch.launching import ALONE, ROOT
from tests.training.benchmarks.driver.training.tiny import benchmark_of, config_of
from training.benchmarks.driver.training.layout.auto_layout import choose_layout
from training.benchmarks.driver.training.layout.memory_estimate import RESERVED, step_bytes
from training.benchmarks.driver.training.measuring.rates import flops_without_attention
from training.benchmarks.driver.training.model.experts import mixtures
from training.benchmarks.driver.training.model.model import parameter_count
from training.benchmarks.driver.training.rank_entry import run_training
from training.benchmarks.mixtral.pytorch.config import Config
from training.benchmarks.mixtral.pytorch.run_pretraining import MixtralBenchmark

VENDORS = ROOT / "vendors"
# Of the published weights; Jiang et al. 2024, section 1: "Mixtral has 47B parameters in total, and uses 13B of them";
# Mistral's announcement (11 December 2023): 46.7B and 12.9B.
PUBLISHED, PUBLISHED_ACTIVE = 46_702_792_704, 12.9e9
# Bytes that the devices show.
MEMORY = {"H100": 85_000_000_000, "H200": 150_000_000_000}


def _config(name: str) -> Config:
    return load_case_config(Config, config_file(VENDORS / "nvidia" / "mixtral-pytorch" / "config", name), {})


def test_the_model_has_the_published_parameters_and_a_token_meets_the_published_part() -> None:
    config = _config("config_H200x1x8")
    with torch.device("meta"):
        assert parameter_count(benchmark_of("mixtral").build_model(config)) == PUBLISHED
    assert config.parameters() == PUBLISHED
    assert config.active_parameters(PUBLISHED) == pytest.approx(PUBLISHED_ACTIVE, rel=0.002)
    of_token = flops_without_attention(config, PUBLISHED, config.seq_length) / config.seq_length
    assert of_token == pytest.approx(6 * PUBLISHED_ACTIVE, rel=0.002)
    # The embedding is no product, the products with keys and values are no parameters.
    size, layers = config.hidden_size, config.num_layers
    attention, embedding, norms = (
        12 * layers * config.seq_length * size,
        config.vocab_size * size,
        (2 * layers + 1) * size,
    )
    products = config.active_parameters(PUBLISHED) - embedding - norms
    assert config.flops_per_sample() / config.seq_length == 6 * products + attention


def test_the_defaults_are_the_published_settings() -> None:
    """config.json of mistralai/Mixtral-8x7B-v0.1."""
    config = Config(max_steps=1)
    found = MixtralBenchmark().published_facts(config)
    assert found == {
        "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_act": "silu", "hidden_size": 4096,
        "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
        "num_experts_per_tok": 2, "num_local_experts": 8, "rms_norm_eps": 1e-5, "rope_theta": 1e6,
        "router_aux_loss_coef": 0.02, "sliding_window": None, "tie_word_embeddings": False, "vocab_size": 32000,
        "rope_scaling": None,
    }  # fmt: skip


@pytest.mark.parametrize(("experts", "chosen"), [(8, 2), (5, 3)])
def test_flops_are_those_that_torch_counts_of_the_products_of_each_token(experts: int, chosen: int) -> None:
    config = config_of("mixtral", num_experts=experts, experts_per_token=chosen)
    model = benchmark_of("mixtral").build_model(config).train()
    model.make_constants(torch.device("cpu"))
    for layer in mixtures(model):
        layer.experts.is_grouped = False  # torch does not count the kernel
    batch = benchmark_of("mixtral").synthetic_data(config).train[[0, 1, 2]]
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(batch)["loss"].backward()
    assert counter.get_total_flops() == 3 * config.flops_per_sample()


def test_with_expert_parallelism_a_step_fits_as_shipped() -> None:
    """Of 16 bytes of each parameter over the ranks, a layer of bf16 weights on its way, and activations."""
    benchmark, config = benchmark_of("mixtral"), _config("config_H200x1x8")
    assert config.train_batch_size * config.gradient_accumulation_steps * 8 == 512  # FlagPerf's
    full = config.model_copy(update={"activation_checkpointing": True})
    needed = step_bytes(benchmark, full, 8)
    held = 16 * PUBLISHED / 8
    assert held * 1.05 < needed < MEMORY["H200"] / (1 + RESERVED)
    whole = step_bytes(benchmark, full.model_copy(update={"expert_parallel_size": 1}), 8)
    # What FSDP2 gathers: two layers of all experts in bf16, and the gradients of one in both types, beside an eighth.
    experts = 8 * 3 * config.hidden_size * config.ffn_hidden_size
    assert whole - needed == pytest.approx((2 * 2 + 2 + 4) * experts * 7 / 8, rel=0.1)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "ranks", "recompute"),
    [("config_H200x1x8", 8, "full"), ("config_H100x2x8", 16, "full"), ("config_H200x2x8", 16, "selective")],
)
def test_the_shipped_cases_lay_themselves_out(name: str, ranks: int, recompute: str) -> None:
    config = _config(name)
    assert config.train_batch_size * config.gradient_accumulation_steps * ranks == 512
    memory = MEMORY[name[7:11]]
    choice = choose_layout(benchmark_of("mixtral"), config, world_size=ranks, per_node=8, device_bytes=memory)
    assert choice.chosen.recompute == recompute


def test_the_shipped_cases_are_planned(tmp_path: Path) -> None:
    cases = {f"mixtral:pytorch:{device}:{shape}:1": "/data" for device, shape in [("H200", "1:8"), ("H100", "2:8")]}
    (tmp_path / "cluster_conf.py").write_text('HOSTS = ["gpu01", "gpu02"]\n')
    (tmp_path / "test_conf.py").write_text(f'VENDOR, RUNTIME = "nvidia", "process"\nCASES = {cases!r}\n')
    options = [f"--{name}-conf={tmp_path / name}_conf.py" for name in ("cluster", "test")]
    argv = [sys.executable, "run_benchmarks/run.py", *options]
    result = subprocess.run([*argv, "plan"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert [case["name"] for case in json.loads(result.stdout)["cases"]] == list(cases)
    key = "mixtral:pytorch:H200:1:8:1.overrides"
    changes = ["--set", f"{key}.expert_parallel_size=16", "--set", f"{key}.num_experts=16"]
    result = subprocess.run([*argv, *changes, "plan"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (2, "")
    assert "expert_parallel_size = 16 does not divide the 8 ranks" in result.stderr


def test_all_that_experts_cannot_be_combined_with_is_named_at_once() -> None:
    wrong = {"num_experts": 6, "experts_per_token": 7, "expert_parallel_size": 4, "tensor_parallel_size": 2}
    with pytest.raises(ValueError, match="experts_per_token = 7; allowed: up to num_experts = 6") as caught:
        config_of("mixtral", **wrong, compile_backend="inductor")
    for said in (
        "num_experts = 6 is no multiple of expert_parallel_size = 4",
        "expert_parallel_size = 4 needs strategy = 'fsdp', which is 'ddp'",
        "tensor_parallel_size = 2: experts are not divided so; allowed: 1",
        "compile_backend = 'inductor': an expert has another number of tokens in each step; allowed: None, 'auto'",
    ):
        assert said in str(caught.value)
    with pytest.raises(ValueError, match="pipeline_parallel_size = 2: the router's loss is of all layers together"):
        config_of("mixtral", pipeline_parallel_size=2, gradient_accumulation_steps=2)
    with pytest.raises(ValueError, match="fp8 = 'rowwise': torchao has no products of uneven groups of rows; allowed"):
        config_of("mixtral", fp8="rowwise", precision="bf16", ffn_hidden_size=64)


@pytest.mark.parametrize(
    ("settings", "ranks", "said"),
    [
        ({"expert_parallel_size": 4}, 6, "expert_parallel_size = 4 does not divide the 6 ranks"),
        ({"expert_parallel_size": 2}, 12, "leaves 6 ranks for each expert, which do not divide both hidden_size = 32"),
        ({"expert_parallel_size": 2, "profile": "phases", "profile_ranks": 9}, 4, "profile_ranks = 9; allowed: 0 to 3"),
    ],
)
def test_a_number_of_ranks_that_does_not_fit_is_refused_in_the_plan(
    settings: dict[str, Any], ranks: int, said: str
) -> None:
    config = config_of("mixtral", strategy="fsdp", **settings)
    assert said in str(config.refusal(nnodes=1, nproc=ranks))
    assert config_of("mixtral", strategy="fsdp", expert_parallel_size=2).refusal(nnodes=2, nproc=8) is None


def test_a_tiny_mixtral_learns_and_logs_the_load_of_its_experts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in ALONE.items():
        monkeypatch.setenv(name, value)
    config = VENDORS / "cpu" / "mixtral-pytorch" / "config" / "config_CPUx1x2.py"
    settings = {
        "train_samples": 1024,
        "eval_samples": 32,
        "max_steps": 25,
        "target_loss": None,
        "expert_parallel_size": 1,
    }
    changes = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    run_training(MixtralBenchmark(), Config, ["--config_file", str(config), *changes])
    records = [record for record in map(parse_line, capsys.readouterr().out.splitlines()) if record is not None]
    found: dict[Event, Any] = {record.event: record.value for record in records}
    assert found[Event.FINISHED]["one_training"] is True
    assert found[Event.FINISHED]["final_loss"] < found[Event.INIT_EVALUATION]["eval_loss"] - 0.5
    assert 1 < found[Event.STEP_END]["expert_load"] < 4
