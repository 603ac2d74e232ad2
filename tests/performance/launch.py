"""What looking for fused kernels costs a round's start: a rank that imports torch, with and without the detection.

The libraries of the detection are stand-ins whose import computes for seconds, as those of the real ones do.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from protocol.node_record import NodeExit
from tests.performance.rows import Row
from training.benchmarks.driver.launch import fused

REPOSITORY = Path(__file__).resolve().parents[2]
PAIRS, SMOKE_PAIRS = 9, 1
IMPORT_SECONDS = 20.0  # longer than the rank takes: the detection is at work all the time
GOAL = 1.1


def measure(*, smoke: bool = False) -> list[Row]:
    """One row: the median time of a launch in seconds, in pairs of one with and one without libraries."""
    with tempfile.TemporaryDirectory() as folder:
        rank = Path(folder) / "rank"
        libraries = Path(folder) / "libraries"
        for path in (rank, libraries):
            path.mkdir()
        (rank / "importing_rank.py").write_text("import torch\n", encoding="utf-8")
        body = (
            f"import time\nend = time.process_time() + {IMPORT_SECONDS}\nwhile time.process_time() < end:\n    pass\n"
        )
        for name in fused.LIBRARIES:
            (libraries / f"{name}.py").write_text(body, encoding="utf-8")
        if not smoke:
            _launch(rank)  # reads torch's files into the page cache
        pairs = [(_launch(rank, libraries), _launch(rank)) for _ in range(SMOKE_PAIRS if smoke else PAIRS)]
    with_detection, without = (statistics.median(times) for times in zip(*pairs, strict=True))
    ratio = statistics.median(one / other for one, other in pairs)
    return [
        Row(
            what="launch of a rank that imports torch, while the libraries of fused kernels are imported beside it",
            measured=f"{with_detection:.2f} s",
            baseline=f"{without:.2f} s where there are no such libraries",
            ratio=ratio,
            goal=f"at most {GOAL - 1:.0%} more, median of the pairs",
            met=ratio <= GOAL,
        )
    ]


def _launch(*paths: Path) -> float:
    """Seconds of one launch with these folders on PYTHONPATH."""
    with tempfile.TemporaryDirectory() as logs:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
        argv = [sys.executable, "-m", "training.benchmarks.driver.launch", "--log_dir", logs]
        argv += ["--launcher", "processes", "--", "-m", "importing_rank"]
        started = time.monotonic()
        subprocess.run(argv, cwd=REPOSITORY, env=environment, check=True, stderr=subprocess.DEVNULL)
        seconds = time.monotonic() - started
        found = set(NodeExit.read(Path(logs)).fused.values())
    expected = {fused.UNFINISHED} if len(paths) > 1 else {None}
    if found != expected:
        raise RuntimeError(f"the launch found {found}, expected {expected}")
    return seconds
