"""Draws pairs of hosts whose slowest operation takes several times the median, and how often a worse one is named.

    python -m tests.training.benchmarks.network.tails [--write docs/data/named-by-repeats.csv]

The model follows four real hosts with wires of 200 Mbit/s: of 60 operations of 256 KiB the median takes 10.7 ms, and
the slowest 64 to 75 ms in every measurement of every pair, for TCP waits where the queue of the wire overflows.
"""

import argparse
import csv
import io
import random
from itertools import combinations
from pathlib import Path
from typing import Any

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


REPEATS, WORSE, DRAWS = (5, 10, 20, 30, 60), (0.1, 0.2, 0.3, 0.5, 0.7, 0.9), 60


def row(repeats: int) -> list[int]:
    """Percent of the draws in which the bad host is named, by the share of its measurements that are worse.

    Raises:
        AssertionError: another host or a path was named.
    """
    shares = []
    for worse in WORSE:
        named = [{each.hosts for each in scan(seed, repeats, worse=worse).findings} for seed in range(DRAWS)]
        assert set().union(*named) <= {(f"node{BAD + 1}",)}, f"{repeats} repeats, {worse}"
        shares.append(round(100 * sum(map(bool, named)) / DRAWS))
    return shares


def main() -> None:
    """Print the rows, or write them to a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    first, *more = (f"{100 * worse:.0f} %" for worse in WORSE)
    rows.writerow(("repeats", f"{first} of its measurements", *more))
    rows.writerows((repeats, *row(repeats)) for repeats in REPEATS)
    if options.write is None:
        print(text.getvalue(), end="")
    else:
        options.write.write_text(text.getvalue(), encoding="utf-8")


if __name__ == "__main__":
    main()
