"""The device tests, on whose rank 1 one bit of one product of the training flips, and one of what each test copies."""

import os
from contextlib import nullcontext

from tests.training.benchmarks.base.flipping import Flip
from training.benchmarks.base.pytorch import operations, twins
from training.benchmarks.base.pytorch.suite import main

if __name__ == "__main__":
    true_run, is_first = twins.Training.run, True

    def run(self: twins.Training) -> None:
        global is_first
        with Flip(70, 3) if os.environ["RANK"] == "1" and is_first else nullcontext():
            true_run(self)
        is_first = False

    copied = operations.Copy.run

    def copy(self: operations.Copy) -> None:
        if os.environ["RANK"] == "1":
            self._source[0] |= 1 << 40
        copied(self)

    twins.Training.run = run  # type: ignore[method-assign]
    operations.Copy.run = copy  # type: ignore[method-assign]
    main()
