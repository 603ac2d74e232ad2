"""How fast the analytical model is, beside a Python process that only writes the same bytes in the same run.

The original was recorded on Llama-405B alone (two cores): it advances its clock one nanosecond at a time, 8.7 s for
27.6 s of computation. Wall times include the interpreter's start, memory is the peak of the process (ru_maxrss).
"""

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

from tests.performance.peak import run_sound
from tests.performance.rows import Row
from tests.simulation.analytical import recorded

ROOT = Path(__file__).parents[2]
CLUSTER = ("-g", "4096", "-g_p_s", "8", "-n_p_s", "8", "-nv", "360", "-nic", "48.5")
# Reads and writes block by block.
COPY = """
import sys
with open(sys.argv[1], "rb") as source, open(sys.argv[2], "wb") as file:
    while block := source.read(1 << 20):
        file.write(block)
"""


@dataclass(frozen=True)
class Load:
    """Llama-405B's rows, repeated up to `rows`; `renamed`: each layer has a name of its own. Goals; the original."""

    what: str
    rows: int
    seconds: float
    said: str
    renamed: bool = False
    dialect: str = "clusterdyno"
    megabytes: float = 100


LLAMA_ROWS = 8717
LOADS = (
    Load("Llama-405B", LLAMA_ROWS, 0.15, " (original: 8.7 s)"),
    Load("Llama-405B, dialect simai", LLAMA_ROWS, 0.15, " (original: 8.7 s)", dialect="simai"),
    Load("a million rows of it", 1_000_000, 1.5, ""),
    Load("a million rows of it, dialect simai", 1_000_000, 1.5, "", dialect="simai"),
    Load("a million rows of it, each with a name of its own", 1_000_000, 1.5, "", renamed=True),
)
SMOKE = (LOADS[0], Load("a few rows of it", 20_000, 1.5, "", renamed=True))


def measure(*, smoke: bool = False) -> list[Row]:
    """A row for each load; with `smoke` two small ones."""
    with tempfile.TemporaryDirectory() as folder:
        return [_row(load, Path(folder)) for load in (SMOKE if smoke else LOADS)]


def _row(load: Load, folder: Path) -> Row:
    workload, output = _workload(load, folder), folder / "out-EndToEnd.csv"
    command = [
        sys.executable,
        "-m",
        "simulation",
        "analytical",
        "--dialect",
        load.dialect,
        "-w",
        str(workload),
        *CLUSTER,
    ]
    seconds, megabytes, _ = run_sound([*command, "--output", str(output), "--force"], ROOT)
    content = output.read_bytes()
    baseline, _, _ = run_sound([sys.executable, "-c", COPY, str(output), str(folder / "copy")], ROOT)
    return Row(
        what=f"analytical, {load.what} ({load.rows} rows, {len(content) / 1e6:.1f} MB)",
        measured=f"{seconds:.3f} s, {megabytes:.0f} MB",
        baseline=f"{baseline:.3f} s to write the bytes{load.said}",
        ratio=seconds / baseline,
        goal=f"under {load.seconds} s and {load.megabytes:.0f} MB",
        met=seconds < load.seconds and megabytes < load.megabytes,
    )


def _workload(load: Load, folder: Path) -> Path:
    path = recorded.workload(recorded.LLAMA, folder)
    header, _, *rows = path.read_bytes().rstrip(b"\n").split(b"\n")
    lines: Iterator[bytes] = islice(cycle(rows), load.rows)
    if load.renamed:
        lines = (b"layer%d\t%b" % (number, line.split(None, 1)[1]) for number, line in enumerate(lines))
    path.write_bytes(b"\n".join([header, b"%d" % load.rows, *lines]) + b"\n")
    return path
