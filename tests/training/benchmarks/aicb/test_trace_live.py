"""Traces recorded jobs again with the frameworks that make nightly installs."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.training.benchmarks.aicb import trace_depth, trace_matrix
from training.benchmarks.aicb.trace import command
from training.benchmarks.aicb.trace.deep import deep_traces
from training.benchmarks.aicb.trace.job import TraceJob
from training.benchmarks.aicb.trace.record import Trace, load

PYTHON = Path(__file__).resolve().parents[4] / ".cache" / "trace" / "bin" / "python"
needs_frameworks = pytest.mark.skipif(
    not PYTHON.exists(), reason="no .cache/trace: make nightly installs requirements/trace.lock there"
)


def recorded(name: str) -> list[Trace]:
    return list(load(trace_matrix.FOLDER / f"{name}.jsonl.xz"))


def differences(traces: list[Trace], python: str) -> list[str | None]:
    again = command.run([trace.job for trace in traces], python)
    return [command.first_difference(before, now) for before, now in zip(traces, again, strict=True)]


@pytest.mark.nightly
@needs_frameworks
@pytest.mark.parametrize("name", ["megatron", "megatron_experts", "inference"])
def test_frameworks_send_what_was_recorded(name: str) -> None:
    traces = recorded(name)[::7][:6]
    assert differences(traces, str(PYTHON)) == [None] * len(traces)


@pytest.mark.nightly
@needs_frameworks
@pytest.mark.parametrize("name", ["uneven", "fsdp2", "zero3 of short windows"])
def test_what_is_inferred_from_shallow_jobs_is_traced_at_the_full_depth(name: str) -> None:
    job = trace_depth.INFERRED[name]

    def run(jobs: list[TraceJob]) -> list[Trace]:
        return command.run(jobs, str(PYTHON))

    assert [trace.ops for trace in deep_traces([job], trace_depth.SHALLOW, run)] == [trace.ops for trace in run([job])]


@pytest.mark.nightly
@needs_frameworks
def test_groups_of_other_ranks_change_no_trace() -> None:
    job = TraceJob(
        rank=2055, world_size=4096, tensor_model_parallel_size=8, pipeline_model_parallel=4, num_layers=4,
        num_microbatches=4, hidden_size=256, enable_sequence_parallel=True, use_distributed_optimizer=True,
        num_experts=8, expert_model_parallel_size=4,
    )  # fmt: skip
    every, own = command.run([job, replace(job, own_groups=True)], str(PYTHON))
    assert every.ops == own.ops and len(every.ops) > 50
