"""FLOPs of every model against torch's counter, MFU, datasheets, and the clocks."""

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from protocol.case_config import load_case_config
from tests.training.benchmarks.driver.launch.launching import ROOT
from tests.training.benchmarks.driver.training.tiny import MODELS, alone, benchmark_of, config_of, trainer_of
from training.benchmarks.driver.training.benchmark import checked_parameters
from training.benchmarks.driver.training.measuring.meter import Meter, peak_memory_bytes, peak_tflops
from training.benchmarks.driver.training.measuring.rates import flops_without_attention, model_flops_utilization
from training.benchmarks.driver.training.model.model import Batch, BenchmarkModel, parameter_count
from training.benchmarks.driver.training.trainer import Trainer
from training.benchmarks.driver.training.update import Update
from training.benchmarks.driver.workload.usage import UnusableSettingsError

CPU = torch.device("cpu")
SAMPLES = 3
EXCLUDED_SECONDS = 1.0  # longer than a busy machine keeps a thread waiting
LOADING_SECONDS = 0.05


@pytest.mark.parametrize("name", MODELS)
def test_the_flops_are_those_that_torch_counts(name: str) -> None:
    config = config_of(name)
    model: BenchmarkModel = benchmark_of(name).build_model(config)
    model.make_constants(CPU)
    batch = benchmark_of(name).synthetic_data(config).train[list(range(SAMPLES))]
    # The CPU's fused attention is not counted; composed of matrix products it is.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model.train()(batch)["loss"].backward()
    assert counter.get_total_flops() == pytest.approx(SAMPLES * config.flops_per_sample(), rel=1e-3)


@pytest.mark.parametrize("name", MODELS)
def test_recomputed_activations_are_no_work_of_the_model(name: str) -> None:
    """Recomputation adds a forward pass of the layers to what is counted (but for products at the end of a layer, which
    nothing needs again), and nothing to flops_per_sample.
    """
    config = config_of(name, activation_checkpointing=True)
    assert config.flops_per_sample() == config_of(name).flops_per_sample()
    model: BenchmarkModel = benchmark_of(name).build_model(config)
    model.recompute = "full"
    model.make_constants(CPU)
    batch = benchmark_of(name).synthetic_data(config).train[list(range(SAMPLES))]
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model.train()(batch)["loss"].backward()
    without = config_of(name, num_layers=1).flops_per_sample()
    layer = (config.flops_per_sample() - without) / 3
    forward = SAMPLES * layer * config.num_layers
    again = counter.get_total_flops() - SAMPLES * config.flops_per_sample()
    assert 0.6 * forward < again < 1.01 * forward


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("bert", 336_232_258), ("glm", 334_688_256), ("cpm", 334_080_000), ("llama", 6_738_415_616)],
)
def test_the_default_sizes_are_the_true_ones(name: str, parameters: int) -> None:
    """Parameter counts as measured on FlagPerf's own models."""
    benchmark, config_class, _ = MODELS[name]
    with torch.device("meta"):
        model: BenchmarkModel = benchmark().build_model(config_class(max_steps=1))
    assert parameter_count(model) == parameters
    assert len(model.blocks()) == {"llama": 32}.get(name, 24)


def test_flops_of_the_true_sizes_are_six_for_each_parameter_and_token_and_the_attention() -> None:
    config = MODELS["llama"][1](max_steps=1)
    tokens, layers, size = 4096, 32, 4096
    parameters = 6_738_415_616 - 32000 * size - (2 * layers + 1) * size  # embedding and norms multiply no matrices
    assert config.flops_per_sample() == 6 * parameters * tokens + 12 * layers * size * tokens * tokens


def test_mfu_is_the_part_of_all_peaks_and_unknown_without_one() -> None:
    config = config_of("cpm", peak_tflops=2.0)
    peak = peak_tflops(config, CPU)
    assert peak == 2.0
    flops = config.flops_per_sample()
    seconds = flops * 1000 / 4e12
    mfu = model_flops_utilization(flops, samples=1000, seconds=2 * seconds, world_size=2, peak=peak)
    assert mfu == pytest.approx(0.5)
    assert peak_tflops(config_of("cpm"), CPU) is None
    assert model_flops_utilization(flops, samples=1000, seconds=1.0, world_size=2, peak=None) is None


