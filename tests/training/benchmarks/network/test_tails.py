"""Networks whose slowest operation always takes several times the median: a host with worse ones is named all the same.

The model follows four real hosts with wires of 200 Mbit/s: of 60 operations of 256 KiB the median takes 10.7 ms, and
the slowest 64 to 75 ms in every measurement of every pair, for TCP waits where the queue of the wire overflows.
"""

from __future__ import annotations

import random
import re
from itertools import combinations
from typing import Any

import pytest

from tests.tiers import samples
from training.benchmarks.network.slow_parts.analysis import Analysis, analyse

MEDIAN_US, TAIL_US, OPERATIONS = 10_700.0, 66_000.0, 60
BAD, STALL_US = 2, 190_000.0


def scan(seed: int, repeats: int, *, worse: float = 0.0, stall: float = 0.0, lossy: float = 0.0) -> Analysis:
    """Pairs of four hosts: a share `worse` of the bad host's measurements has a slower operation, `stall` of them one
    that stalls, `lossy` of those with the first host one that stalls.
    """
    draw = random.Random(seed)
    steps: list[dict[str, Any]] = []
    for repeat in range(1, repeats + 1):
        for pair in combinations(range(4), 2):
            top = TAIL_US * draw.lognormvariate(0.05, 0.04)
            if draw.random() < 0.05:
                top *= draw.uniform(1.1, 2.0)
            if BAD in pair and draw.random() < worse:
                top *= draw.uniform(1.3, 2.5)
            stalls = (BAD in pair and draw.random() < stall) or (pair == (0, BAD) and draw.random() < lossy)
            if stalls:
                top = STALL_US * draw.uniform(1.1, 1.8)
            middle = MEDIAN_US * draw.lognormvariate(0, 0.01)
            group = {
                "group": "-".join(f"node{node + 1}" for node in pair),
                "hosts": [f"node{node + 1}" for node in pair],
                "node_ranks": list(pair),
                "world_size": 2,
                "size_bytes": 256 << 10,
                "iterations": OPERATIONS,
                "stalled_iterations": int(stalls),
                "busbw_GBps": (256 << 10) / middle / 1e3,
                "time_us": {"p25": 0.82 * middle, "p50": middle, "p75": 1.15 * middle, "p95": 0.9 * top, "max": top},
            }
            steps.append({"pattern": "pairs", "repeat": repeat, "round": f"pairs {pair}", "groups": [group]})
    found = analyse(steps, slow_percent=15.0)
    assert found is not None
    return found


@pytest.mark.parametrize("repeats", [3, 10, 30])
def test_a_long_tail_that_everybody_has_is_no_alarm(repeats: int) -> None:
    for seed in samples(10, 200):
        found = scan(seed, repeats)
        assert found.findings == (), f"seed {seed}: {found.sentences}"


@pytest.mark.parametrize(("repeats", "worse"), [(10, 0.9), (30, 0.5)])
def test_a_host_with_a_worse_tail_is_named_for_it(repeats: int, worse: float) -> None:
    for seed in samples(3, 30):
        (finding,) = scan(seed, repeats, worse=worse).findings
        assert (finding.part, finding.hosts, finding.kind) == ("host", ("node3",), "intermittent"), f"seed {seed}"
        assert re.search(r"on all its pairs at 256K have operations [789](\.\d)? times slower", finding.evidence)


def test_stalls_are_told_apart_from_slow_operations() -> None:
    """Those of a host that stalls are its only symptom; a host that now stalls, now is slow, is slow at times."""
    (host,) = scan(1, 10, stall=0.6).findings
    assert (host.hosts, host.kind, host.symptoms) == (("node3",), "stalls", ("stalls",))
    (pair,) = scan(1, 10, lossy=0.9).findings
    assert (pair.part, pair.hosts, pair.symptoms) == ("link", ("node1", "node3"), ("stalls",))
    (both,) = scan(1, 10, worse=0.6, lossy=0.9).findings
    assert (both.part, both.hosts, both.kind) == ("host", ("node3",), "intermittent")
