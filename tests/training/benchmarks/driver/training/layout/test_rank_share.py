"""One tensor-parallel rank's share holds what torch's own DTensor holds, and the estimate follows it."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import parallelize_module
from torch.testing._internal.distributed.fake_pg import FakeStore

from simulation.predict.iteration import predict
from simulation.predict.job_table import job_of, preset
from simulation.predict.machine import machines
from tests.training.benchmarks.driver.training.tiny import benchmark_of, config_of
from training.benchmarks.driver.training.layout.auto_layout import choose_layout
from training.benchmarks.driver.training.layout.memory_estimate import RESERVED, _states, activation_bytes, step_bytes
from training.benchmarks.driver.training.model.context import ContextParallel
from training.benchmarks.driver.training.model.model import BenchmarkModel
from training.benchmarks.driver.training.settings.settings import TrainingConfig
from training.benchmarks.driver.workload.usage import UnusableSettingsError

SIZES = {"num_attention_heads": 8, "num_key_value_heads": 4, "hidden_size": 128, "ffn_hidden_size": 256,
         "seq_length": 64, "vocab_size": 512}  # fmt: skip
LAYOUTS = [(2, False), (4, False), (2, True), (4, True)]


def llama(**settings: Any) -> TrainingConfig:
    return config_of("llama", **(SIZES | settings))


@pytest.fixture
def four_ranks_that_send_nothing() -> Iterator[None]:
    dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    yield
    dist.destroy_process_group()


def held_by_dtensor(config: TrainingConfig, layers: int) -> int:
    """Bytes that a rank of a real, divided model holds after its forward pass."""
    config = config.model_copy(update={"num_layers": layers, "attention": "sdpa"})
    tp_size, sequence_parallel = config.tensor_parallelism()
    model: BenchmarkModel = benchmark_of("llama").build_model(config).train()
    mesh = init_device_mesh("cpu", (4 // tp_size, tp_size), mesh_dim_names=("dp", "tp"))["tp"]
    if tp_size > 1:
        parallelize_module(model, mesh, model.tensor_parallel_plan(sequence_parallel))
    if config.context_parallelism() > 1:
        model.divide_sequence(ContextParallel(4, 0, dist.group.WORLD))
    model.make_constants(torch.device("cpu"))
    batch = benchmark_of("llama").synthetic_data(config).train[list(range(config.train_batch_size))]
    own = set()
    for parameter in model.parameters():
        local = parameter.to_local() if isinstance(parameter, DTensor) else parameter
        own |= {parameter.untyped_storage()._cdata, local.untyped_storage()._cdata}
    saved: dict[int, int] = {}

    def packed(tensor: torch.Tensor) -> torch.Tensor:
        local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        storage = local.untyped_storage()
        if storage._cdata not in own:
            saved[storage._cdata] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(packed, lambda tensor: tensor):
        loss = model(batch)["loss"]
    assert loss.requires_grad
    return sum(saved.values())


@pytest.mark.parametrize(("tp_size", "sequence_parallel"), LAYOUTS)
def test_a_layer_of_the_share_keeps_the_bytes_that_a_layer_divided_by_dtensor_keeps(
    tp_size: int, sequence_parallel: bool, four_ranks_that_send_nothing: None
) -> None:
    config = llama(tensor_parallel_size=tp_size, sequence_parallel=sequence_parallel, precision="fp32")
    one, two = (held_by_dtensor(config, layers) for layers in (1, 2))
    ours = [activation_bytes(benchmark_of("llama"), config, layers) for layers in (1, 2)]
    assert ours[1] - ours[0] == pytest.approx(two - one, rel=0.01)


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_a_layer_of_the_share_keeps_the_bytes_that_a_layer_keeps_whose_tokens_are_sent(
    kv_heads: int, four_ranks_that_send_nothing: None
) -> None:
    config = llama(context_parallel_size=4, num_key_value_heads=kv_heads, train_batch_size=2, precision="fp32")
    one, two = (held_by_dtensor(config, layers) for layers in (1, 2))
    ours = [activation_bytes(benchmark_of("llama"), config, layers) for layers in (1, 2)]
    assert ours[1] - ours[0] == pytest.approx(two - one, rel=0.01)


def test_an_attention_of_the_vendor_s_own_does_not_divide_sequences() -> None:
    with torch.device("meta"):
        model: Any = benchmark_of("llama").build_model(llama(num_layers=2))
    model.divide_sequence(ContextParallel(2))
    model.model.layers["0"].self_attn = torch.nn.Identity()
    with pytest.raises(UnusableSettingsError, match="vendor's own attention"):
        model.divide_sequence(ContextParallel(2))


@pytest.mark.nightly
def test_more_tensor_parallel_ranks_need_less_and_the_automatic_layout_knows_it() -> None:
    """In the memory of one of four ranks' whole step, a rank alone must recompute or take smaller micro-batches."""
    benchmark, needed = benchmark_of("llama"), {}
    for tp_size in (1, 2, 4):
        needed[tp_size] = llama(
            tensor_parallel_size=tp_size, sequence_parallel=tp_size > 1, strategy="fsdp", layout="auto",
            train_batch_size=8, gradient_accumulation_steps=1,
        )  # fmt: skip
    sizes = {tp_size: step_bytes(benchmark, config, 4) for tp_size, config in needed.items()}
    assert sizes[1] > 1.3 * sizes[2] > 1.3 * sizes[4]
    memory = int(sizes[4] * (1 + RESERVED)) + 1
    chosen = {
        tp_size: choose_layout(benchmark, config, world_size=4, per_node=4, device_bytes=memory).chosen
        for tp_size, config in needed.items()
    }
    assert (chosen[4].recompute, chosen[4].micro_batch) == ("none", 8)
    assert chosen[1].micro_batch < 8 or chosen[1].recompute != "none"


@pytest.mark.parametrize(("strategy", "gpus", "copy"), [("fsdp", 16, 16), ("hsdp", 16, 8)])
def test_predict_counts_the_weights_gradients_and_moments_that_the_trainer_counts(
    strategy: str, gpus: int, copy: int
) -> None:
    sizes = {
        "hidden_size": 4096, "num_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
        "vocab_size": 128256, "ffn_hidden_size": 14336, "seq_length": 8192, "precision": "bf16", "strategy": strategy,
    }  # fmt: skip
    ours, *_ = _states(benchmark_of("llama"), config_of("llama", **sizes), gpus, 8)
    row = {**preset("llama3_8b"), "gpu": "H100", "gpus": str(gpus), "fsdp": str(copy)}
    held = predict(job_of(row, strategy), machines()["H100"]).memory
    # At the moment that holds most gradients may not be there yet: a quarter of all, beside weights and two moments.
    predicted = (held.weights + held.optimizer) * 4 / 3
    assert ours.total - ours.passing == pytest.approx(predicted * 2**30, rel=1e-4)
