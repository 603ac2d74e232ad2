"""Writes stacks.txt of a round that timed out: the stacks of its ranks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from run_benchmarks.results.rank_logs import rank_log_end
from run_benchmarks.results.records import write_text
from run_benchmarks.state.context import RunningNode

STACKS_FILE = "stacks.txt"
STACKS_BYTES = 4 << 20  # of the end of each rank's log, searched for its stacks
STACK_LINE = re.compile(r"^(?:(?:Current thread|Thread) 0x[0-9a-f]+.*|  File \".*\", line \d+ in .*)$")


def write_stacks(folder: Path, nodes: Iterable[RunningNode]) -> None:
    """Write the stacks of all ranks of a round that timed out into one file of its folder."""
    parts = []
    for node in nodes:
        for rank in node.plan.ranks:
            found = stacks(rank_log_end(node.outcome.folder, rank, STACKS_BYTES))
            parts.append(f"rank {rank} on {node.plan.host}:\n{found or 'no stacks'}\n")
    write_text(folder / STACKS_FILE, "\n".join(parts))


def stacks(log: str) -> str:
    """The stacks that faulthandler wrote into a rank's log, "" without any."""
    return "\n".join(line for line in log.splitlines() if STACK_LINE.match(line))
