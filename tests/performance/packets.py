"""How fast `network --fast-forward` is beside the event loop in the same run, and a whole iteration with it.

Times are wall times of the whole command, from the interpreter's start; code is compiled once before. SimAI's ns-3 was
recorded on the seeds' 128 GPUs (a slow build, two shared cores).
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from simulation.cli import main
from tests.performance.flow_level import NS3, SEED
from tests.performance.peak import run_sound
from tests.performance.rows import Row

ROOT = Path(__file__).parents[2]
A100 = "-topo Spectrum-X -gt A100 -bw 100Gbps -nvbw 2400Gbps -g"
WORKLOAD = "simai -m 13 --world_size 128 --tp 8 --global_batch 128 --output"
GOAL_TIMES, GOAL_PERCENT, GOAL_S, SEED_S = 100, 1, 60, 2


def measure(*, smoke: bool = False) -> list[Row]:
    """A row for a long collective in 16 groups, one over the NICs, the seeds' own, and an iteration; with `smoke` two
    short ones in 2 groups.
    """
    gpus, size, over_nics = (16, "1M", "1M") if smoke else (128, "48G", "2G")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        assert main(["topology", *f"{A100} {gpus}".split(), "--output", str(folder / "network")]) == 0
        _run(folder, ["--op", "AllReduce", "--size", "1M", "--tp", "8"])  # compiles
        rows = [_collective(folder, gpus, size), _collective(folder, gpus, over_nics, "--group", "DP")]
        return rows if smoke else [*rows, _seed(folder), _iteration(folder)]


def _collective(folder: Path, gpus: int, size: str, *group: str) -> Row:
    words = ["--op", "AllReduce", "--size", size, "--tp", "8", *group]
    seconds, makespan = _run(folder, [*words, "--fast-forward"])
    loop_seconds, loop_makespan = _run(folder, words)
    percent = 100 * abs(makespan / loop_makespan - 1)
    what = f"AllReduce of {size}iB {'over NICs' if group else 'in groups of 8'}, {gpus} GPUs"
    goal = f"at least {GOAL_TIMES} times as fast, under {GOAL_PERCENT} % off (found {percent:.3f} %)"
    is_met = seconds * GOAL_TIMES < loop_seconds and percent < GOAL_PERCENT
    return _row(what, seconds, loop_seconds, "of the event loop alone", goal, met=is_met)


def _seed(folder: Path) -> Row:
    words = SEED.split()
    seconds, _makespan = _run(folder, [*words, "--fast-forward"])
    loop_seconds, _makespan = _run(folder, words)
    what = "AllReduce of 16 and 64 MiB in 16 groups of 8, 128 GPUs"
    beside = f"of the event loop alone ({NS3})"
    return _row(what, seconds, loop_seconds, beside, f"under {SEED_S} s", met=seconds < SEED_S)


def _iteration(folder: Path) -> Row:
    workload = folder / "gpt13.txt"
    command = [sys.executable, "-m", "workloads", *WORKLOAD.split(), str(workload)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    seconds, _makespan = _run(folder, ["-w", str(workload), "--fast-forward"])
    flow_seconds, _makespan = _run(folder, ["-w", str(workload), "--level", "flow"])
    what = "iteration of GPT-13B, tp 8, 128 GPUs"
    return _row(what, seconds, flow_seconds, "at flow level", f"under {GOAL_S} s", met=seconds < GOAL_S)


def _row(what: str, seconds: float, other_seconds: float, beside: str, goal: str, *, met: bool) -> Row:
    return Row(
        what=f"network --fast-forward, {what}",
        measured=f"{seconds:.2f} s",
        baseline=f"{other_seconds:.2f} s {beside}",
        ratio=seconds / other_seconds,
        goal=goal,
        met=met,
    )


def _run(folder: Path, words: list[str]) -> tuple[float, float]:
    """The wall seconds of a command, and the makespan (us) that it tells."""
    seed = [] if "flow" in words else ["--seed", "1"]  # one order of starts, no probes
    command = [sys.executable, "-m", "simulation", "network", "-n", str(folder / "network"), "-r", f"{folder}/"]
    command += [*words, *seed, "--json", "--force"]
    seconds, _megabytes, said = run_sound(command, ROOT)
    return seconds, json.loads(said[said.index("{") :])["makespan_us"]
