"""Recomputation changes no loss and no gradient; selective keeps the products, and less memory than none."""

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.utils._python_dispatch import TorchDispatchMode

from common.errors import InputProblems
from protocol.case_config import load_case_config
from tests.training.benchmarks.driver.training.tiny import MODELS, alone, benchmark_of, config_of
from training.benchmarks.driver.training.layout.memory_estimate import HeldStorages, activation_bytes
from training.benchmarks.driver.training.model import parallel
from training.benchmarks.driver.training.model.model import BenchmarkModel
from training.benchmarks.driver.training.model.recomputation import keeps
from training.benchmarks.driver.training.settings.settings import Recompute

KINDS: tuple[Recompute, ...] = ("none", "selective", "full")
SAMPLES = 4
CPU = torch.device("cpu")


def _model(name: str, kind: Recompute, **settings: Any) -> tuple[BenchmarkModel, dict[str, Tensor]]:
    """A model with dropout, where it has any, and a batch."""
    dropout = {} if name == "llama" else {"hidden_dropout": 0.1, "attention_dropout": 0.1}
    config = config_of(name, **dropout, **settings)
    torch.manual_seed(1)
    model: BenchmarkModel = benchmark_of(name).build_model(config)
    model.make_constants(CPU)
    model.recompute = kind
    return model.train(), benchmark_of(name).synthetic_data(config).train[list(range(SAMPLES))]


def _step(name: str, kind: Recompute, **settings: Any) -> tuple[int, list[Tensor]]:
    """Bytes that are held after the forward pass; the loss and the gradients."""
    model, batch = _model(name, kind, **settings)
    with HeldStorages() as held:
        loss = model(batch)["loss"]
        size = held.bytes(without=set())
    torch.autograd.backward(loss)
    return size, [loss.detach(), *(parameter.grad for parameter in model.parameters() if parameter.grad is not None)]


@pytest.mark.parametrize(("name", "attention"), [*((name, "sdpa") for name in MODELS), ("bert", "eager")])
def test_the_result_stays_and_selective_needs_less_memory_than_none_and_more_than_full(
    name: str, attention: str
) -> None:
    found = {kind: _step(name, kind, attention=attention) for kind in KINDS}
    sizes = [found[kind][0] for kind in KINDS]
    assert sizes == sorted(sizes, reverse=True) and len(set(sizes)) == len(KINDS)
    for kind in KINDS:
        assert all(torch.equal(a, b) for a, b in zip(found[kind][1], found["none"][1], strict=True)), kind


