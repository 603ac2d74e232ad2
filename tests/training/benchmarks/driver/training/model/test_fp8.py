"""LLaMA's layers in FP8: torch's own kernel of scaled products trains alike, and what is converted is what is said."""

import functools
import importlib.util

import pytest
import torch
from torch import Tensor, nn

from tests.training.benchmarks.driver.training import reference
from tests.training.benchmarks.driver.training.model.scaled_products import Products
from tests.training.benchmarks.driver.training.model.test_kernels import Gpu
from tests.training.benchmarks.driver.training.tiny import benchmark_of, config_of
from training.benchmarks.driver.training.measuring.rates import peak_of
from training.benchmarks.driver.training.model import fp8
from training.benchmarks.driver.training.model.kernels import Kernels, Libraries, choose
from training.benchmarks.driver.training.model.model import BenchmarkModel
from training.benchmarks.driver.training.settings.settings import TrainingConfig
from training.benchmarks.driver.workload.usage import UnusableSettingsError
from vendors.nvidia.datasheets import DATASHEETS

CPU = torch.device("cpu")
STEPS = 8


def _forward(layer: nn.Linear, by_row: bool, inputs: Tensor) -> Tensor:
    found: Tensor = Products.apply(inputs.flatten(0, -2), layer.weight, by_row)  # type: ignore[no-untyped-call]
    return found.view(*inputs.shape[:-1], -1)


def _nets(recipe: str) -> tuple[TrainingConfig, dict[str, BenchmarkModel]]:
    """The same LLaMA three times: plain, converted by us, and with torch's own kernel in its blocks."""
    config = config_of("llama", precision="bf16", fp8=recipe)
    torch.manual_seed(0)
    start = benchmark_of("llama").build_model(config).state_dict()
    nets = {name: reference.model_with("llama", config, start).train() for name in ("plain", "ours", "torchs")}
    fp8.convert(nets["ours"], recipe, CPU)
    for block in nets["torchs"].blocks():
        for layer in block.modules():
            if isinstance(layer, nn.Linear):
                layer.forward = functools.partial(_forward, layer, recipe == "rowwise")  # type: ignore[method-assign]
    return config, nets


def _loss(net: BenchmarkModel, batch: dict[str, Tensor]) -> Tensor:
    loss: Tensor = net(batch)["loss"]
    return loss


@pytest.mark.parametrize("recipe", ["tensorwise", "rowwise"])
def test_gradients_in_fp8_are_those_of_torchs_kernel_of_scaled_products(recipe: str) -> None:
    config, nets = _nets(recipe)
    batch = benchmark_of("llama").synthetic_data(config).train[list(range(16))]
    found = {}
    for name, net in nets.items():
        torch.autograd.backward(_loss(net, batch))
        found[name] = torch.cat([each.grad.flatten() for each in net.parameters() if each.grad is not None])
    moved, off = ((found["ours"] - found[other]).norm() / found["plain"].norm() for other in ("plain", "torchs"))
    assert off < 1e-3, "a value in the middle between two of FP8 may become the other one"
    assert 1e-2 < moved < 1e-1, "what rounding to three bits of a fraction does"


def test_losses_in_fp8_are_those_of_torchs_kernel_of_scaled_products() -> None:
    """Scales are powers of two: nothing rounds but FP8 itself."""
    config, nets = _nets("rowwise")
    plain, ours, torchs = (
        torch.tensor(reference.train_net(net, functools.partial(_loss, net), "llama", config, STEPS))
        for net in nets.values()
    )
    assert (ours - torchs).abs().max() < 1e-4 < 1e-3 < (ours - plain).abs().max()


def test_all_products_of_the_blocks_are_converted_and_no_others() -> None:
    model = benchmark_of("llama").build_model(config_of("llama"))
    names = {name for name, layer in model.named_modules() if isinstance(layer, nn.Linear)}
    shapes = {name: tuple(each.shape) for name, each in model.named_parameters()}
    fp8.convert(model, "tensorwise", CPU)
    plain = {name for name, layer in model.named_modules() if type(layer) is nn.Linear}
    assert len(names) == 15 and plain == {"lm_head"}
    assert {name: tuple(each.shape) for name, each in model.named_parameters()} == shapes


def _choose(device: Libraries) -> Kernels:
    config = config_of("llama", precision="bf16", fp8="rowwise", compile_backend=None)
    return choose(config, benchmark_of("llama").attentions, device)


def _is(monkeypatch: pytest.MonkeyPatch, name: str, capability: tuple[int, int]) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: name)


def test_a_device_without_units_for_fp8_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _is(monkeypatch, "NVIDIA A100-SXM4-80GB", (8, 0))
    with pytest.raises(UnusableSettingsError, match=r"fp8 = 'rowwise': NVIDIA A100.* has compute capability 8.0, 8.9 "):
        _choose(Gpu())
    _is(monkeypatch, "NVIDIA H100 80GB HBM3", (9, 0))
    record = _choose(Gpu()).record()["fp8"]
    assert (record["used"], record["why"]) == ("rowwise", "torchao 0.18.0")


def test_the_host_emulates_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = _choose(Libraries(CPU))
    assert chosen.fp8_recipe == "rowwise"
    assert chosen.fp8.why == "torchao 0.18.0, emulated: cpu has no such units"
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UnusableSettingsError, match="fp8 = 'rowwise': torchao is not installed"):
        _choose(Libraries(CPU))


def test_mfu_of_fp8_is_of_the_peak_of_fp8() -> None:
    (name, rates) = next((each.device_names[0], each.tflops) for each in DATASHEETS if each.name.startswith("H200"))
    peaks = [peak_of(config_of("llama", precision="bf16", fp8=recipe), name) for recipe in (None, "tensorwise")]
    assert peaks == [rates["bf16"], rates["fp8"]]
    assert rates["fp8"] == pytest.approx(2 * rates["bf16"], rel=1e-3)
