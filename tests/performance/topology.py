"""How fast topologies are written, beside writing the same bytes from memory in the same run.

The original was recorded on the same templates (two cores; while those of a million GPUs ran the machine was busy).
Wall times include the interpreter's start, memory is the peak of the process (ru_maxrss).
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
class Network:
    """A template: arguments, the seconds and megabytes it must stay below, and the recorded original."""

    what: str
    arguments: tuple[str, ...]
    seconds: float
    recorded: str
    megabytes: float = 100


NETWORKS = (
    Network("Spectrum-X, 102400 GPUs", ("Spectrum-X", "-g", "102400", "-app", "1600"), 0.21, "0.21 s"),
    Network("AlibabaHPN, 102400 GPUs", ("AlibabaHPN", "-g", "102400", "-app", "800"), 0.30, "0.30 s, 17 MB"),
    Network("Spectrum-X, 1048576 GPUs", ("Spectrum-X", "-g", "1048576", "-app", "16384"), 1.0, "206 s, 27 MB"),
    Network("AlibabaHPN, 1048576 GPUs", ("AlibabaHPN", "-g", "1048576", "-app", "8192"), 1.0, "75 s"),
)
SMOKE = Network("Spectrum-X, 1024 GPUs", ("Spectrum-X", "-g", "1024"), 1.0, "0.05 s")


def measure(*, smoke: bool = False) -> list[Row]:
    """A row for each network; with `smoke` a small one."""
    return [_row(network) for network in ((SMOKE,) if smoke else NETWORKS)]


def _row(network: Network) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "topology"
        command = [sys.executable, "-m", "simulation", "topology", "-topo", *network.arguments, "--output", str(output)]
        seconds, megabytes, _ = run_sound(command, ROOT)
        content = output.read_bytes()
        baseline = _write_s(content, Path(folder) / "copy")
    lines = content.count(b"\n")
    return Row(
        what=f"topology, {network.what} ({lines} lines, {len(content) / 1e6:.1f} MB)",
        measured=f"{seconds:.2f} s, {megabytes:.0f} MB",
        baseline=f"{baseline:.3f} s to write the bytes (original: {network.recorded})",
        ratio=seconds / baseline,
        goal=f"at most {network.seconds:.2f} s, under {network.megabytes:.0f} MB",
        met=seconds <= network.seconds and megabytes < network.megabytes,
    )


def _write_s(content: bytes, path: Path) -> float:
    """Seconds to write the bytes block by block."""
    begin = time.perf_counter()
    with path.open("wb") as file:
        for start in range(0, len(content), BLOCK):
            file.write(content[start : start + BLOCK])
    return time.perf_counter() - begin
