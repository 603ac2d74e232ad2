"""The rule by which trainer, predict and sweep count what a layer keeps lists the tensors that torch saves."""

from typing import Any

import pytest
import torch

from simulation.predict.job_table import job_of, preset
from tests.training.benchmarks.driver.training.tiny import benchmark_of, config_of
from training.benchmarks.driver.training.layout import described, memory_estimate
from training.benchmarks.driver.training.layout.memory_estimate import activation_bytes
from training.benchmarks.driver.training.settings.settings import Recompute, TrainingConfig
from workloads.job import activations, memory

HEADS, KV_HEADS, SEQ = 8, 4, 256
RECOMPUTATIONS: list[Recompute] = ["none", "selective", "full"]


def llama(hidden: int = 512, **settings: Any) -> TrainingConfig:
    sizes: dict[str, Any] = {
        "hidden_size": hidden, "num_layers": 2, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
        "vocab_size": 1024, "ffn_hidden_size": 3 * hidden, "seq_length": SEQ, "precision": "bf16", "strategy": "fsdp",
        "compile_backend": None,
    }  # fmt: skip
    return config_of("llama", **(sizes | settings))


def counted(config: TrainingConfig) -> float:
    """Bytes of a layer that `layout = "auto"` counts."""
    job = described.described_job(config, world_size=8, per_node=8)
    assert job is not None
    return memory._kept(job, experts=False)


def predicted(config: TrainingConfig) -> float:
    """Bytes of a layer that `predict` counts for the job that the settings describe."""
    ranks, _ = config.tensor_parallelism()
    row = {
        **preset("llama3_8b"), **{key: str(value) for key, value in (config.described_model() or {}).items()},
        "gpu": "H100", "gpus": "8", "fsdp": "1", "tp": str(ranks), "mbs": str(config.train_batch_size), "gbs": "16",
        "head_dim": "", "compile": str(int(config.compile_backend is not None)),
        "recompute": "selective elementwise" if config.recompute == "selective" else config.recompute,
    }  # fmt: skip
    return memory._kept(job_of(row, "kept"), experts=False)


@pytest.mark.parametrize("is_cast", [False, True])
@pytest.mark.parametrize("recompute", RECOMPUTATIONS)
@pytest.mark.parametrize(("ranks", "batch", "hidden"), [(1, 1, 512), (1, 2, 256), (2, 1, 512), (4, 2, 256)])
def test_a_traced_layer_keeps_the_tensors_that_the_rule_lists(
    ranks: int, batch: int, hidden: int, recompute: Recompute, is_cast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside them: rotary angles in 16 bits, two for queries and for keys; of norms a number for each row, and weights
    that autocast has in 32 bits.
    """
    monkeypatch.setattr(described, "are_norms_cast", lambda: is_cast)
    activation_bytes.cache_clear()
    config = llama(
        hidden, tensor_parallel_size=ranks, sequence_parallel=ranks > 1, train_batch_size=batch,
        activation_checkpointing={"none": False, "full": True}.get(recompute, recompute),
    )  # fmt: skip
    one, two = (activation_bytes(benchmark_of("llama"), config, layers, recompute, "gpu") for layers in (1, 2))
    beside = 0
    if recompute == "none":
        beside = 4 * 2 * SEQ * hidden // HEADS + 2 * 4 * batch * SEQ // ranks + is_cast * 2 * 4 * hidden
    activation_bytes.cache_clear()
    assert two - one - beside == counted(config)
    if not is_cast:
        assert counted(config) == predicted(config)


def test_torch_saves_the_tensors_that_the_rule_lists() -> None:
    """A layer in bfloat16 on this CPU, its norms as one kernel: each storage that autograd's hooks see."""
    model: Any = benchmark_of("llama").build_model(llama()).to(torch.bfloat16)
    memory_estimate._fuse_norms(model, is_cast=False)
    model.make_constants(torch.device("cpu"))
    angles = model.cos.to(torch.bfloat16), model.sin.to(torch.bfloat16)
    own = {each.untyped_storage()._cdata for each in (*model.parameters(), *angles)}
    saved: list[torch.Tensor] = []

    def packed(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor)
        return tensor

    hidden = torch.randn(1, SEQ, 512, dtype=torch.bfloat16, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(packed, lambda tensor: tensor):
        result = model.blocks()[0](hidden, *angles)
    assert result.requires_grad
    storages = {each.untyped_storage()._cdata: each.untyped_storage().nbytes() for each in saved}
    rows_of_norms = 2 * 4 * SEQ
    sizes = activations.DecoderSizes(512, HEADS, KV_HEADS, 512 // HEADS, 3 * 512, gated=True)
    listed = activations.kept(activations.decoder_widths(sizes, 1, 1), keeping=activations.EAGER)
    held = sum(size for storage, size in storages.items() if storage not in own)
    assert held - rows_of_norms == sum(listed.values()) * SEQ
