"""Traces recorded and drawn jobs with the frameworks that make nightly installs."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.workloads import trace_depth, trace_matrix
from tests.workloads.test_framework_dialect import arguments
from workloads.dialects.framework.rows import rank_of
from workloads.trace import command
from workloads.trace.deep import deep_traces
from workloads.trace.job import TraceJob
from workloads.trace.record import Trace, load

PYTHON = Path(__file__).resolve().parents[3] / ".cache" / "trace" / "bin" / "python"
needs_frameworks = pytest.mark.skipif(
    not PYTHON.exists(), reason="no .cache/trace: make nightly installs requirements/trace.lock there"
)
pytestmark = pytest.mark.timeout(3600)  # A job costs seconds of CPU time, and the machine has other work.
DRAWN = 30
"""Jobs of each matrix beyond the recorded ones."""


def recorded(name: str) -> list[Trace]:
    return list(load(trace_matrix.FOLDER / f"{name}.jsonl.xz"))


def differences(traces: list[Trace], python: str) -> list[str | None]:
    again = command.traced_by_frameworks([trace.job for trace in traces], python)
    return [command.first_difference(before, now) for before, now in zip(traces, again, strict=True)]


def ruled_differently(trace: Trace) -> dict[str, Any] | None:
    """The job if the rules say something else than the trace, and where."""
    rank = rank_of(arguments(trace.job), trace.job.rank)
    ruled = [rank.setup(), *rank.iterations(trace.job.iterations)]
    for number, (calls, ops) in enumerate(zip(ruled, trace.iterations, strict=True)):
        said = [(call.phase, *call.identity) for call in calls]
        sent = [(op.phase, *op.identity) for op in ops]
        if said != sent:
            place = next((at for at, pair in enumerate(zip(said, sent, strict=False)) if pair[0] != pair[1]), None)
            return {**trace.job.to_dict(), "iteration": number, "call": place, "calls": (len(said), len(sent))}
    return None


@st.composite
def of_any_kind(draw: st.DrawFn, job: TraceJob) -> TraceJob:
    """A job of Megatron with the same ranks and layers of other kinds."""
    latent, experts = job.multi_latent_attention, job.num_experts > 0
    expert_biases = job.expert_tp == 1 and job.expert_model_parallel_size > 1 and not job.moe_shared_expert_size
    # Buckets of one parameter show the order of all gradients and gathers.
    size = draw(st.one_of(st.just(1), st.integers(1_000, 1_000_000)))
    biases = draw(st.booleans()) and (expert_biases or not experts)
    return replace(
        job,
        qk_layernorm=draw(st.booleans()),
        swiglu=draw(st.booleans()),
        grad_reduce_in_fp32=draw(st.booleans()),
        overlap_p2p=draw(st.booleans()) and job.virtual_pipeline > 1,
        add_bias_linear=biases,
        bucket_size=None if job.bucket_size is None else size,
        normalization=draw(st.sampled_from(["RMSNorm", "LayerNorm"])),
        position_embedding="rope" if latent else draw(st.sampled_from(["rope", "learned_absolute"])),
        q_lora_rank=draw(st.sampled_from([0, 96])) if latent else job.q_lora_rank,
        clip_grad=draw(st.sampled_from([0.0, 1.0])),
        make_vocab_size_divisible_by=draw(st.sampled_from([1, 64, 128])),
        activation_recompute=draw(st.sampled_from(["none", "selective", "full"])),
        moe_first_dense_layers=draw(st.integers(0, 2)) if experts else 0,
        num_microbatches=job.num_microbatches * draw(st.integers(1, 3)),
    )


@st.composite
def beyond(draw: st.DrawFn, name: str) -> TraceJob:
    """A job with values of the matrix's factors, and with numbers that are in no matrix."""
    factors, job_of, _ = trace_matrix.MATRICES[name]
    generator = random.Random(draw(st.integers(0, 2**32 - 1)))
    job = None
    while job is None:
        job = job_of({factor: generator.choice(values) for factor, values in factors.items()})
    groups = job.num_query_groups
    heads = draw(st.sampled_from([8, 16] if groups else [4, 8, 16]))
    job = replace(
        job,
        num_attention_heads=heads,
        hidden_size=heads * draw(st.sampled_from([8, 16, 24])),
        vocab_size=draw(st.integers(500, 5000)),
        seq_length=draw(st.sampled_from([8, 64, 96])),
        micro_batch=draw(st.integers(1, 3)),
        iterations=max(job.iterations, draw(st.integers(1, 4))),
    )
    if job.frame == "Megatron":
        return draw(of_any_kind(job))
    tp = job.tensor_model_parallel_size
    world = draw(st.integers(2, 40)) * job.replicate * tp
    job = replace(job, world_size=world, vocab_size=job.vocab_size // tp * tp,
                  rank=draw(st.integers(0, world - 1)), num_layers=draw(st.integers(1, 5)),
                  num_microbatches=draw(st.integers(1, 6)))  # fmt: skip
    if job.frame == "FSDP2":
        return job
    sizes = st.one_of(st.integers(0, 5_000), st.integers(0, 1_000_000))
    return replace(
        job, reduce_bucket_size=1 + draw(sizes), param_persistence_threshold=draw(sizes),
        model_persistence_threshold=draw(sizes), prefetch_bucket_size=draw(sizes), max_live_parameters=draw(sizes),
        max_reuse_distance=draw(sizes), sub_group_size=1 + draw(sizes),
    )  # fmt: skip


