"""How long tracing the real frameworks takes, beside importing torch and Megatron-core alone.

It needs the environment of the tracer (`scripts/install.sh .cache/trace trace`). Wall seconds are of the whole command;
memory is the peak of its largest process.
"""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.performance.peak import run_sound
from tests.performance.rows import Row

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".cache" / "trace" / "bin" / "python"
IMPORTS = "import torch, megatron.core.models.gpt"


@dataclass(frozen=True)
class Job:
    """Options of trace, and the seconds and megabytes of a process that it must stay below."""

    what: str
    options: str
    seconds: float
    megabytes: float | None = None


GPT = "-m 175 --world_size 4096 --tp 8 --pp 8 --sp --micro_batches 8"
JOBS = (
    Job("GPT-175B, tp 8, pp 8, 4096 GPUs, one stage", f"{GPT} --pp_stage 3", 12),
    Job("GPT-175B, tp 8, pp 8, 4096 GPUs, all stages", f"{GPT} --all_stages", 60, 600),
    Job("Mixtral 8x22B, tp 4, ep 8, pp 4, one stage", "-m mixtral_8x22b --tp 4 --ep 8 --pp 4 --pp_stage 1", 20),
    Job("DeepSeek-V3, ep 64, pp 16, 2048 GPUs, one stage", "-m deepseek_v3 --world_size 2048 --pp_stage 3", 40, 1000),
)


def measure(*, smoke: bool = False) -> list[Row]:
    """A row for each job. With `smoke` the way is proved on commands of no weight: the tracer has tests of its own.

    Raises:
        RuntimeError: the environment is not there, or a command ends with an error.
    """
    if smoke:
        return [_row(Job("the command's help", "--help", 60), Path(sys.executable), "import json")]
    if not PYTHON.exists():
        install = "scripts/make_venv.sh .cache/trace && scripts/install.sh .cache/trace trace"
        raise RuntimeError(f"{PYTHON} is missing: {install}")
    return [_row(job, PYTHON, IMPORTS) for job in JOBS]


def _row(job: Job, python: Path, imports: str) -> Row:
    baseline, _ = _timed([str(python), "-c", imports])
    with tempfile.TemporaryDirectory() as folder:
        command = [str(python), "-m", "workloads", "trace", *job.options.split()]
        seconds, megabytes = _timed([*command, "--output", str(Path(folder) / "trace.csv")])
    light = job.megabytes is None or megabytes < job.megabytes
    goal = f"under {job.seconds} s" + ("" if job.megabytes is None else f" and {job.megabytes:.0f} MB a process")
    return Row(
        what=f"trace: {job.what}",
        measured=f"{seconds:.1f} s, {megabytes:.0f} MB",
        baseline=f"{baseline:.1f} s: {imports}",
        ratio=seconds / baseline,
        goal=goal,
        met=seconds < job.seconds and light,
    )


def _timed(command: list[str]) -> tuple[float, float]:
    """Wall seconds and peak megabytes."""
    seconds, megabytes, _ = run_sound(command, ROOT)
    return seconds, megabytes
