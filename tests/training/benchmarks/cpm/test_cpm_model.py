"""Our CPM against transformers' GPT-2: the same weights give the same loss; and what its metrics are."""

import pytest
import torch

from tests.training.benchmarks.driver.training.tiny import benchmark_of, config_of
from training.benchmarks.cpm.pytorch.config import Config
from training.benchmarks.cpm.pytorch.model import Cpm

# Ours to GPT-2's; the latter keeps its matrices transposed.
_NAMES = {
    "input_layernorm": "ln_1",
    "attention.query_key_value": "attn.c_attn",
    "attention.dense": "attn.c_proj",
    "post_attention_layernorm": "ln_2",
    "mlp.dense_h_to_4h": "mlp.c_fc",
    "mlp.dense_4h_to_h": "mlp.c_proj",
}


def _model() -> tuple[Config, Cpm]:
    config = config_of("cpm")
    assert isinstance(config, Config)
    torch.manual_seed(0)
    model = Cpm(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    return config, model


def test_the_loss_is_that_of_gpt2() -> None:
    transformers = pytest.importorskip("transformers")  # takes a second to load
    config, ours = _model()
    theirs = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=config.vocab_size,
            n_positions=config.max_position_embeddings,
            n_embd=config.hidden_size,
            n_layer=config.num_layers,
            n_head=config.num_attention_heads,
            activation_function="gelu_new",
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=0,
            eos_token_id=0,
        )
    )
    weights = ours.state_dict()
    state = {
        "transformer.wte.weight": weights["word_embeddings.weight"],
        "transformer.wpe.weight": weights["position_embeddings.weight"],
        "transformer.ln_f.weight": weights["transformer.final_layernorm.weight"],
        "transformer.ln_f.bias": weights["transformer.final_layernorm.bias"],
        "lm_head.weight": weights["word_embeddings.weight"],
    }
    for layer in range(config.num_layers):
        for own, name in _NAMES.items():
            for part in ("weight", "bias"):
                tensor = weights[f"transformer.layers.{layer}.{own}.{part}"]
                state[f"transformer.h.{layer}.{name}.{part}"] = tensor.T if tensor.ndim == 2 else tensor
    theirs.load_state_dict(state)
    batch = benchmark_of("cpm").synthetic_data(config).train[[0, 1, 2]]
    batch["loss_mask"][1, 5:] = 0.0
    labels = batch["tokens"][:, 1:].masked_fill(batch["loss_mask"] == 0, -100)
    logits = theirs(batch["tokens"][:, :-1]).logits
    reference = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    assert float(ours.train()(batch)["loss"].detach()) == pytest.approx(float(reference.detach()), abs=1e-5)


def test_embedding_average_is_the_cosine_of_mean_embeddings() -> None:
    config, model = _model()
    batch = benchmark_of("cpm").synthetic_data(config).evaluation[[0, 1]]
    batch["loss_mask"][1, 3:] = 0.0
    table = model.word_embeddings.weight.detach()
    predicted = torch.randint(0, config.vocab_size, (2, config.seq_length))
    labels, mask = batch["tokens"][:, 1:], batch["loss_mask"]
    found = model._similarity(predicted, labels, mask)
    for row, length in enumerate((config.seq_length, 3)):
        a, b = table[predicted[row, :length]].mean(0), table[labels[row, :length]].mean(0)
        assert float(found[row].detach()) == pytest.approx(float(a @ b / a.norm() / b.norm()), abs=1e-5)
    assert model._similarity(labels, labels, mask).tolist() == pytest.approx([1.0, 1.0])
    results = model.eval()(batch)
    assert results["eval_embedding_average"][1] == 2
    assert results["eval_loss"][1] == config.seq_length + 3
    assert float(results["eval_loss"][0] / results["eval_loss"][1]) == pytest.approx(float(results["loss"]), rel=1e-5)
