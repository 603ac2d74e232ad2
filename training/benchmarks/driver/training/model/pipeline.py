"""Runs the stages of a pipeline on their ranks: 1F1B or interleaved 1F1B by torch.distributed.pipelining."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from training.benchmarks.driver.training.model.model import LOSS, Batch
from training.benchmarks.driver.training.model.staged import Stage, StagedModel, hidden_dtype
from training.benchmarks.driver.training.settings.pipeline_settings import layers_of_stages
from training.benchmarks.driver.training.settings.settings import TrainingConfig

if TYPE_CHECKING:  # loading it costs each rank as much as a third of torch
    from torch.distributed.pipelining import Schedule1F1B, ScheduleInterleaved1F1B


def can_be_scheduled() -> bool:
    """Whether this torch's schedules take losses without outputs: since 2.10."""
    from torch.distributed.pipelining import Schedule1F1B

    return "return_outputs" in inspect.signature(Schedule1F1B.step).parameters


def cut_to_rank(model: StagedModel, config: TrainingConfig, rank: int) -> dict[int, Stage]:
    """Leave in `model` the layers of the rank with this place in its pipeline; returns its stages by number."""
    ranks, per_rank = config.pipeline_parallelism()
    layers = layers_of_stages(config.num_layers, ranks * per_rank)
    last = len(layers) - 1
    own = range(rank, len(layers), ranks)
    model.keep_part([*itertools.chain(*(layers[stage] for stage in own))], is_first=0 in own, is_last=last in own)
    blocks = iter(model.blocks())
    return {
        stage: Stage(model, [*itertools.islice(blocks, len(layers[stage]))], is_first=stage == 0, is_last=stage == last)
        for stage in own
    }


