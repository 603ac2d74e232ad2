"""What a training step holds in a device's memory, found without one: by tensors that have shapes and no storage.

Weights, gradients and moments: 16 bytes a parameter (float32), over the shards. Activations: what autograd keeps of a
forward pass under autocast, each storage once, of a model with one and with two layers; every further layer adds the
difference. In addition the bfloat16 or float16 weights that autocast keeps during the pass, our LAMB's two temporary
copies of the gradients, and a layer that FSDP2 has put together. What the allocator loses by fragments, and CUDA's own
context, are RESERVED.
"""

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from training.benchmarks.driver.training.benchmark import TrainingBenchmark
from training.benchmarks.driver.training.model import parameter_count
from training.benchmarks.driver.training.settings import TrainingConfig

RESERVED = 0.10
_HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}


def step_bytes(benchmark: TrainingBenchmark[Any], config: TrainingConfig, world_size: int) -> float:
    """Peak of a step on one device, in bytes, RESERVED not counted."""
    with torch.device("meta"):
        parameters = parameter_count(benchmark.build_model(config))
    shards = world_size if config.strategy == "fsdp" else config.tensor_parallelism()[0]
    kept = (16 + (8 if config.optimizer == "lamb" else 0)) * parameters / shards
    one, two = (activation_bytes(benchmark, config, layers) for layers in (1, 2))
    layer = two - one
    if config.activation_checkpointing:  # of each further block its input, float32
        layer = 4 * config.train_batch_size * config.tokens_per_sample() * config.hidden_size
    if config.strategy == "fsdp":
        passing = 3 * 4 * parameters // config.num_layers  # of two blocks the weights, of one the gradients
    else:
        passing = 2 * parameters if config.precision in _HALF else 0
    return kept + passing + one + (config.num_layers - 1) * layer


def activation_bytes(benchmark: TrainingBenchmark[Any], config: TrainingConfig, layers: int) -> int:
    """Bytes that autograd keeps of a forward pass through `layers` layers, none of them computed again.

    The CPU kernels keep what those of CUDA do, but for the dropout of attention weights, which is left out.
    """
    changes: dict[str, Any] = {"num_layers": layers, "data": "synthetic", "attention": "sdpa", "eval_samples": 1}
    changes["train_samples"] = config.train_batch_size
    if hasattr(config, "unpad"):  # full samples: the most that a step may need
        changes |= {"unpad": False, "synthetic_lengths": "full"}
    if hasattr(config, "attention_dropout"):
        changes["attention_dropout"] = 0.0
    small = config.model_copy(update=changes)
    batch = benchmark.synthetic_data(small).train[list(range(config.train_batch_size))]
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage._cdata] = storage.nbytes()
        return tensor

    with FakeTensorMode(allow_non_fake_inputs=False) as mode:
        model = benchmark.build_model(small).train()
        model.make_constants(torch.device("cpu"))
        fake = {name: mode.from_tensor(tensor) for name, tensor in batch.items()}
        own = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
        own |= {tensor.untyped_storage()._cdata for tensor in fake.values()}
        enabled = config.precision in _HALF
        with (
            torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
            torch.autocast(
                "cpu", dtype=_HALF.get(config.precision, torch.bfloat16), enabled=enabled, cache_enabled=False
            ),
        ):
            loss = model(fake)["loss"]
        assert loss.requires_grad
        halves = sum(2 * parameter.numel() for parameter in model.parameters() if parameter.ndim > 1) if enabled else 0
    return sum(size for storage, size in kept.items() if storage not in own) - halves
