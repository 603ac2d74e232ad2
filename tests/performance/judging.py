"""How long the head node takes to judge a round of which a rank wrote a large log, and how much memory.

The log is a rank's own output of lines as frameworks print them, with a pair of STEP records in each 8 kB of it. It is
judged in a process of its own, as a round is. The baseline is a loop of Python over the lines of the same file that
reads the JSON of its records and keeps nothing. Times hold the interpreter's start and its imports.
"""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from run_benchmarks.results.judge import judge
from run_benchmarks.results.node_outcome import NodeOutcome
from run_benchmarks.results.rank_logs import rank_log_name
from tests.performance.peak import run_measured
from tests.performance.rows import Row
from tests.run_benchmarks.results.rounds import START_MS, node_exit, node_plan, perflog, write_monitor

ROOT = Path(__file__).parents[2]
LARGE, SMALL = 1_000_000_000, 250_000_000
SMOKE_LARGE, SMOKE_SMALL = 4_000_000, 1_000_000
STEP_BYTES = 8192
ORDINARY = "[Rank 0] iteration lr 0.00012 loss 3.1415 grad norm 1.23 samples/s 456.7 skipped 0 nan 0 memory 12.5 GB\n"
MAX_SECONDS, MAX_MEGABYTES, MAX_GROWTH = 10.0, 150.0, 1.5
PLAIN = """
import json, sys
with open(sys.argv[1], "rb") as file:
    for line in file:
        if line.startswith(b"[PerfLog] "):
            json.loads(line[10:])
"""


@dataclass(frozen=True)
class Judged:
    """One log: its steps, and wall seconds and peak megabytes of judging it and of the plain loop."""

    steps: int
    seconds: float
    megabytes: float
    plain_seconds: float


def measure(*, smoke: bool = False) -> list[Row]:
    """Two rows: the large log, and its cost for a byte beside the small one's."""
    sizes = (SMOKE_SMALL, SMOKE_LARGE) if smoke else (SMALL, LARGE)
    small, large = (_judged(size) for size in sizes)
    growth = large.seconds / small.seconds * sizes[0] / sizes[1]
    return [
        Row(
            what=f"judge {sizes[1] / 1e6:g} MB of a rank's log ({large.steps} steps)",
            measured=f"{large.seconds:.2f} s, {large.megabytes:.0f} MB",
            baseline=f"{large.plain_seconds:.2f} s: a loop over its lines in plain Python",
            ratio=large.seconds / large.plain_seconds,
            goal=f"under {MAX_SECONDS:g} s and {MAX_MEGABYTES:g} MB",
            met=large.seconds < MAX_SECONDS and large.megabytes < MAX_MEGABYTES,
        ),
        Row(
            what=f"the same for each MB, beside a log of {sizes[0] / 1e6:g} MB",
            measured=f"{large.seconds / sizes[1] * 1e9:.2f} ms, {large.megabytes:.0f} MB in all",
            baseline=f"{small.seconds / sizes[0] * 1e9:.2f} ms, {small.megabytes:.0f} MB in all",
            ratio=growth,
            goal=f"time for a byte flat (at most {MAX_GROWTH:g} times)",
            met=growth < MAX_GROWTH,
        ),
    ]


def _judged(size: int) -> Judged:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        steps = write_log(folder, size)
        seconds, megabytes, code, output = run_measured([sys.executable, "-m", "tests.performance.judging", name], ROOT)
        if code or output.strip() != "pass":
            raise RuntimeError(f"the log of {size} bytes was not judged: exit code {code}: {output}")
        plain, _, code, output = run_measured([sys.executable, "-c", PLAIN, str(folder / rank_log_name(0))], ROOT)
        if code:
            raise RuntimeError(f"the plain loop ended with {code}: {output}")
    return Judged(steps, seconds, megabytes, plain)


def write_log(folder: Path, size: int) -> int:
    """Write the files of a node with one rank, whose log has about so many bytes; returns the number of its steps."""
    lines = perflog(0, {"correct": "pass"}).splitlines(keepends=True)
    begin = next(index for index, line in enumerate(lines) if "STEP_BEGIN" in line)
    pair = "".join(lines[begin : begin + 2]).replace(str(START_MS + begin - 1), str(START_MS + begin))
    block = pair + ORDINARY * ((STEP_BYTES - len(pair)) // len(ORDINARY))
    steps = max(1, size // len(block))
    with (folder / rank_log_name(0)).open("w", encoding="utf-8") as file:
        file.writelines(lines[:begin])
        for _ in range(steps):
            file.write(block)
        file.writelines(lines[begin + 2 :])
    node_exit().write(folder)
    write_monitor(folder)
    (folder / "sys_info.json").write_text("{}")
    return steps


def main(folder: Path) -> None:
    """Judge the node in `folder` and print the verdict, or why it is another than a pass."""
    found = judge([NodeOutcome(node=node_plan("node1", 0, [0]), folder=folder, exit_code=0)], ended_early=None)
    print("pass" if found.verdict == "pass" else found.reason)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
