"""Assigns samples to ranks and steps as a pure function of seed, epoch and step, so that a run can resume anywhere.

Needs no torch.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from training.benchmarks.driver.training.settings.schedule import TrainingSchedule

Numbers = NDArray[np.int64]
"""Numbers of samples, shape (n,). An array reaches a loader's worker process as it is; a tensor would be shared."""
Indices = Numbers | Sequence[int]


class OrderedSamples(Protocol):
    """A training set whose samples can be shuffled."""

    def epoch_order(self, seed: int) -> Numbers:
        """The numbers of all samples, shape (len,), in the order that the seed of an epoch determines."""
        ...


class MicroBatches(Iterable[Numbers]):
    """This rank's micro-batches of one epoch from `first_step` (0-based) on, in order.

    Step s of an epoch takes the samples s * global batch ... of the epoch's order. Micro-batch m of rank r takes the (m
    * dp_size + r)-th slice of these, so that the samples of a step do not depend on the number of ranks.
    """

    def __init__(
        self,
        samples: OrderedSamples,
        schedule: TrainingSchedule,
        *,
        micro_batch: int,
        dp_rank: int,
        dp_size: int,
        seed: int,
    ) -> None:
        self._samples = samples
        self._schedule = schedule
        self._micro_batch = micro_batch
        self._dp_rank = dp_rank
        self._dp_size = dp_size
        self._seed = seed
        self._epoch = 0
        self.first_step = 0
        self.order: Numbers = np.empty(0, dtype=np.int64)
        self.handed_out: deque[Numbers] = deque()

    def start(self, epoch: int, first_step: int) -> None:
        """Select the epoch (from 0) and the step in it with which the next iteration begins."""
        self._epoch, self.first_step = epoch, first_step
        self.handed_out.clear()

    def __iter__(self) -> Iterator[Numbers]:
        self.order = order = self._samples.epoch_order((self._seed << 20) + self._epoch)
        accumulation = self._schedule.global_batch_size // (self._micro_batch * self._dp_size)
        for step in range(self.first_step, self._schedule.steps_per_epoch):
            for micro in range(accumulation):
                slice_number = micro * self._dp_size + self._dp_rank
                begin = step * self._schedule.global_batch_size + slice_number * self._micro_batch
                self.handed_out.append(order[begin : begin + self._micro_batch])
                yield self.handed_out[-1]


class EvaluationBatches(Iterable[Numbers]):
    """This rank's share of the evaluation batches. All ranks get the same number, which sharded models need.

    A rank that runs out of batches repeats its first one; `counts(i)` is False where the i-th is such a repetition.
    """

    def __init__(self, length: int, *, batch_size: int, dp_rank: int, dp_size: int) -> None:
        self._length = length
        self._batch_size = batch_size
        self._dp_rank = dp_rank
        self._dp_size = dp_size
        self._batches = -(-length // batch_size)

    def __len__(self) -> int:
        return -(-self._batches // self._dp_size)

    def counts(self, position: int) -> bool:
        """Whether the batch at `position` of this rank's iteration belongs to the set and is no repetition."""
        return position * self._dp_size + self._dp_rank < self._batches

    def __iter__(self) -> Iterator[Numbers]:
        for position in range(len(self)):
            number = position * self._dp_size + self._dp_rank if self.counts(position) else 0
            yield np.arange(number * self._batch_size, min((number + 1) * self._batch_size, self._length))
