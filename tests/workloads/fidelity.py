"""Writes docs/data/fidelity.json: what `aicb diff` says of the two dialects and the recorded traces of twelve jobs.

python -m tests.workloads.fidelity
"""

import json
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

FILE = Path(__file__).parents[2] / "docs" / "data" / "fidelity.json"
JOBS = (
    ("megatron.jsonl.xz", (0, 5, 8, 34)),
    ("megatron_experts.jsonl.xz", (10, 12, 15)),
    ("fsdp2.jsonl.xz", (26, 28)),
    ("deepspeed.jsonl.xz", (3, 14)),
    ("deepspeed_3.jsonl.xz", (34,)),
)
"""Files of traces and the numbers of the jobs in them."""


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
        return generate(args, dialect="aicb", break_rules=True, pp_stage=trace.job.pp_stage), framework
    except ParameterError as error:
        return "; ".join(map(str, error.problems)), framework


def text() -> str:
    """The text of the file: an object for each job, which docs/reference/fidelity.md shows."""
    return json.dumps([_job(trace) for trace in recorded()], indent=1) + "\n"


def _job(trace: record.Trace) -> dict[str, str | list[str]]:
    real = traced(trace)
    aicb, framework = dialects(trace)
    ours = compare(framework, real)
    found: dict[str, str | list[str]] = {
        "what": f"{trace.job.frame}, {_what(trace)}",
        "recorded": _parameters(trace),
        "trace": f"{_rows(ours, 1)} rows, {_bytes(ours, 1)}",
        "framework": "the same calls" if ours.same else f"{_rows(ours, 0)} rows, {_bytes(ours, 0)}",
    }
    if isinstance(aicb, str):
        return {**found, "aicb": "refused", "refused": aicb}
    theirs = compare(aicb, real)
    totals = theirs.lines()[2 : 3 + len(theirs.totals)]
    return {**found, "aicb": f"{_rows(theirs, 0)} rows, {_bytes(theirs, 0)}", "totals": totals}


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


def _parameters(trace: record.Trace) -> str:
    shown = [f"{name} {value}" for name, value in trace.job.to_dict().items()]
    versions = ", ".join(f"{name} {version}" for name, version in trace.versions.items())
    return f"Recorded with {versions}: {', '.join(shown)}."


def _rows(found: WorkloadDiff, side: int) -> int:
    return sum(pair[side].rows for pair in found.totals.values())


def _bytes(found: WorkloadDiff, side: int) -> str:
    return readable(sum(pair[side].bytes for pair in found.totals.values()))


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
    print(f"wrote {FILE}")
