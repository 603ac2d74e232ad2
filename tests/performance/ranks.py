"""Runs a measurement in the ranks of torchrun: the module itself again, whose rank 0 prints one marked line of JSON."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SMOKE_OPTION = "--smoke"


def measured_by_ranks(module: str, mark: str, *, ranks: int, smoke: bool, timeout_s: float) -> dict[str, Any]:
    """What rank 0 of `python -m module` printed after `mark`; their stderr, with the progress, goes to ours.

    Raises:
        RuntimeError: the ranks fail, or print another number of such lines than one.
    """
    argv = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(ranks), "-m", module]
    argv += [SMOKE_OPTION] * smoke
    result = subprocess.run(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=timeout_s, check=False)
    lines = [line for line in result.stdout.splitlines() if line.startswith(mark)]
    if result.returncode or len(lines) != 1:
        raise RuntimeError(f"{' '.join(argv)} left with {result.returncode}")
    found: dict[str, Any] = json.loads(lines[0].removeprefix(mark))
    return found
