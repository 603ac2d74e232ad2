"""How fast the rules of the real frameworks are, and how fast recorded calls become blocks again.

The rules are timed as a user runs them: the interpreter's start, the rules and the file. Beside each stands the time of
making, keeping, copying and writing as many rows one by one in plain Python. The baseline of a recording is
one pass over the calls that only hashes each.
"""

import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.performance.aicb import ROOT, SAMPLE_ROWS, SMOKE_SAMPLE_ROWS, yardstick_s
from tests.performance.peak import run_sound
from tests.performance.rows import Row
from workloads.rows.calls import Call
from workloads.rows.conversion import rows_of
from workloads.rows.ops import CommType
from workloads.rows.ranks import Ranks

CALLS, SMOKE_CALLS = 1_000_000, 2_000
LAYERS, MICRO_BATCHES = 96, 85
FOLDING_S = 2.0


@dataclass(frozen=True)
class Job:
    """A job of the rules: options of generate, and the seconds that it must stay below."""

    what: str
    options: str
    seconds: float


JOBS = (
    Job("GPT-175B, tp 8, pp 8, 4096 GPUs", "-m 175 --world_size 4096 --tp 8 --pp 8 --sp", 0.2),
    Job("Mixtral 8x22B, tp 4, ep 8, pp 4", "-m mixtral_8x22b --tp 4 --ep 8 --pp 4", 0.2),
    Job("DeepSeek-V3, ep 64, pp 16, 2048 GPUs", "-m deepseek_v3 --world_size 2048 --ep 64 --pp 16", 0.2),
    Job(
        "GPT-175B, 10 iterations, every row in AICB's form",
        "-m 175 --world_size 4096 --tp 8 --pp 1 --sp --global_batch 131072 --epoch_num 10 --format aicb",
        0.8,
    ),
)


def measure(*, smoke: bool = False) -> list[Row]:
    """A row for each job and one for folding; with `smoke` one job, and few calls."""
    sample = SMOKE_SAMPLE_ROWS if smoke else SAMPLE_ROWS
    per_row = yardstick_s(sample) / sample
    rows = [_rules(job, per_row) for job in (JOBS[:1] if smoke else JOBS)]
    return [*rows, _folding(SMOKE_CALLS if smoke else CALLS)]


def _rules(job: Job, per_row: float) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "workload.csv"
        command = [sys.executable, "-m", "workloads", "generate", *job.options.split()]
        seconds, megabytes, said = run_sound([*command, "--output", str(output)], ROOT)
    rows = int(said.partition(": ")[2].split(" ")[0])
    baseline = rows * per_row
    return Row(
        what=f"AICB workload, dialect framework: {job.what} ({rows} rows)",
        measured=f"{seconds:.2f} s, {megabytes:.0f} MB",
        baseline=f"{baseline:.2f} s row by row in plain Python",
        ratio=seconds / baseline,
        goal=f"under {job.seconds} s",
        met=seconds < job.seconds,
    )


def _folding(count: int) -> Row:
    calls = recording(count)
    begin = time.perf_counter()
    hashed = len({call.identity for call in calls})
    baseline = time.perf_counter() - begin
    begin = time.perf_counter()
    rows = rows_of(calls, [0, len(calls)])
    seconds = time.perf_counter() - begin
    if len(rows) != len(calls) + 2 or not hashed:
        raise RuntimeError(f"{len(calls)} calls became {len(rows)} rows")
    return Row(
        what=f"recorded calls become blocks ({len(calls)} calls)",
        measured=f"{seconds:.2f} s",
        baseline=f"{baseline:.2f} s to hash what each call sends",
        ratio=seconds / baseline,
        goal=f"under {FOLDING_S} s",
        met=seconds < FOLDING_S,
    )


def recording(count: int) -> list[Call]:
    """`count` calls of one rank: micro-batches of 96 layers forward, four calls each."""
    ranks = Ranks.of(range(8))
    kinds = (CommType.all_gather_into_tensor, CommType.reduce_scatter_tensor) * 2
    names = ("self_attention.linear_qkv", "self_attention.linear_proj", "mlp.linear_fc1", "mlp.linear_fc2")
    made: list[Call] = []
    while len(made) < count:
        for kind, name in zip(kinds, names, strict=True):
            number = len(made)
            layer, batch = number // 4 % LAYERS, number // (4 * LAYERS) % MICRO_BATCHES
            made.append(
                Call(
                    comm_type=kind, group="tp", ranks=ranks, dtype="bfloat16", bytes=1 << 25, phase="forward",
                    overlap=0, module=f"decoder.layers.{layer}.{name}", micro_batch=batch,
                )
            )  # fmt: skip
    return made
