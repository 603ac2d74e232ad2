"""Keeps account of the samples that a rank has trained: a hash of their order, and whether all ranks share them out."""

import hashlib
from collections import deque

import numpy as np
from numpy.typing import NDArray

from training.benchmarks.driver.training.data.micro_batches import MicroBatches, Numbers

_FOLDED_AT = 256  # micro-batches whose numbers are kept before they are added up
_MASK = (1 << 64) - 1


class DataOrder:
    """The samples of one rank since the training began or was resumed.

    `digest` is the sha256 over the numbers of the samples in the order in which the model got them. `balance` is a sum
    of mixed numbers: of the samples that this rank has trained, less those of its equal part of all that the ranks
    should have trained. Over all data-parallel ranks it adds up to 0 modulo 2**64 if together they have trained each
    sample of their steps once.
    """

    def __init__(self, sampler: MicroBatches, *, dp_rank: int, dp_size: int, global_batch_size: int) -> None:
        self._sampler = sampler
        self._dp_rank, self._dp_size = dp_rank, dp_size
        self._global_batch_size = global_batch_size
        self._hash = hashlib.sha256()
        self._trained: deque[Numbers] = deque()
        self._balance = 0
        self._order, self._first_step, self._steps = sampler.order, 0, 0
        self.samples = 0

    def step(self, micro_batches: int) -> None:
        """Note a step: the model has got the next `micro_batches` of those that the sampler has handed out."""
        if self._order is not self._sampler.order:
            self._settle()
            self._order, self._first_step = self._sampler.order, self._sampler.first_step
        self._steps += 1
        for _ in range(micro_batches):
            numbers = self._sampler.handed_out.popleft()
            self._trained.append(numbers)
            self.samples += len(numbers)
        if len(self._trained) >= _FOLDED_AT:
            self._fold()

    def digest(self) -> str:
        """The sha256 of the order so far, in hex."""
        self._fold()
        return self._hash.hexdigest()

    def balance(self) -> int:
        """The balance so far, from 0 to 2**64 - 1."""
        self._settle()
        self._fold()
        return self._balance & _MASK

    def _settle(self) -> None:
        """Take this rank's part of the last steps' samples, which all ranks should have trained, from the balance."""
        first, count = self._first_step * self._global_batch_size, self._steps * self._global_batch_size
        begin, end = (first + count * part // self._dp_size for part in (self._dp_rank, self._dp_rank + 1))
        self._balance -= _mixed_sum(self._order[begin:end])
        self._first_step += self._steps
        self._steps = 0

    def _fold(self) -> None:
        if not self._trained:
            return
        numbers = np.concatenate(self._trained).astype(np.int64, copy=False)
        self._trained.clear()
        self._hash.update(numbers.tobytes())
        self._balance += _mixed_sum(numbers)


def _mixed_sum(numbers: NDArray[np.int64]) -> int:
    """The sum of the mixed numbers, modulo 2**64: the same for the same samples in any order.

    Source: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators" (2014), the finalizer of SplitMix.
    """
    mixed = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return int((mixed ^ (mixed >> np.uint64(31))).sum(dtype=np.uint64))
