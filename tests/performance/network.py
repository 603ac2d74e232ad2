"""What the network benchmark's harness adds to the operation that it measures, against a bare loop beside it.

Two gloo ranks run both in the same process on the same buffer (two buffers lie differently in the caches, which makes a
percent or two), turn and turn about in short blocks, so that whatever else happens on the machine hits both. Bare loop:
barrier, clock, all_reduce, clock. Harness: `measure`, with warm-up and check. Beside them torch.utils.benchmark.Timer
over the same all_reduce: a mean, back to back, without a barrier.

1 MiB: the median over pairs of blocks of p50(harness) / p50(bare), with its 95 % interval. 4 KiB: what lies inside the
harness's two clock reads beside the operation itself, which reads the clock first and last; the difference of two
medians would drown in gloo's own scatter, hundreds of microseconds here.
"""

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.performance.rows import Row

if TYPE_CHECKING:  # torch is imported by the ranks alone
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from training.benchmarks.network.pytorch.reductions import AllReduce

ROOT = Path(__file__).resolve().parents[2]
LARGE, SMALL = 1 << 20, 4 << 10
PAIRS, ITERATIONS = 300, 20
TIMER_EVERY = 10
SMALL_OPERATIONS = 1000
GOAL_RATIO, GOAL_US = 1.01, 5.0
_MARK = "network-performance "


def measure() -> list[Row]:
    """Both figures, from one run of two ranks."""
    argv = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "-m", "tests.performance.network"]
    result = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    lines = [line for line in result.stdout.splitlines() if line.startswith(_MARK)]
    if result.returncode or len(lines) != 1:
        raise RuntimeError(f"{' '.join(argv)} left with {result.returncode}: {result.stderr[-2000:]}")
    found = json.loads(lines[0].removeprefix(_MARK))
    ratio, harness_us, bare_us = found["ratio"], found["harness_us"], found["bare_us"]
    added_us, small_us = found["added_us"], found["small_us"]
    low, high, timer_us = found["low"], found["high"], found["timer_us"]
    return [
        Row(
            what="network harness: all_reduce of 1 MiB, 2 gloo ranks, p50",
            measured=f"{harness_us:.0f} us",
            baseline=f"{bare_us:.0f} us in a bare loop",
            ratio=ratio,
            goal=f"under 1 % over the bare loop (paired, 95 % interval {low:.3f} to {high:.3f})",
            met=ratio < GOAL_RATIO,
        ),
        Row(
            what="network harness: all_reduce of 1 MiB beside torch.utils.benchmark.Timer",
            measured=f"{harness_us:.0f} us, p50, each from a barrier",
            baseline=f"{timer_us:.0f} us, Timer's mean, back to back",
            ratio=harness_us / timer_us,
            goal="none: another statistic, shown beside",
            met=True,
        ),
        Row(
            what="network harness: time added to an all_reduce of 4 KiB, p50",
            measured=f"{small_us + added_us:.1f} us",
            baseline=f"{small_us:.1f} us for the operation alone",
            ratio=(small_us + added_us) / small_us,
            goal=f"under 5 us an operation (found {added_us:.2f} us)",
            met=added_us < GOAL_US,
        ),
    ]


def _bare_loop(buffer: "torch.Tensor") -> "NDArray[np.float64]":
    """Seconds of each all_reduce on this rank: what anybody would write."""
    import numpy as np
    import torch.distributed as dist

    times = []
    for iteration in range(-1, ITERATIONS):  # one of them to warm up, as the harness has it
        dist.barrier()
        begin = time.perf_counter()
        dist.all_reduce(buffer)
        if iteration >= 0:
            times.append(time.perf_counter() - begin)
    return np.array(times)


def _added(collective: "AllReduce") -> tuple[float, float]:
    """(added, operation): medians in microseconds of what the harness's window holds beside and in the operation."""
    from training.benchmarks.network.pytorch import timing

    inner: list[float] = []

    def operation() -> None:
        begin = time.perf_counter()
        collective.run()
        inner.append(time.perf_counter() - begin)

    windows = []
    for _ in range(SMALL_OPERATIONS):
        collective.refill()
        windows.append(timing.cpu_time(operation, collective.team))
    added = statistics.median(window - alone for window, alone in zip(windows, inner, strict=True))
    return added * timing.MICROSECONDS, statistics.median(inner) * timing.MICROSECONDS


def _main() -> None:
    """One rank of the run that `measure` starts."""
    import torch
    import torch.distributed as dist
    from torch.utils.benchmark import Timer

    from training.benchmarks.driver.process_group import init
    from training.benchmarks.network.pytorch import timing
    from training.benchmarks.network.pytorch.reductions import AllReduce
    from training.benchmarks.network.pytorch.team import Team
    from training.benchmarks.network.samples import median_of

    with init("gloo", timeout_s=120) as group:
        team = Team.world(group)
        collective = AllReduce(team, torch.float32, seed=42)
        collective.prepare(LARGE)
        timer = Timer("all_reduce(buffer)", globals={"all_reduce": dist.all_reduce, "buffer": collective.buffer})

        def harness_p50() -> float:
            measured = timing.measure(collective, team, warmup=1, iterations=ITERATIONS, check=True)
            return measured.time_us.p50

        def bare_p50() -> float:
            collective.refill()
            times = timing.slowest_rank(_bare_loop(collective.buffer), team)
            return timing.statistics(times * timing.MICROSECONDS).p50

        pairs, timer_s = [], []
        for index in range(PAIRS):
            first, second = (harness_p50, bare_p50) if index % 2 else (bare_p50, harness_p50)
            values = (first(), second())
            pairs.append(values if index % 2 else values[::-1])
            if index % TIMER_EVERY == 0:
                collective.refill()
                dist.barrier()
                timer_s.append(timer.timeit(ITERATIONS).mean)
        collective.prepare(SMALL)
        added_us, small_us = _added(collective)
        if group.placement.rank == 0:
            ratio = median_of([harness / bare for harness, bare in pairs])
            found = {
                "ratio": ratio.value,
                "low": ratio.low,
                "high": ratio.high,
                "timer_us": statistics.median(timer_s) * timing.MICROSECONDS,
                "harness_us": statistics.median(harness for harness, _ in pairs),
                "bare_us": statistics.median(bare for _, bare in pairs),
                "added_us": added_us,
                "small_us": small_us,
            }
            print(_MARK + json.dumps(found), flush=True)


if __name__ == "__main__":
    _main()
