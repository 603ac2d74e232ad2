"""Tiny training cases that the tests of the trainer share; every model has two layers of 32."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from protocol.perflog import PerfLogger
from training.benchmarks.bert.pytorch.config import Config as BertConfig
from training.benchmarks.bert.pytorch.run_pretraining import BertBenchmark
from training.benchmarks.cpm.pytorch.config import Config as CpmConfig
from training.benchmarks.cpm.pytorch.run_pretraining import CpmBenchmark
from training.benchmarks.driver.training.benchmark import PreparedTraining, TrainingBenchmark, prepare
from training.benchmarks.driver.training.model.kernels import Libraries, choose
from training.benchmarks.driver.training.settings.settings import TrainingConfig
from training.benchmarks.driver.training.trainer import Trainer
from training.benchmarks.driver.workload.placement import Placement
from training.benchmarks.driver.workload.process_group import ProcessGroup
from training.benchmarks.driver.workload.run_context import WorkloadContext
from training.benchmarks.glm.pytorch.config import Config as GlmConfig
from training.benchmarks.glm.pytorch.run_pretraining import GlmBenchmark
from training.benchmarks.llama.pytorch.config import Config as LlamaConfig
from training.benchmarks.llama.pytorch.run_pretraining import LlamaBenchmark
from training.benchmarks.mixtral.pytorch.config import Config as MixtralConfig
from training.benchmarks.mixtral.pytorch.run_pretraining import MixtralBenchmark

STEPS = 20
GLOBAL_BATCH = 16
COMMON: dict[str, Any] = {
    "data": "synthetic",
    "train_samples": 128,  # 8 steps an epoch: 20 steps reach into the third
    "eval_samples": 24,
    "num_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "vocab_size": 64,
    "synthetic_tokens": 40,
    "train_batch_size": GLOBAL_BATCH // 2,
    "max_steps": STEPS,
    "learning_rate": 5e-3,
    "weight_decay": 0.1,
    "max_grad_norm": 1.0,
    "warmup": 0.2,
    "min_lr_ratio": 0.1,
    "optimizer": "adamw",
}
NO_DROPOUT: dict[str, Any] = {"hidden_dropout": 0.0, "attention_dropout": 0.0, "max_position_embeddings": 16}
MODELS: dict[str, tuple[type[TrainingBenchmark[Any]], type[TrainingConfig], dict[str, Any]]] = {
    "llama": (LlamaBenchmark, LlamaConfig, {"num_key_value_heads": 2, "ffn_hidden_size": 64, "seq_length": 16}),
    "cpm": (CpmBenchmark, CpmConfig, {"seq_length": 16, **NO_DROPOUT}),
    "bert": (
        BertBenchmark,
        BertConfig,
        {"ffn_hidden_size": 64, "max_seq_length": 16, "max_predictions_per_seq": 3, **NO_DROPOUT},
    ),
    "glm": (GlmBenchmark, GlmConfig, {"max_seq_length": 16, "num_choices": 3, "answer_length": 2, **NO_DROPOUT}),
}
# Trained by tests of their own, which share these tiny cases.
OTHERS: dict[str, tuple[type[TrainingBenchmark[Any]], type[TrainingConfig], dict[str, Any]]] = {
    "mixtral": (
        MixtralBenchmark,
        MixtralConfig,
        {"num_key_value_heads": 2, "ffn_hidden_size": 48, "seq_length": 16},
    ),
}
EVERY = MODELS | OTHERS


def config_of(model: str, **settings: Any) -> TrainingConfig:
    """The tiny case of a model, with some settings changed."""
    _, config_class, sizes = EVERY[model]
    return config_class.model_validate(COMMON | sizes | settings)


def benchmark_of(model: str) -> TrainingBenchmark[Any]:
    """The benchmark of that name."""
    return EVERY[model][0]()


def trainer_of(model: str, config: TrainingConfig, group: ProcessGroup, log: Path) -> Trainer:
    """A trainer on the open process group; its PerfLog is appended to `log`."""
    with log.open("a") as stream:
        logger = PerfLogger(group.placement.rank, stream)
        run = WorkloadContext(config=config, logger=logger, group=group, data_dir=None)
        return Trainer(benchmark_of(model), run, prepared(model, config))


def prepared(model: str, config: TrainingConfig, data_dir: Path | None = None) -> PreparedTraining:
    """What a rank on the CPU prepares."""
    benchmark = benchmark_of(model)
    return prepare(benchmark, config, data_dir, choose(config, benchmark.attentions, Libraries(torch.device("cpu"))))


def check_gradients(
    ours: torch.nn.Module, theirs: torch.nn.Module, loss: Any, reference: Any, atol: float = 1e-4, rtol: float = 1e-3
) -> None:
    """Check that our loss and its gradient of each parameter are those of a reference with the same names."""
    torch.testing.assert_close(loss, reference, atol=1e-5, rtol=0)
    loss.backward()
    reference.backward()
    gradients = {name: p.grad for name, p in theirs.named_parameters()}
    for name, parameter in ours.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, gradients[name], atol=atol, rtol=rtol)


@contextmanager
def alone() -> Iterator[ProcessGroup]:
    """A group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    try:
        place = Placement(rank=0, local_rank=0, world_size=1, local_world_size=1, nnodes=1)
        yield ProcessGroup(placement=place, device=torch.device("cpu"), backend="gloo")
    finally:
        dist.destroy_process_group()
