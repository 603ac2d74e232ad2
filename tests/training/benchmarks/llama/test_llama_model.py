"""Our LLaMA against transformers': the same weights give the same loss and gradients."""

import pytest
import torch

from tests.training.benchmarks.driver.training.tiny import benchmark_of, check_gradients, config_of
from training.benchmarks.llama.pytorch.config import Config
from training.benchmarks.llama.pytorch.model import Llama


@pytest.mark.parametrize(("kv_heads", "theta"), [(4, 10000.0), (2, 500000.0)])
def test_loss_and_gradients_are_those_of_transformers(kv_heads: int, theta: float) -> None:
    transformers = pytest.importorskip("transformers")  # takes a second to load
    config = config_of("llama", num_key_value_heads=kv_heads, rope_theta=theta)
    assert isinstance(config, Config)
    theirs = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            intermediate_size=config.ffn_hidden_size,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_attention_heads,
            num_key_value_heads=kv_heads,
            max_position_embeddings=config.seq_length,
            rms_norm_eps=config.norm_eps,
            rope_parameters={"rope_type": "default", "rope_theta": theta},
            tie_word_embeddings=False,
        )
    )
    torch.manual_seed(0)
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    ours = Llama(config)
    ours.load_state_dict(theirs.state_dict())
    ours.make_constants(torch.device("cpu"))
    batch = benchmark_of("llama").synthetic_data(config).train[[0, 1, 2]]
    loss, reference = ours.train()(batch)["loss"], theirs(batch["tokens"], labels=batch["tokens"]).loss
    check_gradients(ours, theirs, loss, reference)
