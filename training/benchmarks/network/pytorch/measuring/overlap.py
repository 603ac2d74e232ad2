"""Measures all_reduce beside matrix products: how much of the shorter one the longer one hides.

The products are so many that they take about as long as all_reduce alone. Of the times c (communication), p (products)
and b (both at once) the overlap is (c + p - b) / min(c, p): 1 if the shorter one costs nothing, 0 if they run one after
the other, below 0 if they hinder each other.

Source: the question is that of SuperBench's computation-communication-overlap, which shows the time b.
"""

from collections.abc import Iterator
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from common.bandwidth import CONVENTION
from training.benchmarks.driver.workload.run_context import WorkloadContext
from training.benchmarks.driver.workload.statistics import MICROSECONDS
from training.benchmarks.driver.workload.team import Team, slowest_rank
from training.benchmarks.network.pytorch.config import Config
from training.benchmarks.network.pytorch.measuring.compute import MatrixProducts
from training.benchmarks.network.pytorch.measuring.memory import fitting_sizes
from training.benchmarks.network.pytorch.measuring.output import Output
from training.benchmarks.network.pytorch.measuring.stepping import StepsOfAll, measured_once
from training.benchmarks.network.pytorch.measuring.timing import timer_of
from training.benchmarks.network.pytorch.operations.reductions import AllReduce
from training.benchmarks.network.pytorch.operations.variants import created

ALONE, BESIDE = "alone", "beside compute"


class AllReduceBesideProducts(AllReduce):
    """all_reduce that is started, then matrix products, then the wait for it. `products` is how many."""

    def __init__(self, team: Team, dtype: torch.dtype, seed: int, compute: MatrixProducts) -> None:
        super().__init__(team, dtype, seed)
        self._compute = compute
        self.products = 0

    def run(self) -> None:
        work = dist.all_reduce(self.wired, self.reduce_op, group=self.team.handle, async_op=True)
        self._compute.queue(self.products)
        work.wait()


class Overlap:
    """The measurements of a case with the tool overlap. All ranks make it together."""

    def __init__(self, run: WorkloadContext[Config]) -> None:
        self._run = run
        self._team = Team.world(run.group)
        self._sizes, self.skipped = fitting_sizes(run, created(run.config, self._team))
        self._compute = MatrixProducts(run.group.device)
        self.total_steps = 2 * len(self._sizes)

    def forecast(self, output: Output) -> dict[str, Any]:
        """Nothing: it takes seconds."""
        return {}

    def steps(self, output: Output) -> Iterator[dict[str, Any]]:
        """Measure each size alone and beside compute; yields the value of each STEP_END."""
        output.header("all_reduce", CONVENTION)
        config, team = self._run.config, self._team
        collective = AllReduceBesideProducts(team, getattr(torch, config.dtype), config.seed, self._compute)
        steps, numbers = StepsOfAll(self._run, output), count(1)

        def step(size: int, variant: str, more: dict[str, float]) -> dict[str, Any]:
            place: dict[str, Any] = {"step": next(numbers), "total_steps": self.total_steps}
            place |= {"collective": "all_reduce", "variant": variant}
            return steps.step(place, lambda: measured_once(config, team, collective, size, "all_reduce") | more)

        for size in self._sizes:
            alone = step(size, ALONE, {})
            yield alone
            collective.products = max(1, round(alone["time_us"]["p50"] / MICROSECONDS / self._compute.product_s))
            collective.products = self._of_first(collective.products)
            yield step(size, BESIDE, {"compute_us": self._compute_us(collective.products)})
            collective.products = 0

    def _of_first(self, number: int) -> int:
        """Rank 0's number, on every rank: the products are the same everywhere."""
        shared = torch.tensor(number, dtype=torch.int64, device=self._team.device)
        dist.broadcast(shared, src=0)
        return int(shared)

    def _compute_us(self, products: int) -> float:
        """Median microseconds of the products alone, of the slowest rank."""
        elapsed_s = timer_of(self._team)
        operation = partial(self._compute.queue, products)
        times_s = np.array([elapsed_s(operation, self._team) for _ in range(self._run.config.iterations)])
        return float(np.median(slowest_rank(times_s, self._team))) * MICROSECONDS
