"""Which samples each rank sees: all of them, once, in an order that does not depend on the number of ranks."""

import os
import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.training.benchmarks.driver.training.tiny import config_of
from training.benchmarks.driver.training.data.hdf5 import Array
from training.benchmarks.driver.training.data.loader import SampleSet, TensorSet, loader
from training.benchmarks.driver.training.data.micro_batches import EvaluationBatches, Indices, MicroBatches
from training.benchmarks.driver.training.data.sharded_set import ShardedSet
from training.benchmarks.driver.training.model.model import Batch
from training.benchmarks.driver.training.settings.schedule import TrainingSchedule

CPU = torch.device("cpu")


def _numbers(count: int) -> TensorSet:
    return TensorSet({"n": torch.arange(count, dtype=torch.int32)})


class _Readers(SampleSet):
    """Samples that say which process has read them."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, indices: Indices) -> Batch:
        return {"reader": torch.tensor([os.getpid()] * len(indices))}


def test_the_workers_of_a_loader_stay_for_the_next_pass() -> None:
    passes = loader(_Readers(), EvaluationBatches(8, batch_size=2, dp_rank=0, dp_size=1), workers=2, device=CPU)
    first, second = ({int(batch["reader"][0]) for batch in passes} for _ in range(2))
    assert len(first) == 2 and os.getpid() not in first
    assert second == first


def _epoch(ranks: int, accumulation: int, epoch: int, first_step: int = 0) -> list[list[list[int]]]:
    """By step and rank the samples of an epoch of 50 with 12 a step."""
    samples, micro = _numbers(50), 12 // ranks // accumulation
    config = config_of("llama", train_batch_size=micro, gradient_accumulation_steps=accumulation)
    schedule = TrainingSchedule.of(config, dp_size=ranks, train_samples=50)
    steps: list[list[list[int]]] = []
    for rank in range(ranks):
        sampler = MicroBatches(samples, schedule, micro_batch=micro, dp_rank=rank, dp_size=ranks, seed=7)
        sampler.start(epoch, first_step)
        batches = list(sampler)
        for number in range(len(batches) // accumulation):
            if rank == 0:
                steps.append([])
            own = batches[number * accumulation : (number + 1) * accumulation]
            steps[number].append([index for batch in own for index in batch])
    return steps


@pytest.mark.parametrize(("ranks", "accumulation"), [(1, 1), (2, 1), (2, 3), (4, 1), (1, 4)])
def test_a_step_has_the_same_samples_however_it_is_shared(ranks: int, accumulation: int) -> None:
    found = [sorted(index for rank in step for index in rank) for step in _epoch(ranks, accumulation, 0)]
    assert found == [sorted(step[0]) for step in _epoch(1, 1, 0)]
    seen = [index for step in found for index in step]
    assert len(seen) == len(set(seen)) == 48, "four steps, no sample twice"


def test_epochs_differ_and_can_be_entered_midway() -> None:
    assert _epoch(2, 1, 0) != _epoch(2, 1, 1)
    assert _epoch(2, 1, 1, first_step=2) == _epoch(2, 1, 1)[2:]


@pytest.mark.parametrize(("length", "ranks", "batch"), [(10, 2, 4), (10, 3, 4), (3, 2, 4), (16, 2, 4), (1, 4, 1)])
def test_evaluation_counts_each_sample_once_in_equally_many_batches(length: int, ranks: int, batch: int) -> None:
    counted: list[int] = []
    lengths = set()
    for rank in range(ranks):
        sampler = EvaluationBatches(length, batch_size=batch, dp_rank=rank, dp_size=ranks)
        batches = list(sampler)
        lengths.add(len(batches))
        assert len(sampler) == len(batches) and all(map(len, batches))
        counted += [index for place, own in enumerate(batches) if sampler.counts(place) for index in own]
    assert sorted(counted) == list(range(length))
    assert len(lengths) == 1


@pytest.mark.parametrize("workers", [0, 2])
def test_the_loader_gives_whole_batches_and_leaves_the_random_state_alone(workers: int) -> None:
    sampler = EvaluationBatches(10, batch_size=4, dp_rank=0, dp_size=1)
    state = torch.get_rng_state()
    batches = [batch["n"].tolist() for batch in loader(_numbers(10), sampler, workers=workers, device=CPU)]
    assert batches == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert torch.equal(torch.get_rng_state(), state), "dropout would differ between a run and a resumed one"


def test_tensors_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match=r"different first dimensions: \[2, 3\]"):
        TensorSet({"a": torch.zeros(2), "b": torch.zeros(3)})


class _Shards(ShardedSet):
    """Three files of 4, 1 and 5 samples whose values are their numbers."""

    sizes = (4, 1, 5)

    def __init__(self) -> None:
        self.loads: list[str] = []
        super().__init__([Path(str(number)) for number in range(3)], self.sizes)

    def load(self, path: Path) -> dict[str, Array]:
        self.loads.append(path.name)
        return {"values": np.arange(self.sizes[int(path.name)]) + 10 * int(path.name)}

    def batch(self, rows: Any) -> Batch:
        return {"values": torch.tensor([int(shard["values"][row]) for shard, row in rows])}


def test_samples_of_shards_are_found_and_a_shard_is_loaded_once() -> None:
    shards = _Shards()
    assert len(shards) == 10
    assert shards.loads == ["0"], "the first is looked at when the set is opened, and stays"
    assert shards[[9, 0, 4, 3, 5]]["values"].tolist() == [24, 0, 10, 3, 20]
    assert sorted(shards.loads) == ["0", "1", "2"]
    order = shards.order(torch.Generator().manual_seed(1)).tolist()
    assert sorted(order) == list(range(10))
    owners = [next(n for n, end in enumerate((4, 5, 10)) if index < end) for index in order]
    assert sum(a != b for a, b in pairwise(owners)) == 2, "one shard after the other"
    shards.loads.clear()
    for begin in range(0, 10, 2):
        _ = shards[order[begin : begin + 2]]
    assert len(shards.loads) <= 3


def test_shards_travel_to_worker_processes_without_their_content() -> None:
    shards = _Shards()
    _ = shards[[0]]
    copy = pickle.loads(pickle.dumps(shards))
    assert copy[[5, 0]]["values"].tolist() == [20, 0]