@pytest.mark.nightly
@needs_frameworks
@pytest.mark.parametrize("name", ["uneven", "fsdp2", "zero3 of short windows", "zero3 of windows over layers"])
def test_what_is_inferred_from_shallow_jobs_is_traced_at_the_full_depth(name: str) -> None:
    job = trace_depth.INFERRED[name]

    def run(jobs: list[TraceJob]) -> list[Trace]:
        return command.traced_by_frameworks(jobs, str(PYTHON))

    depths = trace_depth.DEEPER.get(name, trace_depth.SHALLOW)
    assert [trace.ops for trace in deep_traces([job], depths, run)] == [trace.ops for trace in run([job])]


@pytest.mark.nightly
@needs_frameworks
@pytest.mark.parametrize("name", [*trace_matrix.MATRICES, "kernels"])
def test_frameworks_send_what_was_recorded(name: str) -> None:
    traces = recorded(name)[:: len(recorded(name)) // 6][:6]
    assert differences(traces, str(PYTHON)) == [None] * 6


@pytest.mark.nightly
@needs_frameworks
@pytest.mark.parametrize("name", sorted(trace_matrix.MATRICES.keys() - {"inference", "context"}))
def test_rules_say_what_frameworks_send_beyond_the_matrix(name: str) -> None:
    drawn: list[TraceJob] = []

    # Other ones each time. All are traced at once: a framework is imported once, and a difference is shown as it is.
    @settings(max_examples=DRAWN, phases=[Phase.generate], derandomize=False, deadline=None, database=None)
    @given(beyond(name))
    def draw(job: TraceJob) -> None:
        drawn.append(job)

    draw()
    assert len(set(drawn)) > DRAWN / 2
    traces = command.traced_by_frameworks(drawn, str(PYTHON))
    differing = [(trace, found) for trace in traces if (found := ruled_differently(trace))]
    # Whole, because no second run draws the same jobs; and a trace that is not the same twice is no wrong rule.
    again = differences([trace for trace, _ in differing], str(PYTHON)) if differing else []
    told = [f"{found}\ntraced again: {said or 'the same'}" for (_, found), said in zip(differing, again, strict=True)]
    assert not told, "\n".join(told)


@pytest.mark.nightly
@needs_frameworks
def test_groups_of_other_ranks_change_no_trace() -> None:
    job = TraceJob(
        rank=2055, world_size=4096, tensor_model_parallel_size=8, pipeline_model_parallel=4, num_layers=4,
        num_microbatches=4, hidden_size=256, enable_sequence_parallel=True, use_distributed_optimizer=True,
        num_experts=8, expert_model_parallel_size=4,
    )  # fmt: skip
    every, own, larger = command.traced_by_frameworks(
        [job, replace(job, own_groups=True), replace(job, world_size=32768)], str(PYTHON)
    )
    assert every.ops == own.ops and len(every.ops) > 50
    assert ruled_differently(every) is None and ruled_differently(larger) is None
