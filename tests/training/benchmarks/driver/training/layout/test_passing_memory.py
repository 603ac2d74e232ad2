"""What a step holds beside weights, gradients and moments is estimated as passes in one process hold it: those of a
replica, or of the first or last stage of a pipeline in the order of 1F1B.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.training.benchmarks.driver.training.tiny import benchmark_of, config_of
from training.benchmarks.driver.training.layout.memory_estimate import HeldStorages, step_bytes
from training.benchmarks.driver.training.layout.stage_estimate import bytes_of_ranks, parameters_of_rank
from training.benchmarks.driver.training.model.model import parameter_count
from training.benchmarks.driver.training.model.pipeline import cut_to_rank
from training.benchmarks.driver.training.model.staged import StagedModel, hidden_dtype
from training.benchmarks.driver.training.settings.settings import TrainingConfig

STATES = 16  # bytes of a weight: in float32, its gradient and two moments
COMMON: dict[str, Any] = {
    "num_layers": 8, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "ffn_hidden_size": 176,
    "vocab_size": 256, "seq_length": 64, "train_batch_size": 1, "train_samples": 1, "attention": "sdpa",
}  # fmt: skip


class Passes:
    """Forward and backward passes of a model whose gradients are there; `most`: bytes held beside both."""

    def __init__(self, config: TrainingConfig, rank: int) -> None:
        benchmark, self.config = benchmark_of("llama"), config
        self.model: Any = benchmark.build_model(config).train()
        self.model.make_constants(torch.device("cpu"))
        self.model.recompute = config.recompute
        self.stage = None
        if config.pipeline_parallelism()[0] > 1:
            assert isinstance(self.model, StagedModel)
            [self.stage] = cut_to_rank(self.model, config, rank).values()
            self.stage.autocast = self._autocast
        self.batch = benchmark.synthetic_data(config).train[[0]]
        self.most, self._begun = 0, list[tuple[Tensor, Tensor]]()
        self._kept = [*self.batch.values()]
        for each in self.model.parameters():
            each.grad = torch.zeros_like(each)
            self._kept += [each, each.grad]
        self.held = HeldStorages()
        self.held.on_each(self._look)

    def _look(self) -> None:
        self.most = max(self.most, self.held.bytes({each.untyped_storage()._cdata for each in self._kept}))

    def _autocast(self) -> Any:
        return torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.config.precision == "bf16")

    def forward(self) -> None:
        hidden = torch.empty(0)
        if self.stage is None:
            with self._autocast():
                result = self.model(self.batch)["loss"]
        else:
            shape = self.model.hidden_shape(1, 1)
            hidden = torch.empty(shape, dtype=hidden_dtype(self.config), requires_grad=True)
            self._kept.append(hidden)
            result = self.stage(hidden, **self.batch)
        self._begun.append((hidden, result))

    def backward(self) -> None:
        _, result = self._begun.pop(0)
        gradient = torch.ones_like(result)
        self._kept.append(gradient)
        torch.autograd.backward(result, gradient)


def held(config: TrainingConfig, rank: int = 0) -> int:
    """The most that the passes of a step hold; what a stage receives is not counted."""
    passes, count = Passes(config, rank), config.gradient_accumulation_steps
    ahead = min(count, max(1, config.pipeline_parallelism()[0] - rank))
    with passes.held:
        for number in range(ahead + count):
            if number >= ahead:
                passes.backward()
            if number < count:
                passes.forward()
    return passes.most


@pytest.mark.nightly
@pytest.mark.parametrize(("seq_length", "most"), [(64, 1.1), (512, 1.4)])
def test_autocast_s_copies_of_layers_that_are_computed_again_are_together_in_the_forward_pass_alone(
    seq_length: int, most: float
) -> None:
    """Of long sequences the largest layer and the loss are counted although they do not meet."""
    more = {"seq_length": seq_length, "activation_checkpointing": True, "precision": "bf16"}
    config = config_of("llama", **COMMON | more)
    with torch.device("meta"):
        states = STATES * parameter_count(benchmark_of("llama").build_model(config))
    estimated = step_bytes(benchmark_of("llama"), config, 1, on_cpu=True) - states
    measured = held(config)
    assert 0.98 < estimated / measured < most, (estimated, measured)


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
@pytest.mark.parametrize("rank", [0, 3])
def test_the_gradient_of_the_embedding_and_of_the_head_counts_where_it_is_most_of_a_pass(
    rank: int, precision: str
) -> None:
    more = {"vocab_size": 8192, "seq_length": 8, "pipeline_parallel_size": 4, "gradient_accumulation_steps": 4}
    config = config_of("llama", **COMMON | more | {"num_layers": 4, "precision": precision})
    benchmark = benchmark_of("llama")
    states = STATES * parameters_of_rank(benchmark, config, rank)
    estimated, measured = bytes_of_ranks(benchmark, config, 4, on_cpu=True)[rank] - states, held(config, rank)
    assert measured > 4 * 8192 * 64
    assert 0.98 < estimated / measured < 1.25, (estimated, measured)


@pytest.mark.nightly
@pytest.mark.parametrize("rank", [0, 1])
def test_a_stage_that_is_computed_again_has_the_copies_of_all_its_layers_beside_those_of_its_ends(rank: int) -> None:
    more = {"num_layers": 32, "vocab_size": 2048, "pipeline_parallel_size": 2, "gradient_accumulation_steps": 2}
    config = config_of("llama", **COMMON | more | {"activation_checkpointing": True, "precision": "bf16"})
    benchmark = benchmark_of("llama")
    states = STATES * parameters_of_rank(benchmark, config, rank)
    estimated, measured = bytes_of_ranks(benchmark, config, 2, on_cpu=True)[rank] - states, held(config, rank)
    assert 0.98 < estimated / measured < 1.25, (estimated, measured)
