"""How long an AICB workload takes from the start of its ranks to its first operation, beside ranks that import torch.

Both are started the same way, as many processes at once, in pairs of one with and one without the workload. The first
operation's time is that of the op log: the rehearsal, which checks data, is before it.
"""

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.performance.rows import Row
from workloads.oplog.file import read_folder

REPOSITORY = Path(__file__).resolve().parents[2]
CONFIG = REPOSITORY / "vendors" / "cpu" / "aicb-pytorch" / "config" / "config_megatron.py"
PAIRS, RANKS = 7, 2
SMOKE_PAIRS, SMOKE_RANKS = 1, 1
GOAL_S = 3.0


def measure(*, smoke: bool = False) -> list[Row]:
    """One row: seconds to the first operation, and to torch's import, medians of the pairs."""
    ranks = SMOKE_RANKS if smoke else RANKS
    pairs = [(_first_operation_s(ranks), _import_s(ranks)) for _ in range(SMOKE_PAIRS if smoke else PAIRS)]
    ours, imports = (statistics.median(times) for times in zip(*pairs, strict=True))
    more = statistics.median(one - other for one, other in pairs)
    return [
        Row(
            what=f"executor of workloads: from the start of {ranks} gloo ranks to the first operation",
            measured=f"{ours:.2f} s",
            baseline=f"{imports:.2f} s to import torch",
            ratio=ours / imports,
            goal=f"at most {GOAL_S:g} s more (found {more:.2f} s, median of the pairs)",
            met=more <= GOAL_S,
        )
    ]


def _first_operation_s(ranks: int) -> float:
    """Seconds from the start of the ranks to the last rank's first operation."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--vendor", "cpu", "--config_file", str(CONFIG), "--output_dir", folder]
        options += ["--set", f"tensor_model_parallel_size={ranks}", "--set", "epoch_num=1"]
        options += ["--set", "enable_sequence_parallel=false"]
        started = _run(["-m", "training.benchmarks.aicb.pytorch", *options], ranks)
        return (max(int(log.issue_ns[0]) for log in read_folder(Path(folder))) - started) / 1e9


def _import_s(ranks: int) -> float:
    """Seconds from the start of as many processes to the end of the last import of torch."""
    with tempfile.TemporaryDirectory() as folder:
        code = (
            "import os, sys, time, torch; open(sys.argv[1] + os.environ['RANK'], 'w').write(str(time.monotonic_ns()))"
        )
        started = _run(["-c", code, f"{folder}/"], ranks)
        return (max(int(path.read_text()) for path in Path(folder).iterdir()) - started) / 1e9


def _run(arguments: list[str], ranks: int) -> int:
    """Run Python with these arguments as every rank; returns when they were started, ns of time.monotonic_ns."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    job = {"WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "GROUP_WORLD_SIZE": 1, "MASTER_PORT": port}
    started = time.monotonic_ns()
    processes = []
    for rank in range(ranks):
        own = {name: str(value) for name, value in {**job, "RANK": rank, "LOCAL_RANK": rank, "GROUP_RANK": 0}.items()}
        environment = os.environ | own | {"MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
        processes.append(
            subprocess.Popen([sys.executable, *arguments], cwd=REPOSITORY, env=environment, stdout=subprocess.DEVNULL)
        )
    codes = [process.wait() for process in processes]
    if any(codes):
        raise RuntimeError(f"python {' '.join(arguments)} left with {codes}")
    return started