class Pipeline:
    """The stages of this rank beside those of the other ranks of its pipeline, with the same micro-batches on each of
    them, the ranks of `group`. `modules` are the stages by number, DDP's wrappers around them where there are any.
    """

    def __init__(
        self,
        model: StagedModel,
        modules: dict[int, nn.Module],
        config: TrainingConfig,
        mesh: DeviceMesh,
        device: torch.device,
    ) -> None:
        self._model, self._modules, self._config, self._device = model, modules, config, device
        self.group = mesh.get_group()
        self._stages = {number: _stage_of(module) for number, module in modules.items()}
        ranks, per_rank = config.pipeline_parallelism()
        self._count = ranks * per_rank
        self._ranks: list[int] = mesh.mesh.flatten().tolist()
        tp_size, is_sequence_parallel = config.tensor_parallelism()
        self._sequence_ranks = tp_size if is_sequence_parallel else 1
        self._dtype = hidden_dtype(config)
        self._schedule: Schedule1F1B | ScheduleInterleaved1F1B | None = None
        self._names: list[str] = []

    def _hidden(self, samples: int, device: torch.device | str) -> Tensor:
        shape = self._model.hidden_shape(samples, self._sequence_ranks)
        return torch.empty(shape, dtype=self._dtype, device=device)

    def _scheduled(self, batch: Batch) -> Schedule1F1B | ScheduleInterleaved1F1B:
        """A step's schedule for micro-batches of `batch`'s shapes, told so that no pass has to find them."""
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B

        if self._schedule is None:
            samples = len(next(iter(batch.values())))
            hidden = self._hidden(samples, "meta").requires_grad_()
            start = next(iter(batch.values())).to("meta")
            loss = torch.empty((), device="meta").requires_grad_()
            stages = [
                PipelineStage(
                    module,
                    number,
                    self._count,
                    self._device,
                    input_args=(start if number == 0 else hidden,),
                    output_args=(loss if number == self._count - 1 else hidden,),
                    group=self.group,
                )
                for number, module in self._modules.items()
            ]
            micro_batches = self._config.gradient_accumulation_steps
            if len(stages) == 1:
                self._schedule = Schedule1F1B(stages[0], micro_batches, loss_fn=_own_loss)
            else:
                self._schedule = ScheduleInterleaved1F1B(list(stages), micro_batches, loss_fn=_own_loss)
        return self._schedule

    def train_on(
        self,
        micro_batches: Sequence[Batch],
        autocast: Callable[[], AbstractContextManager[object]],
        loss_factor: float = 1.0,
    ) -> Tensor:
        """Add the gradients of the mean loss of all micro-batches of a step, times `loss_factor`, averaged over the
        data-parallel ranks; returns the mean loss, 0-d, on all ranks of the pipeline.
        """
        for stage in self._stages.values():
            stage.autocast, stage.loss_factor = autocast, loss_factor
        whole: dict[str, Any] = {
            name: torch.cat([batch[name] for batch in micro_batches]).to(self._device) for name in micro_batches[0]
        }
        start = next(iter(whole.values()))
        losses: list[Tensor] = []
        is_first, is_last = 0 in self._stages, self._count - 1 in self._stages
        self._scheduled(micro_batches[0]).step(
            *([start] if is_first else []),
            target=start if is_last else None,
            losses=losses,
            return_outputs=False,
            **whole,
        )
        for stage in self._stages.values():
            stage.autocast, stage.loss_factor = nullcontext, 1.0
        loss = torch.stack(losses).mean().detach() if is_last else torch.zeros((), device=self._device)
        dist.broadcast(loss, self._ranks[-1], group=self.group)
        return loss

    def train_on_one(
        self, sample: Batch, autocast: Callable[[], AbstractContextManager[object]], loss_factor: float
    ) -> None:
        """As train_on, for micro-batches of nothing but this sample, whose tensors have the shape (1, ...)."""
        config = self._config
        full = {name: tensor.expand(config.train_batch_size, *tensor.shape[1:]) for name, tensor in sample.items()}
        self.train_on([full] * config.gradient_accumulation_steps, autocast, loss_factor)

    @torch.no_grad()
    def evaluated(self, batch: Batch) -> dict[str, Tensor]:
        """The forward results through all stages, on all ranks of the pipeline; tensors are (samples, ...)."""
        samples = len(next(iter(batch.values())))
        batch = {name: tensor.to(self._device) for name, tensor in batch.items()}
        hidden = next(iter(batch.values()))
        results: Any = {}
        for number in range(self._count):
            module = self._modules.get(number)
            if module is None:
                continue
            if number > 0:
                hidden = self._hidden(samples, self._device)
                dist.recv(hidden, self._ranks[(number - 1) % len(self._ranks)], group=self.group)
            results = module(hidden, **batch)
            if number < self._count - 1:
                dist.send(
                    results.to(self._dtype).contiguous(),
                    self._ranks[(number + 1) % len(self._ranks)],
                    group=self.group,
                )
            for part in module.modules():
                if isinstance(part, FSDPModule):
                    part.reshard()
        return self._shared(results)

    def _shared(self, results: Any) -> dict[str, Tensor]:
        """The results of the last stage: a loss, 0-d, and pairs, on all ranks of the pipeline."""
        if not self._names:
            names = [list(results) if self._count - 1 in self._stages else []]
            dist.broadcast_object_list(names, self._ranks[-1], group=self.group, device=self._device)
            self._names = names[0]
        others = [name for name in self._names if name != LOSS]
        numbers = torch.zeros(1 + 2 * len(others), device=self._device)
        if self._count - 1 in self._stages:
            numbers = torch.cat([results[LOSS].float().reshape(1), *(results[name].float() for name in others)])
        dist.broadcast(numbers, self._ranks[-1], group=self.group)
        pairs = zip(others, numbers[1:].reshape(-1, 2), strict=True)
        return {LOSS: numbers[0], **dict(pairs)}


def _own_loss(loss: Tensor, _target: Tensor) -> Tensor:
    """The last stage computes the loss itself."""
    return loss


def _stage_of(module: nn.Module) -> Stage:
    found = module.module if isinstance(module, DistributedDataParallel) else module
    assert isinstance(found, Stage)
    return found
