"""How long `sweep` takes for ten thousand layouts, and for the best twenty once more on the flows of a network.

CPU seconds of the whole command; the baseline is the same command with one layout: its start and its tables.
"""

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from simulation.cli import main
from tests.performance.rows import Row

ROOT = Path(__file__).parents[2]
SWEEP = "sweep --model llama3_70b --gpu H100 --json"
WIDE = (
    "--gpus 2048 --gbs 4096 --vpp 1,2,4,5,10,20 --cp 1,2,4,8 --mbs 1,2,4,8 --pp 1,2,4,8,16,32,64 --tp 1,2,4,8,16 "
    "--recompute none,selective,full --fsdp 0,1"
)
ONE = "--tp 8 --pp 2 --vpp 1 --cp 1 --mbs 1 --recompute none"
TOPOLOGY = "topology -topo Spectrum-X -gt H100 -bw 400Gbps -nvbw 2880Gbps"
GOAL_S = 60


def measure(*, smoke: bool = False) -> list[Row]:
    """Both rows; with `smoke` over few layouts and GPUs."""
    gpus = 64 if smoke else 1024
    small = f"--gpus {gpus} --gbs 2048 --mbs 1 --vpp 1 --cp 1"
    wide = small if smoke else WIDE
    with tempfile.TemporaryDirectory() as name:
        network = Path(name) / "network"
        assert main([*TOPOLOGY.split(), "-g", str(gpus), "--output", str(network)]) == 0
        one = _cpu_s(f"--gpus {gpus} --gbs 2048 {ONE}")
        swept, flows = _cpu_s(wide), _cpu_s(f"{small} -n {network}")
    started = f"{one:.2f} CPU seconds for one layout"
    return [
        Row(
            what=f"sweep: {what}",
            measured=f"{seconds:.1f} CPU seconds",
            baseline=started,
            ratio=seconds / one,
            goal=f"under {GOAL_S} s",
            met=seconds < GOAL_S,
        )
        for what, seconds in (
            ("over ten thousand layouts of Llama-3 70B on 2048 GPUs", swept),
            (f"the best 20 on {gpus} GPUs predicted again at flow level", flows),
        )
    ]


def _cpu_s(words: str) -> float:
    """CPU seconds of a sweep with these words."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "simulation", *SWEEP.split(), *words.split()]
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
