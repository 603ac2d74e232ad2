"""Which attention and optimizer are chosen, what refuses a wish, and that all of them compute the same."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from tests.training.benchmarks.driver.training.tiny import benchmark_of, config_of
from training.benchmarks.driver.training.model import attention, kernels, optimizers
from training.benchmarks.driver.training.model.kernels import Kernels, Libraries, choose
from training.benchmarks.driver.workload.usage import UnusableSettingsError

STAND_INS = Path(__file__).with_name("stand_ins")
FLASH = "flash_attention_2"


class Gpu(Libraries):
    """A CUDA device that is not there; the libraries are imported for real."""

    def __init__(self, capability: tuple[int, int] = (9, 0), **versions: str) -> None:
        super().__init__(torch.device("cuda", 0))
        self._capability = capability
        self._triton = versions.pop("triton", "3") != ""
        self._found.update(versions)

    def capability(self) -> tuple[int, int]:
        return self._capability

    def has_triton(self) -> bool:
        return self._triton


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """flash-attn and apex are installed."""
    monkeypatch.syspath_prepend(str(STAND_INS))
    monkeypatch.setenv("PYTHONPATH", str(STAND_INS))
    attention._library.cache_clear()
    yield
    attention._library.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] in ("apex", "amp_C", "flash_attn")]:
        del sys.modules[name]


def _choose(model: str, device: Libraries, **settings: Any) -> Kernels:
    return choose(config_of(model, **settings), benchmark_of(model).attentions, device)


def test_without_libraries_torchs_kernels_are_used_and_the_reason_is_given() -> None:
    chosen = _choose("bert", Gpu(), precision="bf16", optimizer="lamb")
    assert (chosen.attention.used, chosen.optimizer.used) == ("sdpa", "foreach")
    assert chosen.attention.why == "not flash_attention_2: flash_attn is not installed"
    assert chosen.record()["optimizer"] == {
        "asked": "auto",
        "used": "foreach",
        "why": "not apex: apex is not installed",
    }
    on_cpu = _choose("bert", Libraries(torch.device("cpu")), precision="bf16", optimizer="lamb")
    assert on_cpu.optimizer.why == "not apex: needs an accelerator, this rank has cpu"


@pytest.mark.parametrize(
    ("model", "settings", "used"),
    [
        ("bert", {"precision": "bf16", "optimizer": "lamb"}, (FLASH, "apex")),
        ("bert", {"optimizer": "lamb"}, ("sdpa", "apex")),
        ("bert", {"precision": "bf16", "optimizer": "lamb", "strategy": "fsdp"}, (FLASH, "foreach")),
        ("bert", {"precision": "bf16", "attention": "eager", "optimizer_impl": "foreach"}, ("eager", "foreach")),
        ("cpm", {"precision": "fp16", "optimizer_impl": "apex"}, ("sdpa", "fused")),
        ("llama", {"precision": "bf16", "attention": FLASH}, (FLASH, "fused")),
        ("glm", {"precision": "bf16"}, ("sdpa", "fused")),
    ],
)
def test_what_is_there_is_used_where_it_fits(
    model: str, settings: dict[str, Any], used: tuple[str, str], libraries: None
) -> None:
    chosen = _choose(model, Gpu(), **settings)
    expected = (used[0], settings["optimizer_impl"]) if "optimizer_impl" in settings else used
    assert (chosen.attention.used, chosen.optimizer.used) == expected
    for setting, choice in (("attention", chosen.attention), ("optimizer_impl", chosen.optimizer)):
        assert choice.asked == settings.get(setting, "auto")


@pytest.mark.parametrize(
    ("model", "settings", "device", "message"),
    [
        (
            "glm",
            {"attention": FLASH},
            Gpu(),
            "'flash_attention_2': not of this benchmark; allowed: 'auto', 'sdpa', 'ea",
        ),
        ("llama", {"attention": FLASH}, Gpu(), "attention = 'flash_attention_2': flash_attn is not installed"),
        ("llama", {"attention": FLASH}, Gpu(flash_attn="unusable: ABI"), "flash_attn is unusable: ABI"),
        ("llama", {"attention": FLASH}, Gpu(flash_attn="1.0.9"), "needs flash_attn 2, found 1.0.9"),
        ("llama", {"attention": FLASH}, Gpu((7, 5), flash_attn="2.8.3"), "needs compute capability 8.0, found 7.5"),
        ("llama", {"attention": FLASH}, Libraries(torch.device("cpu")), "needs an accelerator, this rank has cpu"),
        ("llama", {"attention": FLASH, "hidden_size": 2056}, Gpu(flash_attn="2.8.3"), "256 or less, found 514"),
        ("llama", {"optimizer_impl": "apex"}, Gpu(), "optimizer_impl = 'apex': apex is not installed"),
        ("llama", {"optimizer_impl": "apex", "strategy": "fsdp"}, Gpu(apex="0.1"), "takes no sharded parameters"),
        ("llama", {"optimizer_impl": "apex"}, Libraries(torch.device("cpu")), "needs an accelerator"),
    ],
)
def test_a_wish_that_cannot_be_met_is_refused(
    model: str, settings: dict[str, Any], device: Libraries, message: str
) -> None:
    with pytest.raises(UnusableSettingsError) as error:
        _choose(model, device, precision="bf16", **settings)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimizer": "lamb", "optimizer_impl": "fused"}, "torch has no fused LAMB"),
        ({"attention": FLASH}, "attention = 'flash_attention_2' needs precision 'bf16' or 'fp16', which is 'fp32'"),
    ],
)
def test_wishes_that_contradict_each_other_are_found_with_the_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config_of("llama", **settings)


@pytest.mark.parametrize(
    ("model", "settings", "device", "used", "why"),
    [
        ("llama", {"max_steps": 100}, Gpu(), "inductor", "the shapes are the same in every step"),
        ("cpm", {"max_steps": None, "max_epochs": 1}, Gpu((7, 0)), "inductor", "the shapes are the same"),
        ("bert", {"max_steps": 100}, Gpu(), "inductor", "the shapes are the same"),
        ("bert", {"max_steps": 100, "unpad": True}, Gpu(), "none", "every micro-batch has another number of tokens"),
        ("llama", {"max_steps": 99}, Gpu(), "none", "the run ends after 99 steps; it pays from 100 on"),
        ("llama", {"max_steps": 100}, Gpu((6, 1)), "none", "needs compute capability 7.0, found 6.1"),
        ("llama", {"max_steps": 100}, Gpu(triton=""), "none", "triton is not installed"),
        (
            "llama",
            {"max_steps": 100},
            Libraries(torch.device("cpu")),
            "none",
            "needs an accelerator, this rank has cpu",
        ),
        ("llama", {"max_steps": 100, "compile_backend": None}, Gpu(), "none", "asked for"),
        ("llama", {"compile_backend": "inductor"}, Libraries(torch.device("cpu")), "inductor", "asked for"),
    ],
)
def test_blocks_are_compiled_where_the_step_time_settles(
    model: str, settings: dict[str, Any], device: Libraries, used: str, why: str
) -> None:
    chosen = _choose(model, device, **settings)
    assert chosen.compilation.used == used and why in chosen.compilation.why
    assert chosen.compile_backend == (None if used == "none" else used)
    assert chosen.record()["compilation"]["asked"] == str(settings.get("compile_backend", "auto"))


def test_flash_attention_that_skips_the_padding_is_not_compiled(libraries: None) -> None:
    chosen = _choose("bert", Gpu(), precision="bf16", max_steps=100)
    assert (chosen.attention.used, chosen.compilation.used) == (FLASH, "none")


def test_ranks_that_would_use_different_kernels_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = _choose("bert", Libraries(torch.device("cpu")))
    others = ["sdpa and fused and none and torch", "flash_attention_2 and fused and none and torch"]

    def gather(found: list[str], own: str) -> None:
        found[:] = [*others, own]

    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 3)
    monkeypatch.setattr(torch.distributed, "all_gather_object", gather)
    with pytest.raises(UnusableSettingsError) as error:
        kernels.agree(chosen)
    assert "flash_attention_2 and fused and none and torch on ranks 1; sdpa and fused and none and" in str(error.value)
    others[1] = "sdpa and fused and none and the faster"
    with pytest.raises(UnusableSettingsError, match="and the faster on ranks 1"):
        kernels.agree(chosen)
    others[1] = others[0]
    kernels.agree(chosen)


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_every_attention_computes_the_same(kv_heads: int, libraries: None) -> None:
    torch.manual_seed(0)
    query = torch.randn(3, 4, 9, 8, requires_grad=True)
    key, value = (torch.randn(3, kv_heads, 9, 8, requires_grad=True) for _ in range(2))
    is_there = torch.arange(9)[None, :] < torch.tensor([9, 4, 1])[:, None]
    packed, mask = attention.packing(is_there), is_there[:, None, None, :]
    found: dict[str, list[torch.Tensor]] = {}
    for name in ("sdpa", "eager", FLASH):
        causal = attention.attend(name, query, key, value, is_causal=True)
        q, k, v = (heads.transpose(1, 2)[is_there] for heads in (query, key, value))
        masked = attention.attend_packed(name, q, k, v, packed)
        if name != FLASH:
            padded = attention.attend(name, query, key, value, mask=mask).transpose(1, 2)[is_there]
            torch.testing.assert_close(masked, padded, atol=1e-6, rtol=1e-6)
        gradients = torch.autograd.grad((causal**2).sum() + (masked**3).sum(), (query, key, value))
        found[name] = [causal, masked, *gradients]
    for name in ("eager", FLASH):
        for result, expected in zip(found[name], found["sdpa"], strict=True):
            torch.testing.assert_close(result, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("model", "name"), [("bert", FLASH), ("bert", "eager"), ("cpm", FLASH), ("llama", FLASH)])
def test_a_model_has_the_same_loss_with_every_attention(model: str, name: str, libraries: None) -> None:
    losses = []
    for implementation in ("sdpa", name):
        config = config_of(model, precision="bf16", attention=implementation)
        torch.manual_seed(0)
        net = benchmark_of(model).build_model(config)
        net.make_constants(torch.device("cpu"))
        batch = benchmark_of(model).synthetic_data(config).train[[0, 1, 2]]
        if model == "bert":
            batch = {key: tensor for key, tensor in batch.items() if not key.startswith(("token_", "label"))}
            batch["input_mask"][1, 10:] = 0
            batch["masked_lm_positions"].clamp_(max=9)
        losses.append(net.train()(batch)["loss"])
    torch.testing.assert_close(losses[1], losses[0], atol=0, rtol=1e-6)


def _trained(optimizer_name: str, implementation: str, steps: int, *, resume_after: int | None = None) -> list[Any]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.Linear(7, 3))
    config = config_of("llama", optimizer=optimizer_name, weight_decay=0.1, learning_rate=0.05)
    optimizer = optimizers.build(net, config, implementation)
    for step in range(1, steps + 1):
        generator = torch.Generator().manual_seed(step)
        for parameter in net.parameters():
            parameter.grad = 3 * torch.randn(parameter.shape, generator=generator)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step == resume_after:
            weights, moments = get_state_dict(net, optimizer)
            net = nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.Linear(7, 3))
            optimizer = optimizers.build(net, config, implementation)
            get_state_dict(net, optimizer)
            set_state_dict(net, optimizer, model_state_dict=weights, optim_state_dict=moments)
    return [parameter.detach() for parameter in net.parameters()]


@pytest.mark.parametrize(("name", "implementation"), [("adamw", "fused"), ("adam", "fused")])
def test_torchs_fused_optimizers_do_what_the_others_do(name: str, implementation: str) -> None:
    for found, expected in zip(_trained(name, implementation, 5), _trained(name, "foreach", 5), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", ["lamb", "adamw", "adam"])
def test_apex_is_asked_for_what_ours_do_and_resumes(name: str, libraries: None) -> None:
    expected = _trained(name, "foreach", 6)
    straight, resumed = _trained(name, "apex", 6), _trained(name, "apex", 6, resume_after=3)
    for theirs, ours, again in zip(straight, expected, resumed, strict=True):
        torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=1e-5)
        assert torch.equal(theirs, again)
