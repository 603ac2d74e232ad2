"""Writes docs/reference/fidelity.md: what `aicb diff` says of the two dialects and the recorded traces of twelve jobs.

python -m tests.workloads.fidelity
"""

import textwrap
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

from tests.workloads.test_framework_dialect import TRACES, arguments
from workloads.analysis.diff import WorkloadDiff, compare
from workloads.analysis.show import readable
from workloads.dialects.framework.rows import workload_rows
from workloads.job.parameters import TORCHTITAN
from workloads.library import ParameterError, Workload, generate
from workloads.rows.conversion import rows_of
from workloads.trace import record

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "fidelity.md"
JOBS = (
    ("megatron.jsonl.xz", (0, 5, 8, 34)),
    ("megatron_experts.jsonl.xz", (10, 12, 15)),
    ("fsdp2.jsonl.xz", (26, 28)),
    ("deepspeed.jsonl.xz", (3, 14)),
    ("deepspeed_3.jsonl.xz", (34,)),
)
"""Files of traces and the numbers of the jobs in them."""
HEAD = """# Fidelity

Does a generated workload send what the framework itself sends? The table compares both dialects with recorded traces of
twelve jobs, for the traced rank, as `python -m training.benchmarks.aicb diff` does. Rows and bytes are communication
calls and [their bytes](file-formats.md#workload-csv), all iterations and the set-up together. Below it stand the totals
of the dialect `aicb` (A) beside those of the trace (B); a `*` marks what XX the first call that
differs in each phase. `python -m tests.workloads.fidelity` writes this page, and a test keeps it true.

"""


def recorded() -> list[record.Trace]:
    """The traces of the twelve jobs."""
    found = []
    for name, numbers in JOBS:
        traces = list(record.load(TRACES / name))
        found += [traces[number] for number in numbers]
    return found


def traced(trace: record.Trace) -> Workload:
    """The recorded calls as a workload."""
    return Workload(rows_of(trace.ops, list(accumulate(map(len, trace.iterations)))))


def dialects(trace: record.Trace) -> tuple[Workload | str, Workload]:
    """The workload of the dialect aicb, or why it refuses the job, and that of the dialect framework."""
    args = replace(arguments(trace.job), epoch_num=trace.job.iterations)
    framework = Workload(workload_rows(args, trace.job.rank))
    try:
        return generate(args, dialect="aicb", force=True, pp_stage=trace.job.pp_stage), framework
    except ParameterError as error:
        return "; ".join(error.problems), framework


def page() -> str:
    """The text of the page."""
    summary = ["| job | what | trace | framework | aicb |", "|---|---|---|---|---|"]
    parts: list[str] = []
    for number, trace in enumerate(recorded(), start=1):
        real = traced(trace)
        aicb, framework = dialects(trace)
        ours = compare(framework, real)
        theirs = None if isinstance(aicb, str) else compare(aicb, real)
        title = f"{trace.job.frame}, {_what(trace)}"
        refused = "refused" if theirs is None else f"{_rows(theirs, 0)} rows, {_bytes(theirs, 0)}"
        said = "the same calls" if ours.same else f"{_rows(ours, 0)} rows, {_bytes(ours, 0)}"
        cells = (f"[{number}](#job-{number})", title, f"{_rows(ours, 1)} rows, {_bytes(ours, 1)}", said, refused)
        summary.append(f"| {' | '.join(cells)} |")
        parts += [f"## Job {number}", "", *_parameters(trace), ""]
        parts += [f"The dialect aicb refuses it: {aicb}", ""] if theirs is None else _totals(theirs)
    return HEAD + "\n".join([*summary, "", *parts]).rstrip() + "\n"


def _what(trace: record.Trace) -> str:
    job = trace.job
    parts = [f"rank {job.rank} of {job.world_size}"]
    if job.frame == "DeepSpeed":
        return ", ".join([*parts, f"ZeRO {job.stage}", *(["overlap"] if job.overlap_comm else [])])
    if job.frame == "FSDP2":
        copies = [f"{job.replicate} copies of a shard"] if job.replicate > 1 else []
        split = [f"tp {job.tensor_model_parallel_size}"] if job.tensor_model_parallel_size > 1 else []
        units = ["torchtitan's units"] if job.fsdp_units == TORCHTITAN else []
        whole = ["parameters stay whole"] if job.reshard_after_forward is False else []
        return ", ".join([*parts, *units, *split, *copies, *whole])
    experts = f"{job.num_experts} experts, ep {job.expert_model_parallel_size}, {job.moe_token_dispatcher}"
    parts += [
        f"tp {job.tensor_model_parallel_size}",
        f"pp {job.pipeline_model_parallel}" + (f" vpp {job.virtual_pipeline}" if job.virtual_pipeline > 1 else ""),
        *([f"{experts}, {job.routing}"] if job.num_experts else []),
        *(["latent attention"] if job.multi_latent_attention else []),
        *(["SP"] if job.enable_sequence_parallel else []),
        *(["distributed optimizer"] if job.use_distributed_optimizer else []),
        *(["overlap"] if job.overlap_grad_reduce else []),
    ]
    return ", ".join(parts)


def _parameters(trace: record.Trace) -> Iterator[str]:
    shown = [f"{name} {value}" for name, value in trace.job.to_dict().items()]
    versions = ", ".join(f"{name} {version}" for name, version in trace.versions.items())
    yield from textwrap.wrap(f"Recorded with {versions}: {', '.join(shown)}.", 120)


def _totals(found: WorkloadDiff) -> list[str]:
    """The indented lines of a comparison with rows and bytes, by phase, group and type."""
    return [*(f"    {line}" for line in found.lines()[2 : 3 + len(found.totals)]), ""]


def _rows(found: WorkloadDiff, side: int) -> int:
    return sum(pair[side].rows for pair in found.totals.values())


def _bytes(found: WorkloadDiff, side: int) -> str:
    return readable(sum(pair[side].bytes for pair in found.totals.values()))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")
