"""Runs a measurement in the ranks of torchrun: the module itself again, whose rank 0 prints one marked line of JSON."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SMOKE_OPTION = "--smoke"
END_S, KILL_S = 30, 10


def measured_by_ranks(
    module: str,
    mark: str,
    *,
    ranks: int,
    smoke: bool,
    timeout_s: float,
    address: str = "127.0.0.1",
    nodes: Sequence[Sequence[str]] = ((),),
) -> dict[str, Any]:
    """What rank 0 of `python -m module` printed after `mark`; their stderr, with the progress, goes to ours.

    nodes: words that run a command on a node, which has an equal share of the ranks; address: the first's, of all.

    Raises:
        RuntimeError: the ranks fail, or print another number of such lines than one.
    """
    argv = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(ranks // len(nodes))]
    argv += ["--nnodes", str(len(nodes)), "--master_addr", address] if len(nodes) > 1 else []
    job = ["-m", module, *[SMOKE_OPTION] * smoke]
    places = [["--node_rank", str(place)] * (len(nodes) > 1) for place in range(len(nodes))]
    limit = ["timeout", "-k", str(KILL_S), str(timeout_s)]  # on the node: else its torchrun outlives a broken call
    first, *others = [[*node, *limit, *argv, *place, *job] for node, place in zip(nodes, places, strict=True)]
    process = subprocess.Popen(first, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    beside: list[subprocess.Popen[Any]] = [
        subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL) for words in others
    ]
    try:
        output, _none = process.communicate(timeout=timeout_s + END_S)
        lines = [line for line in output.splitlines() if line.startswith(mark)]
        codes = [process.returncode, *(each.wait(END_S) for each in beside)]
        if any(codes) or len(lines) != 1:
            raise RuntimeError(f"{' '.join(first)} and those beside it left with {codes}")
    finally:
        for each in [process, *beside]:
            each.terminate()
            each.wait()
    found: dict[str, Any] = json.loads(lines[0].removeprefix(mark))
    return found
