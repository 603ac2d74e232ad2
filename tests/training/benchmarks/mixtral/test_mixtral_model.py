"""Our Mixtral against transformers': the same weights give the same loss, the router's included, and gradients."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from tests.training.benchmarks.driver.training.tiny import alone, benchmark_of, check_gradients, config_of, prepared
from training.benchmarks.driver.training.data import hugging_face
from training.benchmarks.driver.training.data.data_error import DataError
from training.benchmarks.driver.training.model.experts import Experts, has_grouped_products, mixtures
from training.benchmarks.mixtral.pytorch.config import Config
from training.benchmarks.mixtral.pytorch.model import Mixtral


def theirs_of(config: Config) -> Any:
    """transformers' model of these settings, whose loss has the router's in it."""
    transformers = pytest.importorskip("transformers")  # takes a second to load
    return transformers.MixtralForCausalLM(
        transformers.MixtralConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            intermediate_size=config.ffn_hidden_size,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_attention_heads,
            num_key_value_heads=config.num_key_value_heads,
            max_position_embeddings=config.seq_length,
            rms_norm_eps=config.norm_eps,
            rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
            num_local_experts=config.num_experts,
            num_experts_per_tok=config.experts_per_token,
            router_aux_loss_coef=config.router_aux_loss_coef,
            output_router_logits=True,
            sliding_window=None,
            tie_word_embeddings=False,
        )
    )


@pytest.mark.parametrize(
    ("experts", "chosen", "is_grouped"), [(8, 2, True), (8, 2, False), (5, 3, False), (3, 1, True)]
)
def test_loss_and_gradients_are_those_of_transformers(experts: int, chosen: int, is_grouped: bool) -> None:
    config = config_of("mixtral", num_experts=experts, experts_per_token=chosen, router_aux_loss_coef=0.3)
    assert isinstance(config, Config)
    theirs = theirs_of(config)
    torch.manual_seed(0)
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    ours = Mixtral(config)
    ours.load_state_dict(theirs.state_dict())
    ours.make_constants(torch.device("cpu"))
    for layer in mixtures(ours):
        layer.experts.is_grouped = is_grouped
    batch = benchmark_of("mixtral").synthetic_data(config).train[[0, 1, 2]]
    loss, reference = ours.train()(batch)["loss"], theirs(batch["tokens"], labels=batch["tokens"])
    assert float(reference.aux_loss.detach()) > 0.9 * chosen, "the router's loss is in the loss"
    check_gradients(ours, theirs, loss, reference.loss)


def test_the_load_of_a_step_is_that_of_its_tokens() -> None:
    """The most loaded expert over the mean, counted one token after the other."""
    config = config_of("mixtral", num_layers=1)
    assert isinstance(config, Config)
    model = benchmark_of("mixtral").build_model(config).train()
    model.make_constants(torch.device("cpu"))
    seen: list[torch.Tensor] = []
    mixtures(model)[0].gate.register_forward_hook(lambda _module, _inputs, result: seen.append(result))
    assert model.figures() == {}
    model(benchmark_of("mixtral").synthetic_data(config).train[[0, 1]])
    loads = [0] * config.num_experts
    for row in seen[0].tolist():
        for _ in range(config.experts_per_token):
            loads[row.index(max(row))] += 1
            row[row.index(max(row))] = float("-inf")
    assert sum(loads) == 2 * config.seq_length * config.experts_per_token
    assert model.figures() == {"expert_load": pytest.approx(max(loads) / (sum(loads) / len(loads)))}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_kernel_and_a_loop_find_the_same_also_for_an_expert_without_tokens(dtype: torch.dtype) -> None:
    if not has_grouped_products(torch.device("cpu"), dtype):
        pytest.skip("this torch has no such kernel for the CPU")
    torch.manual_seed(1)
    experts = Experts(4, 32, 48).to(dtype)
    for parameter in experts.parameters():
        nn.init.normal_(parameter, std=0.2)
    rows, counts = torch.randn(9, 32, dtype=dtype), torch.tensor([3, 0, 5, 1])
    found = []
    for experts.is_grouped in (True, False):
        result = experts(rows, counts)
        found.append((result, *torch.autograd.grad(result.float().square().sum(), list(experts.parameters()))))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)
    assert not found[0][1][1].any() and found[0][1][2].any()


def test_a_device_without_the_kernel_takes_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    assert has_grouped_products(torch.device("cpu"), torch.bfloat16)

    def refused(*_: Any, **__: Any) -> torch.Tensor:
        raise NotImplementedError("grouped_mm: no kernel for this device")

    monkeypatch.setattr(nn.functional, "grouped_mm", refused)
    config = config_of("mixtral")
    assert isinstance(config, Config)
    model = Mixtral(config)
    model.make_constants(torch.device("cpu"))
    assert not any(layer.experts.is_grouped for layer in mixtures(model))
    assert "loss" in model.train()(benchmark_of("mixtral").synthetic_data(config).train[[0]])


@pytest.fixture(name="alone")
def one_process() -> Iterator[None]:
    with alone():
        yield


@pytest.mark.parametrize("experts", [8, 1])
def test_weights_are_read_and_written_by_the_names_of_the_published_files(
    experts: int, alone: None, tmp_path: Path
) -> None:
    """As transformers writes them, which has Mixtral's published files as its measure; the router's loss they were
    trained with may be another one.
    """
    config = config_of("mixtral", router_aux_loss_coef=0.3, num_experts=experts, experts_per_token=min(2, experts))
    assert isinstance(config, Config)
    theirs = theirs_of(config.model_copy(update={"router_aux_loss_coef": 0.02}))
    torch.manual_seed(0)
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    theirs.save_pretrained(tmp_path / "theirs", max_shard_size="20KB")
    files = hugging_face.files_of(tmp_path / "theirs")
    published = {name: tensor for file in files for name, tensor in load_file(file).items()}
    assert len(files) > 2 and f"model.layers.1.block_sparse_moe.experts.{experts - 1}.w2.weight" in published
    ready = prepared("mixtral", config.model_copy(update={"init_checkpoint": str(tmp_path / "theirs")}))
    assert ready.weights is not None
    torch.testing.assert_close(dict(ready.weights), {**theirs.state_dict()}, rtol=0, atol=0)

    model = Mixtral(config)
    model.load_state_dict(dict(ready.weights))
    benchmark = benchmark_of("mixtral")
    facts, names = benchmark.published_facts(config), benchmark.published_names(config)
    hugging_face.write(tmp_path / "ours", model, facts, names, shard_bytes=60_000)
    written = hugging_face.read(tmp_path / "ours")
    torch.testing.assert_close(written, published, rtol=0, atol=0)
    again = type(theirs).from_pretrained(tmp_path / "ours")
    torch.testing.assert_close(dict(again.state_dict()), dict(theirs.state_dict()), rtol=0, atol=0)


def test_experts_that_files_lack_are_named_as_they_are_there(tmp_path: Path) -> None:
    config = config_of("mixtral", num_experts=5, experts_per_token=3)
    assert isinstance(config, Config)
    theirs_of(config).save_pretrained(tmp_path / "five")
    settings = {"num_experts": 8, "experts_per_token": 3, "init_checkpoint": str(tmp_path / "five")}
    (tmp_path / "five" / "config.json").unlink()
    with pytest.raises(DataError, match=r"layers\.0\.block_sparse_moe\.experts\.5\.w1\.weight is missing"):
        prepared("mixtral", config_of("mixtral", **settings))
