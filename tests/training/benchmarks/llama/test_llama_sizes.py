"""LLaMA-2 and Llama-3 at true size on tensors without storage: parameters, FLOPs and memory; tiny, Llama-3 learns."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from protocol.case_config import load_case_config
from protocol.config_file import config_file
from protocol.perflog import Event, parse_line
from tests.training.benchmarks.driver.launch.launching import ALONE, ROOT
from training.benchmarks.driver.training.layout.auto_layout import choose_layout
from training.benchmarks.driver.training.layout.memory_estimate import RESERVED, step_bytes
from training.benchmarks.driver.training.model.model import parameter_count
from training.benchmarks.driver.training.rank_entry import run_training
from training.benchmarks.llama.pytorch.config import Config
from training.benchmarks.llama.pytorch.model import Llama
from training.benchmarks.llama.pytorch.run_pretraining import LlamaBenchmark

VENDORS = ROOT / "vendors"
# Parameters of the published weights.
PUBLISHED = {"config_A100x1x8": 6_738_415_616, "config_llama3_8b": 8_030_261_248}
MEMORY = {"A100": 42.4e9, "H100": 85.0e9, "H200": 150.0e9}
FLAGPERF_SEQUENCES = 512


def _config(name: str) -> Config:
    return load_case_config(Config, config_file(VENDORS / "nvidia" / "llama-pytorch" / "config", name), {})


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_model_has_the_published_parameters(name: str) -> None:
    with torch.device("meta"):
        assert parameter_count(Llama(_config(name))) == PUBLISHED[name]


def _counted(config: Config, layers: int) -> int:
    """Floating-point operations of a sample through `layers` layers, by torch's own count."""
    small = config.model_copy(update={"attention": "sdpa", "num_layers": layers})
    with FakeTensorMode(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model = Llama(small).train()
        model.make_constants(torch.device("cpu"))
        model({"tokens": torch.zeros(1, config.seq_length, dtype=torch.int64)})["loss"].backward()
    return int(counter.get_total_flops())


@pytest.mark.parametrize("name", PUBLISHED)
def test_flops_at_true_size_are_those_that_torch_counts(name: str) -> None:
    config = _config(name)
    one, two = (_counted(config, layers) for layers in (1, 2))
    assert one + (config.num_layers - 1) * (two - one) == config.flops_per_sample()


@pytest.mark.parametrize("device", MEMORY)
def test_llama_3_fits_and_takes_flagperfs_sequences_per_step(device: str) -> None:
    config = _config(f"config_llama3_8b_{device}x1x8")
    assert config.train_batch_size * config.gradient_accumulation_steps * 8 == FLAGPERF_SEQUENCES
    memory = int(MEMORY[device])
    choice = choose_layout(LlamaBenchmark(), config, world_size=8, per_node=8, device_bytes=memory)
    assert choice.chosen.recompute == {"A100": "full", "H100": "selective", "H200": "none"}[device]
    needed = step_bytes(LlamaBenchmark(), choice.applied(config), 8)
    assert needed * (1 + RESERVED) < memory, f"{needed / 1e9:.1f} GB"


def test_llama_3_takes_the_optimizer_of_flagperfs_megatron() -> None:
    config = _config("config_llama3_8b_A100x1x8")
    assert (config.learning_rate, config.beta1, config.beta2, config.weight_decay) == (1e-5, 0.9, 0.95, 0.1)
    assert (config.eps, config.max_grad_norm) == (1e-8, 1.0)


def test_a_replica_of_shards_needs_the_memory_of_its_own_ranks() -> None:
    config = _config("config_llama3_8b_A100x1x8")
    needed = {
        (name, ranks): step_bytes(LlamaBenchmark(), config.model_copy(update={"strategy": name}), ranks)
        for name, ranks in (("fsdp", 8), ("fsdp", 16), ("hsdp", 16))
    }
    assert needed["fsdp", 16] < needed["hsdp", 16] == needed["fsdp", 8]


def test_first_weights_have_the_published_deviation() -> None:
    config = _config("config_llama3_8b")
    with torch.device("meta"):
        model = Llama(config)
    weight = torch.empty(400, 500)
    model.initialize("lm_head.weight", weight, torch.Generator().manual_seed(1))
    assert float(weight.std()) == pytest.approx(0.008, rel=0.02)


def test_a_tiny_llama_3_learns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in ALONE.items():
        monkeypatch.setenv(name, value)
    config = VENDORS / "cpu" / "llama-pytorch" / "config" / "config_llama3_CPUx1x2.py"
    settings = {"train_samples": 1024, "eval_samples": 32, "max_steps": 25, "target_loss": None, "seed": 5}
    changes = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    run_training(LlamaBenchmark(), Config, ["--config_file", str(config), *changes])
    records = [record for record in map(parse_line, capsys.readouterr().out.splitlines()) if record is not None]
    found: dict[Event, Any] = {record.event: record.value for record in records}
    assert found[Event.FINISHED]["one_training"] is True
    assert found[Event.FINISHED]["final_loss"] < found[Event.INIT_EVALUATION]["eval_loss"] - 0.5
