"""LLaMA-2 and Llama-3 at true size on tensors without storage: parameters, FLOPs and memory; tiny, Llama-3 learns."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from protocol.case_config import load_case_config
from protocol.config_file import config_file
from protocol.perflog import Event, parse_line
from tests.tiers import NIGHTLY
from tests.training.benchmarks.driver.launch.launching import ALONE, ROOT
from training.benchmarks.driver.training.layout.auto_layout import choose_layout
from training.benchmarks.driver.training.layout.memory_estimate import RESERVED, HeldStorages, step_bytes
from training.benchmarks.driver.training.layout.stage_estimate import (
    bytes_of_ranks,
    micro_batches_of_rank,
    parameters_of_rank,
)
from training.benchmarks.driver.training.model.context import ContextParallel
from training.benchmarks.driver.training.model.model import parameter_count
from training.benchmarks.driver.training.model.staged import Stage
from training.benchmarks.driver.training.rank_entry import run_training
from training.benchmarks.llama.pytorch.config import Config
from training.benchmarks.llama.pytorch.model import Llama
from training.benchmarks.llama.pytorch.run_pretraining import LlamaBenchmark

VENDORS = ROOT / "vendors"
# Parameters of the published weights.
PUBLISHED = {
    "config_A100x1x8": 6_738_415_616, "config_llama3_8b": 8_030_261_248, "config_llama3_8b_128k": 8_030_261_248,
    "config_llama3_70b": 70_553_706_496,
}  # fmt: skip
# Peak memory in GiB by context-parallel ranks, each with 32768 tokens of one sample, that torchtitan measured of Llama
# 3.1 8B on 8 H100 of 96 GB: FSDP2, full recomputation, torch.compile, FP8 (docs of torchtitan 0.1, "Performance").
TORCHTITAN = {1: 83.9, 2: 84.2, 4: 84.0, 8: 84.5}
MEMORY = {"A100": 42.4e9, "H100": 85.0e9, "H200": 150.0e9}
FLAGPERF_SEQUENCES = 512


def _config(name: str) -> Config:
    return load_case_config(Config, config_file(VENDORS / "nvidia" / "llama-pytorch" / "config", name), {})


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_model_has_the_published_parameters(name: str) -> None:
    with torch.device("meta"):
        assert parameter_count(Llama(_config(name))) == PUBLISHED[name]


def _counted(config: Config, layers: int) -> int:
    """Floating-point operations of a rank for a sample through `layers` layers, by torch's own count."""
    small = config.model_copy(update={"attention": "sdpa", "num_layers": layers})
    with FakeTensorMode(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model = Llama(small).train()
        if config.context_parallel_size > 1:
            model.divide_sequence(ContextParallel(config.context_parallel_size))
        model.make_constants(torch.device("cpu"))
        model({"tokens": torch.zeros(1, config.seq_length, dtype=torch.int64)})["loss"].backward()
    return int(counter.get_total_flops())


@pytest.mark.parametrize("name", PUBLISHED)
def test_flops_at_true_size_are_those_that_torch_counts(name: str) -> None:
    config = _config(name)
    one, two = (_counted(config, layers) for layers in (1, 2))
    of_rank = one + (config.num_layers - 1) * (two - one)
    assert of_rank * config.context_parallel_size == config.flops_per_sample()


@pytest.mark.parametrize("ranks", [1, 8, *([2, 4] if NIGHTLY else [])])
def test_the_memory_of_divided_sequences_is_about_what_torchtitan_measured(ranks: int) -> None:
    longer = {"seq_length": 32768 * ranks, "context_parallel_size": ranks, "activation_checkpointing": True}
    config = _config("config_llama3_8b").model_copy(update=longer)
    assert step_bytes(LlamaBenchmark(), config, 8) / 2**30 == pytest.approx(TORCHTITAN[ranks], rel=0.08)


@pytest.mark.parametrize(
    ("device", "recompute"), [("H100", "full"), pytest.param("H200", "selective", marks=pytest.mark.nightly)]
)
def test_sequences_of_128k_tokens_fit_where_eight_devices_divide_them(device: str, recompute: str) -> None:
    config = _config(f"config_llama3_8b_128k_{device}x1x8")
    whole = {"context_parallel_size": 1, "activation_checkpointing": True}
    assert step_bytes(LlamaBenchmark(), config.model_copy(update=whole), 8) > MEMORY["H200"]
    choice = choose_layout(LlamaBenchmark(), config, world_size=8, per_node=8, device_bytes=int(MEMORY[device]))
    assert (choice.chosen.micro_batch, choice.chosen.micro_batches, choice.chosen.recompute) == (1, 4, recompute)


@pytest.mark.parametrize(
    "device", ["A100", *(pytest.param(device, marks=pytest.mark.nightly) for device in ("H100", "H200"))]
)
def test_llama_3_fits_and_takes_flagperfs_sequences_per_step(device: str) -> None:
    config = _config(f"config_llama3_8b_{device}x1x8")
    assert config.train_batch_size * config.gradient_accumulation_steps * 8 == FLAGPERF_SEQUENCES
    memory = int(MEMORY[device])
    choice = choose_layout(LlamaBenchmark(), config, world_size=8, per_node=8, device_bytes=memory)
    assert choice.chosen.recompute == {"A100": "full", "H100": "none", "H200": "none"}[device]
    needed = step_bytes(LlamaBenchmark(), choice.applied(config), 8)
    assert needed * (1 + RESERVED) < memory, f"{needed / 1e9:.1f} GB"


def _counted_of_stage(config: Config, layers: int, *, is_first: bool, is_last: bool) -> int:
    """As _counted, of a stage with so many layers and these ends of the model."""
    small = config.model_copy(update={"attention": "sdpa", "num_layers": layers})
    with FakeTensorMode(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model = Llama(small).train()
        model.make_constants(torch.device("cpu"))
        model.keep_part(range(layers), is_first=is_first, is_last=is_last)
        stage = Stage(model, model.blocks(), is_first=is_first, is_last=is_last)
        received = torch.empty(model.hidden_shape(1, 1), requires_grad=True)
        result = stage(received, tokens=torch.zeros(1, config.seq_length, dtype=torch.int64))
        torch.autograd.backward(result, torch.ones_like(result))
    return int(counter.get_total_flops())


def test_the_stages_of_llama_3_70b_are_its_parameters_and_its_flops() -> None:
    """The output is 1.2 layers' parameters, and 1.06 layers' operations, on the last of four."""
    config = _config("config_llama3_70b_H100x8x8")
    parameters = [parameters_of_rank(LlamaBenchmark(), config, rank) for rank in range(4)]
    assert sum(parameters) == PUBLISHED["config_llama3_70b"]
    assert parameters[1] == parameters[2] == 20 * 855_654_400 < parameters[0] < parameters[3]
    middle = _counted_of_stage(config, 1, is_first=False, is_last=False)
    last = _counted_of_stage(config, 1, is_first=False, is_last=True)
    first = _counted_of_stage(config, 1, is_first=True, is_last=False)
    assert first == middle and 1 < (last - middle) / middle < 1.1
    assert 80 * middle + (last - middle) == config.flops_per_sample()


def test_a_rank_of_a_pipeline_keeps_what_its_micro_batches_in_flight_hold() -> None:
    """Against a first stage of two layers that two micro-batches go through before the first one comes back."""
    config = Config.model_validate(
        {
            "data": "synthetic", "num_layers": 4, "hidden_size": 256, "num_attention_heads": 4, "max_steps": 1,
            "num_key_value_heads": 2, "ffn_hidden_size": 704, "seq_length": 512, "vocab_size": 4096,
            "train_batch_size": 2, "gradient_accumulation_steps": 4, "pipeline_parallel_size": 2, "attention": "sdpa",
        }
    )  # fmt: skip
    most = 0
    with FakeTensorMode():
        model = Llama(config).train()
        model.make_constants(torch.device("cpu"))
        model.keep_part(range(2), is_first=True, is_last=False)
        stage = Stage(model, model.blocks(), is_first=True, is_last=False)
        tokens = torch.zeros(2, 512, dtype=torch.int64)
        own = {each.untyped_storage()._cdata for each in (tokens, *model.parameters())}
        with HeldStorages() as held:
            outputs = [stage(tokens, tokens=tokens) for _ in range(2)]

        def look() -> None:
            nonlocal most
            gradients = {each.grad.untyped_storage()._cdata for each in model.parameters() if each.grad is not None}
            most = max(most, held.bytes(without=own | gradients))

        held.on_each(look)
        with held:
            torch.autograd.backward(outputs[0], torch.ones_like(outputs[0]))
    hidden = 8 * 512 * 256 * 4  # of all micro-batches, whose gradients have buffers of their own
    parameters = parameters_of_rank(LlamaBenchmark(), config, 0)
    estimated = bytes_of_ranks(LlamaBenchmark(), config, 2, on_cpu=True)[0] - 16 * parameters - hidden
    assert 0.95 < estimated / most < 1.4, f"{estimated / 1e6:.1f} MB, {most / 1e6:.1f} MB"


@pytest.mark.parametrize("rank", range(2))
@pytest.mark.parametrize("stages", [1, 2])
def test_as_many_micro_batches_are_kept_as_torchs_schedule_keeps(rank: int, stages: int) -> None:
    """Counted in the order of actions that torch's schedule gives this rank."""
    from torch.distributed.pipelining import Schedule1F1B, ScheduleInterleaved1F1B  # takes a second to load

    settings = {"pipeline_parallel_size": 2, "pipeline_stages_per_rank": stages, "gradient_accumulation_steps": 6}
    config = Config.model_validate({"data": "synthetic", "max_steps": 1} | settings)
    parts: list[Any] = [
        SimpleNamespace(stage_index=index, num_stages=2 * stages, group_size=2, group_rank=rank, is_last=False)
        for index in range(rank, 2 * stages, 2)
    ]
    schedule: Any = Schedule1F1B(parts[0], 6) if stages == 1 else ScheduleInterleaved1F1B(parts, 6)
    kept = most = 0
    for action in schedule.pipeline_order[rank]:
        if action is not None and action.microbatch_index is not None:
            kept += 1 if "F" in str(action) else -1
            most = max(most, kept)
    assert micro_batches_of_rank(config, rank) == most and kept == 0


@pytest.mark.nightly
def test_llama_3_70b_fits_on_64_devices_of_either_kind() -> None:
    for device, memory, chosen in (("H100", 85.0e9, (1, "selective")), ("H200", 150.0e9, (2, "none"))):
        config = _config(f"config_llama3_70b_{device}x8x8")
        choice = choose_layout(LlamaBenchmark(), config, world_size=64, per_node=8, device_bytes=int(memory))
        assert (choice.chosen.micro_batch, choice.chosen.recompute) == chosen


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


def test_a_tiny_llama_3_learns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
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
