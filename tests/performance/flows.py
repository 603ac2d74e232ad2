"""How fast flows are written, beside writing the same bytes from memory in the same run, and in how much memory.

The original, SimAI's mock of NCCL, was recorded on the first case (two cores). Wall times include the interpreter's
start, memory is the peak of the process (ru_maxrss).
"""

import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.performance.peak import run_sound
from tests.performance.rows import Row

ROOT = Path(__file__).parents[2]
BLOCK = 1 << 20


@dataclass(frozen=True)
class Decomposition:
    """A collective: arguments, the seconds (if any) and megabytes it must stay below, and the recorded original."""

    what: str
    arguments: str
    seconds: float | None
    recorded: str = ""
    megabytes: float = 100


DECOMPOSITIONS = (
    Decomposition(
        "ring AllReduce of SimAI, 128 ranks", "--dialect simai --op AllReduce --size 1G --ranks 128", 0.3, "1.7 s"
    ),
    Decomposition("tree AllReduce, 128 ranks", "--op AllReduce --size 1G --ranks 128 --algorithm tree", 0.3),
    Decomposition("ring AllReduce, 256 ranks", "--op AllReduce --size 8G --ranks 256 --algorithm ring", None),
    Decomposition("ring AllReduce, 792 ranks", "--op AllReduce --size 8G --ranks 792 --algorithm ring", None),
    Decomposition("tree AllReduce, 4880 ranks", "--op AllReduce --size 17G --ranks 4880 --algorithm tree", None),
    Decomposition("AllToAll, 1008 ranks", "--op AllToAll --size 1G --ranks 1008", None),
    Decomposition("AllToAll, 3168 ranks", "--op AllToAll --size 1G --ranks 3168", None),
)
SMOKE = Decomposition("ring AllReduce of SimAI, 16 ranks", "--dialect simai --op AllReduce --size 1G --ranks 16", 0.3)


def measure(*, smoke: bool = False) -> list[Row]:
    """A row for each collective; with `smoke` a small one."""
    return [_row(case) for case in ((SMOKE,) if smoke else DECOMPOSITIONS)]


def _row(case: Decomposition) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "flows.csv"
        command = [sys.executable, "-m", "simulation", "flows", *case.arguments.split(), "--output", str(output)]
        seconds, megabytes, _ = run_sound(command, ROOT)
        baseline, flows = _copy(output, Path(folder) / "copy.csv")
        size = output.stat().st_size
    limit = "" if case.seconds is None else f"at most {case.seconds:.2f} s, "
    original = f" (original: {case.recorded})" if case.recorded else ""
    return Row(
        what=f"flows, {case.what} ({flows} flows, {size / 1e6:.1f} MB)",
        measured=f"{seconds:.2f} s, {megabytes:.0f} MB",
        baseline=f"{baseline:.3f} s to write the bytes{original}",
        ratio=seconds / baseline,
        goal=f"{limit}under {case.megabytes:.0f} MB",
        met=(case.seconds is None or seconds <= case.seconds) and megabytes < case.megabytes,
    )


def _copy(source: Path, target: Path) -> tuple[float, int]:
    """Seconds to write the bytes of a file block by block, reading not counted, and its lines without the first."""
    seconds, lines = 0.0, -1
    with source.open("rb") as read, target.open("wb") as write:
        while block := read.read(BLOCK):
            lines += block.count(b"\n")
            begin = time.perf_counter()
            write.write(block)
            seconds += time.perf_counter() - begin
    return seconds, lines