class _Calls(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the calls of each operator."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.found[func.name().partition(".")[0]] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["llama", "bert"])
def test_selective_computes_no_product_with_a_weight_and_no_fused_attention_twice(name: str) -> None:
    calls = {}
    for kind in KINDS:
        config = config_of(name)
        model: BenchmarkModel = benchmark_of(name).build_model(config).train()
        model.make_constants(CPU)
        model.recompute = kind
        batch = benchmark_of(name).synthetic_data(config).train[list(range(SAMPLES))]
        with _Calls() as counter:
            torch.autograd.backward(model(batch)["loss"])
        calls[kind] = counter.found
    kept = [operator for operator in calls["none"] if keeps(operator)]
    assert any("attention" in operator for operator in kept) and "aten::mm" in kept
    counts = {kind: [calls[kind][operator] for operator in kept] for kind in KINDS}
    assert counts["selective"] == counts["none"] and sum(counts["full"]) > sum(counts["none"])
    assert sum(calls["selective"].values()) > sum(calls["none"].values())


def test_whole_attentions_are_kept_and_scores_are_not() -> None:
    kept = [
        "aten::mm", "aten::addmm", "aten::_scaled_dot_product_flash_attention",
        "aten::_scaled_dot_product_efficient_attention", "aten::_scaled_dot_product_cudnn_attention",
        "aten::_scaled_dot_product_flash_attention_for_cpu", "flash_attn::_flash_attn_varlen_forward",
    ]  # fmt: skip
    assert [name for name in kept if not keeps(name)] == []
    again = ["aten::bmm", "aten::_softmax", "aten::native_layer_norm", "aten::gelu", "aten::silu", "aten::_to_copy"]
    assert [name for name in again if keeps(name)] == []
    assert all(hasattr(torch.ops.aten, name.partition("::")[2]) for name in [*kept[:-1], *again])


@pytest.mark.parametrize(("name", "precision"), [("llama", "bf16"), ("glm", "fp32")])
def test_a_further_layer_keeps_its_input_or_its_products_too(name: str, precision: str) -> None:
    config: Any = config_of(name, precision=precision)
    layer = {}
    for kind in KINDS:
        one, two, five = (activation_bytes(benchmark_of(name), config, layers, kind) for layers in (1, 2, 5))
        assert five == one + 4 * (two - one)
        layer[kind] = two - one
    assert layer["full"] == 4 * config.train_batch_size * config.tokens_per_sample() * config.hidden_size
    assert layer["none"] > layer["selective"] > 2 * layer["full"]


@pytest.mark.nightly
def test_the_compiler_keeps_the_products_too() -> None:
    """Saved bytes as torch's hooks see them, which see into no block that is compiled as one operator."""
    saved, results = {}, {}
    kinds: tuple[Recompute, ...] = ("none", "selective")
    for kind in kinds:
        torch.compiler.reset()
        model, batch = _model("llama", kind)
        parallel.compile_blocks(model, "aot_eager")
        kept: dict[int, int] = {}

        @torch.compiler.disable  # type: ignore[untyped-decorator]
        def keep(tensor: Tensor, kept: dict[int, int] = kept) -> Tensor:
            kept[tensor.untyped_storage()._cdata] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = model(batch)["loss"]
        torch.autograd.backward(loss)
        saved[kind] = sum(kept.values())
        results[kind] = [parameter.grad for parameter in model.parameters()]
    assert saved["none"] > saved["selective"] > saved["none"] / 2, "full recomputation keeps a fifth"
    torch.testing.assert_close(results["selective"], results["none"])


@pytest.mark.parametrize(
    ("value", "stored", "kind"),
    [(True, True, "full"), (False, False, "none"), ("full", True, "full"), ("none", False, "none"),
     ("selective", "selective", "selective")],
)  # fmt: skip
def test_words_and_truth_values_say_the_same(value: bool | str, stored: bool | str, kind: str) -> None:
    config = config_of("cpm", activation_checkpointing=value)
    assert (config.activation_checkpointing, config.recompute) == (stored, kind)


def test_a_wrong_word_is_named_with_what_is_allowed() -> None:
    with pytest.raises(
        InputProblems, match=r"activation_checkpointing = 'some': expected .*'none', 'selective', 'full'"
    ):
        load_case_config(MODELS["cpm"][1], None, {"activation_checkpointing": "some", "max_steps": 1})


@pytest.mark.parametrize("name", MODELS)
def test_sharded_blocks_in_bf16_recompute_what_they_computed(name: str) -> None:
    """FSDP2 casts the inputs of a block in the forward pass alone; torch refuses a recomputation of another type."""
    with alone():
        mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp"))
        layout = parallel.Layout(dp_rank=0, dp_size=1, shard_size=1, tp_size=1, sequence_parallel=False, mesh=mesh)
        found = {}
        for kind, setting in (("none", False), ("selective", True), ("full", "full")):
            config = config_of(name, precision="bf16", strategy="fsdp", activation_checkpointing=setting)
            with torch.device("meta"):
                model: BenchmarkModel = benchmark_of(name).build_model(config)
            wrapped = parallel.spread(model, layout, config, CPU)
            assert model.recompute == "none", "torch 2.11 and earlier recompute without the cast, seen from outside"
            model.make_constants(CPU)
            batch = benchmark_of(name).synthetic_data(config).train[list(range(SAMPLES))]
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = wrapped(batch)["loss"]
            torch.autograd.backward(loss)
            found[kind] = [loss.detach(), *(parameter.grad.to_local() for parameter in model.parameters())]  # type: ignore[union-attr]
    for kind in ("selective", "full"):
        assert all(torch.equal(a, b) for a, b in zip(found[kind], found["none"], strict=True)), kind