def test_both_conventions_of_mfu_stand_beside_each_other() -> None:
    """LLaMA-2 7B where FlagPerf publishes 47.9 %: 6 operations for each of 7e9 parameters and each token."""
    path = ROOT / "vendors" / "nvidia" / "llama-pytorch" / "config" / "config_A100x1x8.py"
    config = load_case_config(MODELS["llama"][1], path, {})
    rate: dict[str, Any] = {"samples": 1, "world_size": 8, "peak": 312.0}
    seconds = flops_without_attention(config, 6_738_415_616, 4096) / 0.479 / (8 * 312e12)
    assert model_flops_utilization(42e9 * 4096, seconds=seconds, **rate) == pytest.approx(0.479)
    assert model_flops_utilization(config.flops_per_sample(), seconds=seconds, **rate) == pytest.approx(0.526, abs=5e-4)
    tiny = config_of("llama")
    assert flops_without_attention(tiny, 1000, 16) == 6 * 1000 * 16, "the model's own number where none is nominal"


def test_a_nominal_number_of_parameters_is_that_of_this_model() -> None:
    config = config_of("llama", nominal_parameters=7_000_000_000)
    model = benchmark_of("llama").build_model(config)
    found = parameter_count(model)
    with pytest.raises(UnusableSettingsError, match=rf"nominal_parameters = 7000000000: the model has {found}"):
        checked_parameters(model, config)
    assert checked_parameters(model, config_of("llama", nominal_parameters=int(found * 1.05))) == found


def test_times_leave_out_what_is_excluded_and_what_is_not_computed() -> None:
    meter = Meter(CPU)
    meter.start()
    with meter.loading():
        time.sleep(0.01)
    meter.begin_compute()
    time.sleep(0.02)
    with meter.loading():
        time.sleep(LOADING_SECONDS)
    meter.end_compute()
    with meter.excluded():
        time.sleep(EXCLUDED_SECONDS)
    meter.begin_compute()
    meter.end_compute()
    meter.begin_compute()
    meter.end_compute(is_typical=False)
    times = meter.read()
    assert 0.02 <= times.pure_compute <= times.no_eval - LOADING_SECONDS <= times.raw - EXCLUDED_SECONDS
    assert meter.step_times[0] >= 0.02, "a step's time holds its loading and its computation"
    assert meter.step_times[1] < EXCLUDED_SECONDS, "but nothing that is excluded"
    assert len(meter.step_times) == 3 and math.isnan(meter.step_times[2])


def test_no_micro_batch_s_loading_counts_as_computing(tmp_path: Path) -> None:
    config = config_of("llama", gradient_accumulation_steps=3)

    def batches() -> Iterator[Batch]:
        data = benchmark_of("llama").synthetic_data(config).train
        for _ in range(3):
            time.sleep(LOADING_SECONDS)
            yield data[list(range(config.train_batch_size))]

    with alone() as group:
        run = trainer_of("llama", config, group, tmp_path / "log")
        update = Update(run.model, run.optimizer, run.precision, config, 1, run.profiling, run.work)
        meter = Meter(CPU)
        meter.start()
        update.run(batches(), 1, meter)
    times = meter.read()
    assert 0 < times.pure_compute <= times.raw - 3 * LOADING_SECONDS


@pytest.mark.parametrize("look", [Trainer.evaluate, Trainer.compare])
def test_no_gradients_lie_beside_an_evaluation(look: Callable[[Trainer], object], tmp_path: Path) -> None:
    """On one H100 they were a fifth of the peak, which no step had."""
    with alone() as group:
        run = trainer_of("llama", config_of("llama", strategy="fsdp"), group, tmp_path / "log")
        run.train_step(run.batches())
        parameters = [*run.model.module.parameters()]
        assert all(each.grad is not None for each in parameters)
        found: list[bool] = []
        handle = run.model.module.register_forward_hook(
            lambda *_: found.extend(each.grad is None for each in parameters)
        )
        look(run)
        handle.remove()
    assert found and all(found)


def test_peak_memory_is_at_least_what_is_held() -> None:
    held = torch.ones(1 << 22)
    assert peak_memory_bytes(CPU) > held.numel() * held.element_size()
