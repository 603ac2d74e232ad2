"""How fast the flow level of `network` is, beside reading the same network file and nothing else in the same run.

Wall times include the interpreter's start, memory is the peak of the process (ru_maxrss). A run before keeps the
bytecode and, where flows are many, compiled code. Both are run REPEATS times in turn, and the least wall time of each
counts, as Python's `timeit` advises: what is longer was kept waiting by others on the machine. SimAI's ns-3 was
recorded on the first case (a slow build, two shared cores).
"""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from simulation.cli import main
from tests.performance.peak import run_sound
from tests.performance.rows import Row
from tests.simulation.analytical import recorded
from tests.simulation.network.recordings import DATA

ROOT = Path(__file__).parents[2]
REPEATS = 7
READING = "import sys, pathlib; from simulation.topology.reading import read; read(pathlib.Path(sys.argv[1]))"
SEED = f"--dialect simai --send-lat 3 -w {DATA / 'workload' / 'microAllReduce.txt'}"
NS3 = "ns-3, a slow build, took 69 s"
RING = "--op AllReduce --size 1G --group DP --tp 8"


@dataclass(frozen=True)
class Load:
    """What is simulated: GPUs and options of the topology, options of `network`, and the limits."""

    what: str
    topology: str
    options: str
    seconds: float
    megabytes: float = 600
    said: str = ""


H100 = "-topo Spectrum-X -gt H100 -bw 400Gbps -nvbw 2880Gbps -app 4096 -g"
A100 = "-topo Spectrum-X -gt A100 -bw 100Gbps -nvbw 2400Gbps -g"
LOADS = (
    Load("AllReduce of 16 and 64 MiB in 16 groups of 8, 128 GPUs", f"{A100} 128", SEED, 0.25, 100, NS3),
    Load("iteration of Llama-405B, tp 8, pp 16, 4096 GPUs", f"{H100} 4096", "--routing rail -w LLAMA", 5),
    Load("DP AllReduce of 1 GiB, tp 8, 16384 GPUs", f"{H100} 16384", RING, 2),
    Load("DP AllReduce of 1 GiB, tp 8, 102400 GPUs", f"{H100} 102400", RING, 6),
    Load("AllToAll of 512 MiB, ECMP, 512 GPUs", f"{H100} 512", "--op AllToAll --size 512M", 10, 1000),
)
SMOKE = (Load("AllReduce in 2 groups of 8, 16 GPUs", f"{A100} 16", SEED, 0.25, 100),)


def measure(*, smoke: bool = False) -> list[Row]:
    """A row for each load; with `smoke` a small one."""
    with tempfile.TemporaryDirectory() as folder:
        return [_row(load, Path(folder), 1 if smoke else REPEATS) for load in (SMOKE if smoke else LOADS)]


def _row(load: Load, folder: Path, repeats: int) -> Row:
    network = folder / "network"
    assert main(["topology", *load.topology.split(), "--output", str(network), "--force"]) == 0
    words = load.options.split()
    if "LLAMA" in words:
        words[words.index("LLAMA")] = str(recorded.workload(recorded.LLAMA, folder))
    command = [sys.executable, "-m", "simulation", "network", "--level", "flow", "-n", str(network), "-r", f"{folder}/"]
    command += ["--force"]
    run_sound([*command, *words], ROOT)  # compiles, and keeps it
    reading = [sys.executable, "-c", READING, str(network)]
    both = [(run_sound([*command, *words], ROOT), run_sound(reading, ROOT)) for _ in range(repeats)]
    seconds, baseline = min(ours[0] for ours, _ in both), min(theirs[0] for _, theirs in both)
    megabytes = max(ours[1] for ours, _ in both)
    return Row(
        what=f"network --level flow, {load.what}",
        measured=f"{seconds:.2f} s{f' (least of {repeats})' if repeats > 1 else ''}, {megabytes:.0f} MB",
        baseline=f"{baseline:.2f} s to read the network{f' ({load.said})' if load.said else ''}",
        ratio=seconds / baseline,
        goal=f"under {load.seconds:g} s and {load.megabytes:.0f} MB",
        met=seconds < load.seconds and megabytes < load.megabytes,
    )
