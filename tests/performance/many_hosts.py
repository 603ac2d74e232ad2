"""How much CPU time the head node takes to plan and judge an acceptance of thousands of hosts, five of them bad.

The model that stands for the hosts' measurements is part of it. The baseline is an eighth of the hosts.
"""

import tempfile
import time
from pathlib import Path

from run_benchmarks.acceptance.rungs import RUNGS
from run_benchmarks.commands.accepting import plan_all
from tests.performance.rows import Row

GOAL_S = 60


def measure(*, smoke: bool = False) -> list[Row]:
    """One row; with `smoke` of few hosts."""
    from tests.run_benchmarks.acceptance.simulated_cluster import DEVICES

    hosts = 64 if smoke else 4096
    _cpu_s(8)  # what is imported on demand
    fewer, seconds = _cpu_s(hosts // 8), _cpu_s(hosts)
    return [
        Row(
            what=f"accept: {hosts} hosts of {DEVICES} devices planned, measured by a model, and judged",
            measured=f"{seconds:.1f} CPU seconds",
            baseline=f"{fewer:.1f} CPU seconds for {hosts // 8} hosts",
            ratio=seconds / fewer,
            goal=f"under {GOAL_S} s",
            met=seconds < GOAL_S,
        )
    ]


def _cpu_s(count: int) -> float:
    """CPU seconds for an acceptance of so many hosts.

    Raises:
        AssertionError: it takes other hosts out than the bad ones.
    """
    from tests.run_benchmarks.acceptance.simulated_cluster import DEVICES, SimulatedCluster, five_bad
    from tests.run_benchmarks.commands.test_accepting import asked_of

    names = [f"n{number}" for number in range(count)]
    bad = five_bad(names, 1)
    begin = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        asked = asked_of(Path(folder), "nvidia", count)
        plan_all(asked, asked.settings(), RUNGS, DEVICES)
    states = SimulatedCluster(bad, 1000).climb(names).states()
    end = time.process_time()
    assert {host for host, state in states.items() if state == "out"} == bad.truth
    return end - begin
