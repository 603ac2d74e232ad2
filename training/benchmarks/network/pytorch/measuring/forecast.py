"""Predicts how long the rounds of a pattern take, by rehearsing one of them."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from training.benchmarks.driver.workload.process_group import ProcessGroup
from training.benchmarks.network.patterns.schedule import ConcurrentGroups
from training.benchmarks.network.pytorch.config import Config
from training.benchmarks.network.pytorch.measuring.lineup import team_of
from training.benchmarks.network.pytorch.measuring.timing import SETTLING, measure
from training.benchmarks.network.pytorch.operations.variants import created

_REHEARSED = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """Seconds of a round: to open its groups and their connections, and to measure all sizes once."""

    open_s: float
    measure_s: float

    def seconds(self, rounds: int, repeats: int, *, opened: int) -> float:
        """Seconds of `rounds`, each measured `repeats` times; groups are opened `opened` times."""
        return opened * self.open_s + rounds * repeats * self.measure_s


def rehearse(this_round: ConcurrentGroups, group: ProcessGroup, config: Config, sizes: Sequence[int]) -> Forecast:
    """Measure every size, in bytes, of a round with few iterations; all ranks call this, each gets its own forecast."""
    plain = {"cuda_graph": False, "aggregate": 1, "check_interval": 0}
    few = config.model_copy(update={"warmup_iterations": 1, "iterations": _REHEARSED, **plain})
    begin = time.perf_counter()
    opened = measured = 0.0
    full = config.warmup_iterations + config.iterations + config.check
    if config.check_interval:
        full += (config.iterations - 1) // config.check_interval * (1 + SETTLING)
    with team_of(this_round, group) as mine:
        collective = created(config, mine[1]) if mine else None
        opened = time.perf_counter() - begin
        for size in sizes if mine and collective is not None else ():
            assert mine is not None and collective is not None
            # The first operations open connections.
            for is_second in (False, True):
                begin = time.perf_counter()
                collective.prepare(size)
                measure(collective, mine[1], few)
                seconds = time.perf_counter() - begin
                if is_second:
                    measured += seconds * full / (1 + _REHEARSED + config.check)
                else:
                    opened += seconds
    return Forecast(open_s=opened, measure_s=measured)


def in_words(seconds: float) -> str:
    """A duration: 12 s, 3 min, 2.5 h."""
    if seconds < 120:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
