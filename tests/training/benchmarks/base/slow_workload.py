"""The device tests on devices one of which, rank 1's, computes wrongly and copies slowly."""

import os
import time

from training.benchmarks.base.pytorch import operations, products
from training.benchmarks.base.pytorch.suite import main

if __name__ == "__main__":
    if os.environ["RANK"] == "1":
        multiply, copy = products.MatMul.run, operations.Copy.run

        def wrong(self: products.MatMul) -> None:
            multiply(self)
            self._product[0, 3] += 1

        def slow(self: operations.Copy) -> None:
            copy(self)
            time.sleep(0.1)

        products.MatMul.run = wrong  # type: ignore[method-assign]
        operations.Copy.run = slow  # type: ignore[method-assign]
    main()
