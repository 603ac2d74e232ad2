"""Estimates what a step of a pipeline holds in the memory of each of its ranks: as memory_estimate does.

A rank keeps the activations of the micro-batches whose backward pass is to come: with 1F1B as many as there are stages
from its own on, so that the first rank has the most; with more stages on a rank those of its warm-up. Under FSDP2 the
weights of its stages stay whole, and so do their gradients, until the last micro-batch.

Source: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM" (2021),
section 2.2.

Autocast copies the weights of a stage for each of its micro-batches in flight, unless the backward pass computes the
stage again: its cache lasts for one forward pass.
"""

from typing import Any

import torch

from training.benchmarks.driver.training.benchmark import TrainingBenchmark
from training.benchmarks.driver.training.layout import described
from training.benchmarks.driver.training.layout.memory_estimate import (
    Kernels,
    activation_bytes,
    kernels_for,
    peak_of_one_layer,
    step_bytes,
)
from training.benchmarks.driver.training.model.model import parameter_count
from training.benchmarks.driver.training.model.staged import StagedModel, hidden_dtype
from training.benchmarks.driver.training.settings.pipeline_settings import layers_of_stages
from training.benchmarks.driver.training.settings.settings import TrainingConfig
from workloads.job.model_states import HALF, SINGLE, ModelStates, fully_sharded, single_precision


def bytes_of_ranks(
    benchmark: TrainingBenchmark[Any],
    config: TrainingConfig,
    world_size: int,
    per_node: int = 8,
    on_cpu: bool = False,
    *,
    allocated: bool = False,
) -> list[float]:
    """A step's peak in bytes on each rank of a pipeline, or on one rank, without memory_estimate.RESERVED.

    allocated: as of step_bytes; the micro-batches of a pipeline leave gradients to one another.
    """
    ranks, _ = config.pipeline_parallelism()
    if ranks == 1:
        return [step_bytes(benchmark, config, world_size, per_node, on_cpu, allocated=allocated)]
    if not on_cpu:
        known = described.bytes_of_ranks(config, world_size=world_size, per_node=per_node, allocated=allocated)
        if known is not None:
            return known
    return traced_stages(benchmark, config, world_size, per_node, kernels_for(on_cpu, allocated=allocated))


def traced_stages(
    benchmark: TrainingBenchmark[Any], config: TrainingConfig, world_size: int, per_node: int, kernels: Kernels
) -> list[float]:
    """Peak bytes on each rank of a pipeline by tensors without storage."""
    shards = config.ranks_of_a_copy(world_size=world_size, per_node=min(per_node, world_size))
    return [
        _states(config, parameters_of_rank(benchmark, config, rank), shards)
        + _activations(benchmark, config, rank, kernels)
        for rank in range(config.pipeline_parallelism()[0])
    ]


def parameters_of_rank(benchmark: TrainingBenchmark[Any], config: TrainingConfig, rank: int) -> int:
    """Number of parameters of the stages of the rank with this place in its pipeline, before tensor parallelism."""
    stages = _stages(config)
    ranks, _ = config.pipeline_parallelism()
    own = range(rank, len(stages), ranks)
    with torch.device("meta"):
        model = benchmark.build_model(config)
    assert isinstance(model, StagedModel)
    layers = [layer for stage in own for layer in stages[stage]]
    model.keep_part(layers, is_first=0 in own, is_last=len(stages) - 1 in own)
    return parameter_count(model)


def micro_batches_of_rank(config: TrainingConfig, rank: int) -> int:
    """The most micro-batches that the stages of a rank keep at a time, each stage's counted."""
    ranks, per_rank = config.pipeline_parallelism()
    most = ranks - rank if per_rank == 1 else 2 * (ranks - rank - 1) + (per_rank - 1) * ranks + 1
    return min(most, config.gradient_accumulation_steps * per_rank)


def _stages(config: TrainingConfig) -> list[range]:
    ranks, per_rank = config.pipeline_parallelism()
    return layers_of_stages(config.num_layers, ranks * per_rank)


def _states(config: TrainingConfig, parameters: int, shards: int) -> float:
    moments = 4 if config.optimizer == "lamb" else 2
    own = parameters / config.tensor_parallelism()[0]
    is_half = config.precision == "bf16"
    if config.strategy == "ddp":
        return single_precision(own, moments, half_copy=is_half and config.recompute == "none").total
    whole = ((HALF if is_half else SINGLE) + SINGLE) * own
    return fully_sharded(own, shards, 0, 0, moments).plus(ModelStates(0, 0, 0, whole)).total


def _activations(benchmark: TrainingBenchmark[Any], config: TrainingConfig, rank: int, kernels: Kernels) -> float:
    """Activations, and the buffers in which the schedule receives those of each micro-batch and their gradients."""
    stages = _stages(config)
    ranks, _ = config.pipeline_parallelism()
    own = range(rank, len(stages), ranks)
    ends = 0 in own, len(stages) - 1 in own
    one, two = (activation_bytes(benchmark, config, layers, config.recompute, kernels, ends=ends) for layers in (1, 2))
    copied, gradient, of_ends = _copied_bytes(benchmark, config, rank)
    layer, outside = two - one, max(0, 2 * one - two + of_ends)
    deepest = max(len(stages[stage]) for stage in own)
    kept = micro_batches_of_rank(config, rank)
    below = (deepest - 1) * layer
    earlier = (kept - 1) * (deepest * layer + (outside if ends[0] else 0))
    last: float = peak_of_one_layer(benchmark, config, kernels, ends)
    links = (2 * len(own) - sum(ends)) * _received_bytes(config)
    if config.recompute == "none":
        last += max(0, kept - len(own)) * deepest * copied + gradient
    elif copied:
        forward = activation_bytes(benchmark, config, 1, config.recompute, kernels, peak="forward", ends=ends)
        last = max(forward + deepest * copied, last + copied + gradient) + of_ends
    return last + below + earlier + links


def _copied_bytes(benchmark: TrainingBenchmark[Any], config: TrainingConfig, rank: int) -> tuple[float, float, float]:
    """Bytes of the weights of a layer that autocast copies for a micro-batch, of its largest gradient in the cast, and
    of the ends' weights in 16 bits, which activation_bytes takes for those of _states.

    The gradients of both ends, and all gradients of float32 replicas, are part of the peak of a model of one layer with
    these ends. Copies that are kept until the backward pass are beside that of all of the rank's that _states has. If
    it computes the layers again, a stage's live for its forward pass, one layer's while that is recomputed.
    """
    if config.strategy != "ddp" or config.precision != "bf16":
        return 0, 0, 0
    with torch.device("meta"):
        block = benchmark.build_model(config).blocks()[0]
    largest = max(each.numel() for each in block.parameters())
    tp_size, _ = config.tensor_parallelism()
    layers = sum(map(len, _stages(config)[rank :: config.pipeline_parallelism()[0]]))
    ends = parameters_of_rank(benchmark, config, rank) - layers * parameter_count(block)
    return HALF * parameter_count(block) / tp_size, (HALF + SINGLE) * largest / tp_size, HALF * ends / tp_size


def _received_bytes(config: TrainingConfig) -> int:
    """Bytes of the outputs of a stage for all micro-batches of a step."""
    tp_size, is_sequence_parallel = config.tensor_parallelism()
    tokens = config.tokens_per_sample() // (tp_size if is_sequence_parallel else 1)
    samples = config.train_batch_size * config.gradient_accumulation_steps
    return samples * tokens * config.hidden_size * hidden_dtype(config).itemsize
