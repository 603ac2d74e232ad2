"""Tests that a trace is inferred from shallow ones as the framework itself sends it, or refused with the reason."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tests.tiers import NIGHTLY
from tests.workloads import trace_depth, trace_matrix
from tests.workloads.test_framework_dialect import arguments
from tests.workloads.trace_depth import DEEPER, INFERRED, REFUSED, SHALLOW
from workloads import cli
from workloads.dialects.framework.rows import rank_of
from workloads.formats.workload import Workload
from workloads.trace import command
from workloads.trace.deep import ENDS, deep_traces, elements
from workloads.trace.depth import DepthError, Inferred, at_depth
from workloads.trace.job import TraceJob
from workloads.trace.record import Trace, load
from workloads.trace.runs import Letter, NoPatternError, pattern


@cache
def recorded() -> dict[str, Trace]:
    return {str(trace.job): trace for trace in load(trace_depth.FILE)}


def run(jobs: list[TraceJob]) -> list[Trace]:
    return [recorded()[str(job)] for job in jobs]


@pytest.mark.parametrize("name", INFERRED)
def test_what_is_inferred_is_what_the_framework_sends_at_the_full_depth(name: str) -> None:
    job = INFERRED[name]
    (found,) = deep_traces([job], DEEPER.get(name, SHALLOW), run)
    (sent,) = run([job])
    assert found.job == sent.job
    for said, real in zip(found.iterations, sent.iterations, strict=True):
        assert said == real


@pytest.mark.parametrize("name", REFUSED)
def test_what_shallow_traces_do_not_show_is_refused(name: str) -> None:
    job, reason = REFUSED[name]
    with pytest.raises(DepthError, match=reason):
        deep_traces([job], SHALLOW, run)


def test_a_job_that_is_no_deeper_is_traced_as_it_is() -> None:
    job = at_depth(INFERRED["uneven"], SHALLOW[1] + 1)
    asked: list[TraceJob] = []

    def once(jobs: list[TraceJob]) -> list[Trace]:
        asked.extend(jobs)
        return run(jobs)

    assert deep_traces([job], SHALLOW, once) == run([job]) and asked == [job]


def test_a_failed_proof_names_the_first_operation_and_nothing_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = INFERRED["uneven"]

    def other(jobs: list[TraceJob]) -> list[Trace]:
        traces = run(jobs)
        ops = list(traces[2].iterations[1])
        ops[3] = replace(ops[3], bytes=ops[3].bytes + 2)
        traces[2] = replace(traces[2], iterations=(traces[2].iterations[0], tuple(ops)))
        return traces

    words = ["trace", "--world_size", "8", "--layers_traced", "2,4", "--output", str(tmp_path / "x.csv")]
    monkeypatch.setattr(command, "missing_or_unknown", lambda _: None)
    monkeypatch.setattr(command, "_job", lambda *_: job)
    monkeypatch.setattr(command, "traced_by_frameworks", other)
    assert cli.main(words) == 2
    said = capsys.readouterr().err
    number = len(recorded()[str(at_depth(job, 5))].iterations[0]) + 3
    assert f"with 5 layers operation {number} is" in said and "was inferred to be" in said
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(command, "traced_by_frameworks", run)
    assert cli.main(words) == 0
    workload, _ = Workload.load(tmp_path / "x.csv")
    assert sum(item.is_communication for item in workload) == len(recorded()[str(job)].ops)


@pytest.mark.parametrize("text", ["2", "4,2", "2,2", "0,2", "a,b", "2,4,6"])
def test_depths_that_are_none_are_refused(text: str, tmp_path: Path) -> None:
    assert cli.main(["trace", "--layers_traced", text, "--output", str(tmp_path / "x.csv")]) == 2


def ruled(job: TraceJob) -> Trace:
    """What the rules say that the job sends; they are held to the traces of the frameworks elsewhere."""
    bare = not job.num_microbatches
    args = arguments(replace(job, num_microbatches=1) if bare else job)
    rank = rank_of(args, job.rank)
    made = [rank.setup(), *rank.iterations(job.iterations)]
    iterations = (tuple(replace(call, overlap=0) for call in calls if not bare or call.phase in ENDS) for calls in made)
    return Trace(job, {}, tuple(iterations))


def test_rules_say_what_was_recorded_at_every_depth() -> None:
    traces = [trace for trace in recorded().values() if trace.job.num_microbatches]
    assert [(trace.job, [op.identity for op in trace.ops]) for trace in traces] == [
        (trace.job, [op.identity for op in ruled(trace.job).ops]) for trace in traces
    ]


def test_where_buckets_end_is_proved_where_only_the_deep_job_has_several() -> None:
    job = INFERRED["zero2 of two buckets"]

    def other(jobs: list[TraceJob]) -> list[Trace]:
        *traces, proof = run(jobs)
        assert len(jobs) == len({each.num_layers for each in jobs}) + 1
        first, *ops = proof.iterations[1]
        swapped = (proof.iterations[0], (ops[0], first, *ops[1:]))
        return [*traces, replace(proof, iterations=(*swapped, *proof.iterations[2:]))]

    with pytest.raises(DepthError, match="with 5 layers operation"):
        deep_traces([job], SHALLOW, other)


@pytest.mark.parametrize("name", ["megatron", "megatron_experts", "fsdp2", "deepspeed"])
def test_every_job_of_the_oracle_is_inferred_or_refused_and_never_wrong(name: str) -> None:
    inferred = 0
    jobs = trace_matrix.covering(name)[:: 1 if NIGHTLY else 5]
    for job in jobs:
        deep = at_depth(job, 8)
        try:
            (found,) = deep_traces([deep], SHALLOW, lambda jobs: list(map(ruled, jobs)))
        except DepthError as reason:
            # Buckets of DeepSpeed are cut; what is left are windows, owners' parts and padding that hides sizes.
            words = ("reaches over", "in the parts that", "may hold the small weights", "nobody knows which")
            refused = job.frame == "DeepSpeed" and any(each in str(reason) for each in words)
            assert job.overlap_grad_reduce or refused, (job, reason)
        else:
            assert found.ops == ruled(deep).ops, job
            inferred += 1
    assert inferred >= len(jobs) // 3


def letters(text: str) -> list[Letter]:
    op = run([INFERRED["fsdp2"]])[0].ops[0]
    return [Letter((op, name, 0), None if name.isupper() else at, ord(name.lower()), 1) for at, name in enumerate(text)]


def test_a_pattern_is_one_run_of_equal_layers() -> None:
    assert pattern(letters("abz"), letters("abbbz"), (2, 4)).at(6) == letters("abbbbbz")
    for short, long in (("ab", "abcb"), ("ab", "abb"), ("abc", "ab"), ("ab", "cbbb")):
        with pytest.raises(NoPatternError):
            pattern(letters(short), letters(long), (2, 4))


def test_a_wait_that_is_inferred_to_be_before_its_call_is_refused() -> None:
    """A distance that a layer more makes smaller by 1 is -1 one layer beyond that where it is 0."""
    job, (few, many) = INFERRED["fsdp2"], SHALLOW
    (short, long), ends = run([at_depth(job, few), at_depth(job, many)]), (many - few, 0)
    shrinking = [
        replace(trace, iterations=(trace.iterations[0], (replace(first, overlap=wait), *others), *trace.iterations[2:]))
        for trace, wait in zip((short, long), ends, strict=True)
        for first, *others in [trace.iterations[1]]
    ]
    inferred = Inferred(*shrinking)
    assert inferred.at(at_depth(job, many)).iterations[1][0].overlap == 0
    with pytest.raises(DepthError, match=r"is inferred to be waited for before it is issued"):
        inferred.at(at_depth(job, many + 1))


def test_the_elements_of_a_decoder_are_those_of_its_tensors() -> None:
    job = TraceJob(frame="FSDP2", hidden_size=64, num_attention_heads=4, num_layers=3, vocab_size=100,
                   num_query_groups=2, swiglu=True, add_bias_linear=True)  # fmt: skip
    attention = 2 * (64 * 64 + 64) + 2 * (64 * 32 + 32)
    mlp = 2 * (64 * 256 + 256) + 256 * 64 + 64
    assert elements(job) == (attention + mlp + 128, 100 * 64 + 64 + 3 * (attention + mlp + 128))
