"""Draws the configurations whose traces are the oracle, and records them with the frameworks of another environment.

Pairwise covering: any two values of any two factors occur together in some configuration, as far as a framework can
run both. Drawn with a fixed seed, so the same matrix comes out each time.
"""

import argparse
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

from tests.workloads.inference_jobs import INFERENCE, inference
from tests.workloads.trace_jobs import (
    CONTEXT,
    EXPERTS,
    FSDP2,
    MEGATRON,
    ORDERS,
    WIDTHS,
    ZERO,
    ZERO3,
    Choice,
    fsdp2,
    megatron,
    megatron_context,
    megatron_experts,
    megatron_orders,
    megatron_widths,
    zero,
    zero3,
)
from workloads.trace.command import SELF_CHECK
from workloads.trace.job import TraceJob
from workloads.trace.record import Trace, load, save

FOLDER = Path(__file__).resolve().parents[1] / "data" / "aicb" / "traces"
ROOT = Path(__file__).resolve().parents[2]
SEED = 15
CANDIDATES = 6000
SMALL_WORLD = 64
"""Ranks up to which making process groups costs next to nothing."""
MATRICES = {
    "megatron": (MEGATRON, megatron, 60),
    "megatron_experts": (EXPERTS, megatron_experts, 40),
    "megatron_widths": (WIDTHS, megatron_widths, 0),
    "megatron_orders": (ORDERS, megatron_orders, 24),
    "context": (CONTEXT, megatron_context, 24),
    "fsdp2": (FSDP2, fsdp2, 48),
    "deepspeed": (ZERO, zero, 40),
    "deepspeed_3": (ZERO3, zero3, 40),
    "inference": (INFERENCE, inference, 24),
}


def pairs(choice: Choice) -> set[tuple[Any, ...]]:
    """Every two values that occur together in a choice."""
    return {(a, choice[a], b, choice[b]) for a, b in combinations(sorted(choice), 2)}


@cache
def covering(name: str) -> list[TraceJob]:
    """Jobs in which every possible pair of values occurs, at least as many as the matrix wants."""
    factors, job_of, least = MATRICES[name]
    generator = random.Random(SEED)
    possible: list[tuple[set[tuple[Any, ...]], TraceJob]] = []
    for _ in range(CANDIDATES):
        choice = {factor: generator.choice(values) for factor, values in factors.items()}
        job = job_of(choice)
        if job is not None:
            possible.append((pairs(choice), job))
    missing = set().union(*(found for found, _ in possible))
    chosen: list[TraceJob] = []
    while missing or len(chosen) < least:
        found, job = max(possible, key=lambda each: len(each[0] & missing))
        missing -= found
        possible.remove((found, job))
        chosen.append(job)
    return chosen


def recorded(python: str, jobs: list[TraceJob]) -> Iterator[Trace]:
    """Trace jobs with the frameworks of another environment."""
    command = [python, "-m", "workloads.trace.worker"]
    lines = "".join(f"{json.dumps(job.to_dict())}\n" for job in jobs)
    answers = subprocess.run(command, input=lines, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    for job, line in zip(jobs, answers.stdout.splitlines(), strict=True):
        answer = json.loads(line)
        if "error" in answer:
            print(f"{job.to_dict()}\n{answer['traceback']}", file=sys.stderr)
        else:
            yield Trace.from_line(line)


def write_self_check() -> None:
    """Write the four recorded traces of each frame that a run with unknown versions is checked against."""
    chosen: list[Trace] = []
    for names in (("megatron", "megatron_experts"), ("fsdp2",), ("deepspeed", "deepspeed_3")):
        for name in names:
            small = [trace for trace in load(FOLDER / f"{name}.jsonl.xz") if trace.job.world_size <= SMALL_WORLD]
            found = sorted(small, key=lambda trace: (len(trace.ops), str(trace.job)))
            chosen += found[len(found) // 4 : len(found) // 4 + 4 // len(names)]
    save(chosen, SELF_CHECK)


def main() -> None:
    """Record the matrices."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="of an environment with requirements/trace.lock")
    parser.add_argument("matrix", choices=MATRICES, nargs="+")
    given = parser.parse_args()
    for name in given.matrix:
        save(recorded(given.python, covering(name)), FOLDER / f"{name}.jsonl.xz")
    write_self_check()


if __name__ == "__main__":
    main()
