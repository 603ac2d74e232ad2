"""Weights as Hugging Face publishes them: what transformers writes is read, and transformers reads what is written."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.training.benchmarks.driver.training.tiny import alone, benchmark_of, config_of, prepared
from training.benchmarks.driver.training.data import hugging_face
from training.benchmarks.driver.training.data.data_error import DataError
from training.benchmarks.driver.workload.usage import UnusableSettingsError
from training.benchmarks.llama.pytorch.config import Config
from training.benchmarks.llama.pytorch.model import Llama
from training.benchmarks.llama.pytorch.run_pretraining import LlamaBenchmark

ROPE = 500_000.0
SETTINGS: dict[str, Any] = {"rope_theta": ROPE}


@pytest.fixture(name="alone")
def one_process() -> Iterator[None]:
    with alone():
        yield


@pytest.fixture
def published(tmp_path: Path) -> tuple[Path, dict[str, torch.Tensor]]:
    """A LLaMA that transformers has written in several bfloat16 shards, and its weights."""
    transformers = pytest.importorskip("transformers")  # takes a second to load
    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, rms_norm_eps=1e-5, rope_theta=ROPE, tie_word_embeddings=False,
    )  # fmt: skip
    net = transformers.LlamaForCausalLM(config)
    for parameter in net.parameters():  # large enough for the loss to depend on every setting
        torch.nn.init.normal_(parameter, std=0.3)
    net = net.to(torch.bfloat16)
    net.save_pretrained(tmp_path / "llama", max_shard_size="20KB")
    assert len(list((tmp_path / "llama").glob("model-*.safetensors"))) > 2
    return tmp_path / "llama", net.state_dict()


def _prepared(path: Path, **settings: Any) -> Any:
    return prepared("llama", config_of("llama", **SETTINGS, init_checkpoint=str(path), **settings))


def test_shards_as_published_are_read(published: tuple[Path, dict[str, torch.Tensor]]) -> None:
    folder, weights = published
    for path in (folder, folder / "model.safetensors.index.json"):
        ready = _prepared(path)
        assert ready.weights.keys() <= weights.keys()
        assert all(torch.equal(weight, weights[name]) for name, weight in ready.weights.items())
        assert list(ready.files) == sorted(folder.glob("model-*.safetensors"))


def test_transformers_finds_the_same_loss_with_what_was_written(alone: None, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")  # takes a second to load
    benchmark, config = LlamaBenchmark(), config_of("llama", **SETTINGS)
    assert isinstance(config, Config)
    model = Llama(config).eval()
    model.make_constants(torch.device("cpu"))
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.data.normal_(0.0, 0.3, generator=generator)
    batch = benchmark_of("llama").synthetic_data(config).evaluation[[0, 1, 2]]
    with torch.no_grad():
        expected = float(model(batch)["loss"])
    for name, shard_bytes in (("several", 20_000), ("one", hugging_face.SHARD_BYTES)):
        folder = tmp_path / name
        hugging_face.write(folder, model, benchmark.published_facts(config), shard_bytes=shard_bytes)
        net = transformers.LlamaForCausalLM.from_pretrained(folder).eval()
        with torch.no_grad():
            loss = net(batch["tokens"], labels=batch["tokens"]).loss
        assert float(loss) == pytest.approx(expected, abs=1e-5)
        ready = _prepared(folder)
        assert all(torch.equal(ready.weights[key], value) for key, value in model.state_dict().items())
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == ["config.json", "model.safetensors"]
    assert not list(tmp_path.glob("*.partial"))


def test_the_rope_of_the_weights_is_the_one_that_transformers_uses(
    published: tuple[Path, dict[str, torch.Tensor]],
) -> None:
    """A wrong wavelength shows in no shape."""
    transformers = pytest.importorskip("transformers")  # takes a second to load
    folder, weights = published
    config: Any = config_of("llama", **SETTINGS)
    model = Llama(config).eval()
    model.load_state_dict({name: weights[name].float() for name in model.state_dict()})
    model.make_constants(torch.device("cpu"))
    batch = benchmark_of("llama").synthetic_data(config).evaluation[[0, 1, 2]]
    net = transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        theirs = float(net(batch["tokens"], labels=batch["tokens"]).loss)
        assert float(model(batch)["loss"]) == pytest.approx(theirs, abs=1e-5)


def _damage(folder: Path, what: str) -> None:
    first = min(folder.glob("model-*.safetensors"))
    index = folder / "model.safetensors.index.json"
    facts = json.loads((folder / "config.json").read_text())
    content = json.loads(index.read_text())
    match what:
        case "missing":
            first.unlink()
        case "cut":
            first.write_bytes(first.read_bytes()[:-100])
        case "text":
            first.write_text("<html>")
        case "index" | "large index":
            index.write_text("[]")
            os.truncate(index, 2 if what == "index" else 1 << 40)
        case "moved" | "unknown" | "outside":
            name = "model.layers.9.weight" if what == "unknown" else "lm_head.weight"
            content["weight_map"][name] = "../x.safetensors" if what == "outside" else first.name
            index.write_text(json.dumps(content))
        case "quantized":
            tensors = load_file(first)
            name = min(tensors)
            save_file(tensors | {name: tensors[name].to(torch.int8)}, first, {"format": "pt"})
        case "other model":
            other = facts | {"num_attention_heads": 8, "rope_scaling": {"a": 1}, "rope_parameters": None}
            (folder / "config.json").write_text(json.dumps(other))
        case "deep":
            (folder / "config.json").write_text("[" * 100_000)
        case "other rope":
            parameters = facts["rope_parameters"] | {"rope_theta": 10000.0}
            (folder / "config.json").write_text(json.dumps(facts | {"rope_parameters": parameters}))
        case "empty":
            for file in folder.iterdir():
                file.unlink()


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("missing", "model-00001-of-"),
        ("deep", "config.json: no JSON"),
        ("missing", ": no such file; model.safetensors.index.json names it"),
        ("cut", "broken safetensors file: "),
        ("text", "broken safetensors file: "),
        ("index", "model.safetensors.index.json: no index of safetensors files"),
        ("large index", "index.json: no index of safetensors files: [Errno 27] more than 67108864 bytes"),
        ("moved", "lacks lm_head.weight, which model.safetensors.index.json has in it"),
        ("quantized", ": does not hold weights as they are: model.embed_tokens.weight holds int8; expected float64, "),
        ("unknown", "lacks model.layers.9.weight, which model.safetensors.index.json has in it"),
        ("outside", "names '../x.safetensors', no file beside it"),
        ("other model", "is of another model: num_attention_heads is 8, the case has 4; rope_scaling is {'a': 1}"),
        ("other rope", "is of another model: rope_theta is 10000.0, the case has 500000.0"),
        ("empty", "has neither model.safetensors.index.json nor model.safetensors (init_checkpoint)"),
    ],
)
def test_what_is_wrong_with_the_files_is_named(
    what: str, said: str, published: tuple[Path, dict[str, torch.Tensor]]
) -> None:
    folder, _ = published
    _damage(folder, what)
    with pytest.raises(DataError) as caught:
        _prepared(folder)
    assert said in str(caught.value)


def test_a_tensor_is_taken_from_the_file_in_which_the_index_has_it(
    published: tuple[Path, dict[str, torch.Tensor]],
) -> None:
    folder, weights = published
    last = max(folder.glob("model-*.safetensors"))
    name = "model.embed_tokens.weight"
    assert name not in load_file(last)
    save_file(load_file(last) | {name: torch.zeros_like(weights[name])}, last, {"format": "pt"})
    ready = _prepared(folder)
    assert ready.weights is not None and torch.equal(ready.weights[name], weights[name])


def test_weights_of_other_shapes_are_refused(published: tuple[Path, dict[str, torch.Tensor]]) -> None:
    folder, _ = published
    (folder / "config.json").unlink()
    with pytest.raises(DataError, match=r"does not fit the model \(init_checkpoint\): model.embed_tokens.weight has"):
        _prepared(folder, vocab_size=128)


def test_no_weights_are_overwritten(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    with pytest.raises(UnusableSettingsError, match=r"save_weights: .*/here: already exists; choose a folder"):
        prepared("llama", config_of("llama", save_weights=str(tmp_path / "here")))
    with pytest.raises(UnusableSettingsError, match=r"save_weights: .*/none: no such folder"):
        prepared("llama", config_of("llama", save_weights=str(tmp_path / "none" / "w")))
