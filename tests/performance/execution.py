"""What the executor of AICB workloads adds to the operations that it runs, against a hand-written loop of the same.

Two gloo ranks run both in the same process on the same buffer, turn and turn about. Hand-written loop: clock,
all_reduce, clock, append. Executor: an epoch of as many all_reduce rows through its runner, recorded in the op log; one
runner serves all rounds, as one serves all iterations of a run (made in a round it would let the other rank wait in its
first operation). At 1 MiB and 16 MiB the median over many short rounds of its time to the mean of two loops; the ratio
of these, 1 in truth, says how far the median can be trusted. Below that gloo's own scatter hides microseconds: there
the operation is a function that does nothing, and what is left is Python alone.
"""

import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.performance.ranks import SMOKE_OPTION, measured_by_ranks
from tests.performance.rows import Row
from tests.performance.training import median_interval

if TYPE_CHECKING:  # torch is imported by the ranks alone
    import torch

    from training.benchmarks.aicb.pytorch.running.execution import EpochSteps

SIZES = {1 << 20: (600, 20), 16 << 20: (90, 5)}
"""By bytes: rounds, and operations of a round."""
EMPTY = (25, 20_000)
SMOKE, SMOKE_EMPTY = (2, 3), (2, 100)
GOAL_RATIO, GOAL_US = 1.02, 3.0
_MARK = "execution-performance "


def measure(*, smoke: bool = False) -> list[Row]:
    """All figures, from one run of two ranks."""
    found = measured_by_ranks("tests.performance.execution", _MARK, ranks=2, smoke=smoke, timeout_s=300)
    rows = [
        Row(
            what=f"executor of workloads: an epoch of all_reduce of {size >> 20} MiB, 2 gloo ranks",
            measured=f"{found[str(size)]['executor_us']:.0f} us an operation",
            baseline=f"{found[str(size)]['loop_us']:.0f} us in a hand-written loop",
            ratio=found[str(size)]["ratio"],
            goal=f"at most 1.02 times (found {_interval(found[str(size)], 'ratio')}; two equal loops"
            f" {_interval(found[str(size)], 'control')}; medians of {found[str(size)]['rounds']:.0f} rounds with 95 %"
            " intervals)",
            met=found[str(size)]["ratio"] <= GOAL_RATIO,
        )
        for size in SIZES
    ]
    executor_us, loop_us = found["empty"]["executor_us"], found["empty"]["loop_us"]
    return [
        *rows,
        Row(
            what="executor of workloads: Python around an operation that does nothing",
            measured=f"{executor_us:.2f} us an operation",
            baseline=f"{loop_us:.2f} us in a hand-written loop",
            ratio=executor_us / loop_us,
            goal=f"at most 3 us an operation (found {executor_us:.2f} us)",
            met=executor_us <= GOAL_US,
        ),
    ]


def _interval(found: dict[str, float], name: str) -> str:
    return f"{found[name]:.4f}, {found[f'{name}_low']:.3f} to {found[f'{name}_high']:.3f}"


def _epoch(issue: Callable[[], None], operations: int) -> "EpochSteps":
    from training.benchmarks.aicb.pytorch.running.execution import EpochSteps, Step

    return EpochSteps([Step(place, issue, True, None) for place in range(operations)], operations)


def _loop_s(operation: Callable[[], None], operations: int) -> float:
    """Seconds of as many operations, each timed: what anybody would write."""
    times = []
    start = time.perf_counter()
    for _ in range(operations):
        begin = time.perf_counter()
        operation()
        times.append(time.perf_counter() - begin)
    return time.perf_counter() - start


def _compared(
    issue: Callable[[], None],
    by_hand: Callable[[], None],
    extent: tuple[int, int],
    meet: Callable[[], None],
) -> dict[str, float]:
    """Executor, loop and loop again, in an order drawn for each round: medians in us an operation, and of ratios.

    In one order, in turn, two equal loops differ by up to 4 %: what ran before a way counts. All ranks draw the same.
    extent: rounds, and operations of a round.
    """
    from training.benchmarks.aicb.pytorch.running.execution import HostRunner
    from workloads.oplog.recorder import OpRecorder

    rounds, operations = extent
    epoch = _epoch(issue, operations)
    runner = HostRunner(OpRecorder(rounds * epoch.records))
    ways = (
        lambda: runner.run(epoch, 1) / 1e9,
        lambda: _loop_s(by_hand, operations),
        lambda: _loop_s(by_hand, operations),
    )
    found: list[list[float]] = []
    order = random.Random(rounds)
    for _ in range(rounds):
        times = [0.0] * len(ways)
        for way in order.sample(range(len(ways)), len(ways)):
            meet()
            times[way] = ways[way]() / operations * 1e6
        found.append(times)
    runner.close()
    ratios = {
        "ratio": [2 * executor / (loop + again) for executor, loop, again in found],
        "control": [again / loop for _, loop, again in found],
    }
    figures: dict[str, float] = {
        "executor_us": statistics.median(executor for executor, *_ in found),
        "loop_us": statistics.median((loop + again) / 2 for _, loop, again in found),
        "rounds": rounds,
    }
    for name, values in ratios.items():
        low, high = median_interval(values)
        figures |= {name: statistics.median(values), f"{name}_low": low, f"{name}_high": high}
    return figures


def _bound(size: int) -> "tuple[torch.Tensor, Callable[[], None]]":
    """A buffer of `size` bytes, and its all_reduce as the executor issues it."""
    import torch
    import torch.distributed as dist

    from training.benchmarks.aicb.pytorch.running.operations import BoundCall
    from training.benchmarks.driver.workload.team import Team
    from workloads.rows.calls import Call
    from workloads.rows.ops import CommType
    from workloads.rows.ranks import Ranks

    arena = torch.zeros(size, dtype=torch.uint8)
    ranks = tuple(range(dist.get_world_size()))
    team = Team(ranks=ranks, rank=dist.get_rank(), device=arena.device)
    bound = BoundCall(Call(CommType.all_reduce, "all", Ranks.of(ranks), "float32", size, ""), team, arena, 0)
    return bound.output, bound.issue(is_async=False)  # type: ignore[return-value] # a blocking call returns nothing


def _main() -> None:
    """One rank of the run that `measure` starts."""
    smoke = SMOKE_OPTION in sys.argv
    import torch.distributed as dist

    from training.benchmarks.driver.workload.process_group import init

    with init("gloo", timeout_s=120) as group:
        found: dict[str, dict[str, float]] = {}
        for size, extent in SIZES.items():
            buffer, issue = _bound(size)

            def by_hand(buffer: "torch.Tensor" = buffer) -> None:
                dist.all_reduce(buffer)

            found[str(size)] = _compared(issue, by_hand, SMOKE if smoke else extent, dist.barrier)
        found["empty"] = _compared(_nothing, _nothing, SMOKE_EMPTY if smoke else EMPTY, _nothing)
        if group.placement.rank == 0:
            print(_MARK + json.dumps(found), flush=True)


def _nothing() -> None:
    """An operation that takes no time."""


if __name__ == "__main__":
    _main()
