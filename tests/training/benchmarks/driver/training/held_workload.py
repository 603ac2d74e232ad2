"""Trains steps of tiny models on real ranks, and writes what a rank holds at most in the third one, in bytes.

    python -m tests.training.benchmarks.driver.training.held_workload <folder> <layouts.json>

layouts.json: {name: settings of llama}. <folder>/<name>.json: what was measured and estimated of rank 0, the first of a
pipeline. Of FSDP2 torch's own tracker counts all; of a pipeline what its passes hold beside parameters and their
gradients.
"""

import functools
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker

from tests.training.benchmarks.driver.training.ranks import start
from tests.training.benchmarks.driver.training.tiny import benchmark_of, config_of, trainer_of
from training.benchmarks.driver.training.layout.memory_estimate import HeldStorages, step_bytes
from training.benchmarks.driver.training.layout.stage_estimate import bytes_of_ranks, parameters_of_rank
from training.benchmarks.driver.training.settings.settings import TrainingConfig
from training.benchmarks.driver.training.trainer import Trainer
from training.benchmarks.driver.workload.placement import Placement
from training.benchmarks.driver.workload.process_group import init

RANKS = 4


def _steps(trainer: Trainer) -> Iterator[bool]:
    """Three steps; the last one counts: in the second one DDP divides gradients into buckets again."""
    batches = trainer.batches()
    for is_last in (False, False, True):
        yield is_last
        trainer.train_step(batches)


def _tracked(trainer: Trainer, steps: Callable[[], Iterator[bool]]) -> int:
    """The most that torch's tracker counts in a step: shards, what is gathered, gradients, moments, activations."""
    module: Any = trainer.model.module
    counted = steps()
    while not next(counted):
        pass
    tracker = FSDPMemTracker(module, trainer.optimizer)
    with tracker:
        # It takes each micro-batch for an iteration.
        handle = module.register_forward_pre_hook(lambda *_: tracker.reset_mod_stats(), prepend=True)
        next(counted, None)
        handle.remove()
    [of_device] = tracker.get_tracker_snapshot("peak").values()
    return int(of_device["Total"])


def _passing(trainer: Trainer, steps: Callable[[], Iterator[bool]]) -> int:
    """The most that a step holds beside parameters, their gradients and the optimizer, which buffers of earlier ones
    are part of; `steps` trains them, and says before each whether it counts.
    """
    parameters = [*trainer.model.module.parameters()]
    own = {each.untyped_storage()._cdata for each in parameters}
    held, most, counts = HeldStorages(), 0, False

    def look() -> None:
        nonlocal most
        if not counts:
            return
        gradients = {each.grad.untyped_storage()._cdata for each in parameters if each.grad is not None}
        of_optimizer = {
            each.untyped_storage()._cdata
            for state in trainer.optimizer.state.values()
            for each in state.values()
            if isinstance(each, torch.Tensor)
        }
        most = max(most, held.bytes(without=own | gradients | of_optimizer))

    held.on_each(look)
    with held:
        for is_last in steps():
            counts = is_last
    return most


def _estimated(config: TrainingConfig) -> float:
    benchmark = benchmark_of("llama")
    if config.pipeline_parallelism()[0] == 1:
        return step_bytes(benchmark, config, RANKS, on_cpu=True)
    states = 16 * parameters_of_rank(benchmark, config, 0)  # weights, gradients and two moments in float32
    return bytes_of_ranks(benchmark, config, RANKS, on_cpu=True)[0] - states


def _rank(rank: int, folder: Path, layouts: dict[str, dict[str, Any]]) -> None:
    torch.set_num_threads(1)
    place = Placement(rank=rank, world_size=RANKS, local_rank=rank, local_world_size=RANKS, nnodes=1)
    with init("gloo", timeout_s=200, placement=place) as group:
        for name, settings in layouts.items():
            config = config_of("llama", **settings)
            trainer = trainer_of("llama", config, group, folder / f"{name}.log")
            steps = functools.partial(_steps, trainer)
            if rank > 0:
                list(steps())
                continue
            measured = (_passing if config.strategy == "ddp" else _tracked)(trainer, steps)
            found = {"measured": measured, "estimated": _estimated(config)}
            (folder / f"{name}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    start(_rank, RANKS, Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text()))
