"""How fast AICB workloads are generated, beside a yardstick taken in the same run.

AICB itself is not installed here. What costs it its time (recorded: 3.7 s and 256 MB for 15.5 thousand rows, 38.7 s
and 880 MB for 2.48 million, GPT-175B on 4096 ranks, two cores) is known: one object made, kept, copied deeply and
formatted per row. The yardstick does just that in plain Python for a sample of rows; its time per row times the rows
of the case is the baseline, without AICB's 1.5 s of imports. So the ratio says what this machine, today, saves over
working row by row. Wall times include the interpreter's start, memory is the peak of the process (ru_maxrss).
"""

import copy
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.performance.peak import run_sound
from tests.performance.rows import Row

ROOT = Path(__file__).parents[2]
SAMPLE_ROWS, SMOKE_SAMPLE_ROWS = 50_000, 500
GPT_175B = (
    *(
        "--dialect",
        "aicb",
        "--frame",
        "Megatron",
        "--num_layers",
        "96",
        "--hidden_size",
        "12288",
        "--num_attention_heads",
        "96",
    ),
    *("--vocab_size", "50257", "--seq_length", "2048", "--world_size", "4096", "--tensor_model_parallel_size", "8"),
    *("--micro_batch", "1", "--enable_sequence_parallel", "--use_distributed_optimizer"),
)


@dataclass(frozen=True)
class Case:
    """A goal: arguments, seconds and megabytes it must stay below, and what AICB was recorded with."""

    what: str
    arguments: tuple[str, ...]
    seconds: float
    megabytes: float | None
    recorded: str


CASES = (
    Case("AICB workload, GPT-175B, global batch 8192", ("--global_batch", "8192"), 0.2, None, "3.7 s, 256 MB"),
    Case(
        "AICB workload, GPT-175B, global batch 131072, 10 iterations",
        ("--global_batch", "131072", "--epoch_num", "10"),
        0.8,
        60,
        "38.7 s, 880 MB",
    ),
)


@dataclass
class _PlainRow:
    """The yardstick's row: AICB's columns, an ordinary mutable object."""

    comm_type: str
    comm_group: str
    comm_group_size: int
    msg_size: int
    stage: str
    dst: int | None = None
    src: int | None = None
    additional: str = ""
    elapsed_time: float | None = None
    algbw: float | None = None
    busbw: float | None = None
    count: int = 1


def measure(*, smoke: bool = False) -> list[Row]:
    """A row for each case; with `smoke` the first alone."""
    sample = SMOKE_SAMPLE_ROWS if smoke else SAMPLE_ROWS
    per_row = yardstick_s(sample) / sample
    return [_row(case, per_row) for case in (CASES[:1] if smoke else CASES)]


def _row(case: Case, per_row: float) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "workload.csv"
        seconds, megabytes = _run([*GPT_175B, *case.arguments, "--output", str(output)])
        with output.open("rb") as lines:
            rows = sum(1 for _ in lines) - 1
    baseline = rows * per_row
    within_memory = case.megabytes is None or megabytes < case.megabytes
    goal = f"under {case.seconds} s" + ("" if case.megabytes is None else f" and {case.megabytes:.0f} MB")
    return Row(
        what=f"{case.what} ({rows} rows)",
        measured=f"{seconds:.2f} s, {megabytes:.0f} MB",
        baseline=f"{baseline:.2f} s row by row in plain Python (AICB recorded {case.recorded})",
        ratio=seconds / baseline,
        goal=goal,
        met=seconds < case.seconds and within_memory,
    )


def _run(arguments: list[str]) -> tuple[float, float]:
    """Wall seconds and peak megabytes of one generation in a process of its own."""
    command = [sys.executable, "-m", "workloads", "generate", *arguments]
    seconds, megabytes, _ = run_sound(command, ROOT)
    return seconds, megabytes


def yardstick_s(rows: int) -> float:
    """Seconds that plain Python takes to make, keep, copy and write `rows` rows one by one."""
    begin = time.perf_counter()
    kept = [
        _PlainRow("CommType.all_gather", "CommGroup.tp_group", 8, number, "forward.Layer") for number in range(rows)
    ]
    with tempfile.TemporaryFile("w") as file:
        for row in kept:
            own = copy.deepcopy(row)
            file.write(",".join(str(value) for value in vars(own).values()) + "\n")
    return time.perf_counter() - begin
