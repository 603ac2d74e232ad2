"""Tests that the recorded jobs of each framework hold every pair of values of the factors that change what is sent."""

from collections.abc import Callable, Mapping
from functools import cache
from itertools import combinations
from typing import Any

import pytest

from tests.workloads import trace_matrix
from workloads.job.parameters import TORCHTITAN, TRAINING
from workloads.trace.job import TraceJob
from workloads.trace.record import load

Axis = Callable[[TraceJob], Any]
Pair = tuple[str, Any, str, Any]


def stage(job: TraceJob) -> str:
    """first, middle or last; with one stage first."""
    return "first" if job.pp_stage == 0 else "last" if job.pp_stage == job.pipeline_model_parallel - 1 else "middle"


def overlap(job: TraceJob) -> str:
    """What overlaps in Megatron."""
    return "parameters" if job.overlap_param_gather else "gradients" if job.overlap_grad_reduce else "none"


SHARED: Mapping[str, Axis] = {
    "untied": lambda job: job.untie_embeddings,
    "vocab divides": lambda job: job.vocab_size % 1000 == 0,
    "GQA": lambda job: job.num_query_groups is not None,
    "recompute": lambda job: job.activation_recompute,
}
MEGATRON: Mapping[str, Axis] = {
    "tp": lambda job: job.tensor_model_parallel_size,
    "pp": lambda job: job.pipeline_model_parallel,
    "vpp": lambda job: job.virtual_pipeline,
    "ep": lambda job: job.expert_model_parallel_size,
    "dp": lambda job: job.world_size // job.tensor_model_parallel_size // job.pipeline_model_parallel,
    "sp": lambda job: job.enable_sequence_parallel,
    "distributed optimizer": lambda job: job.use_distributed_optimizer,
    "overlap": overlap,
    "dispatcher": lambda job: job.moe_token_dispatcher if job.num_experts else "none",
    "stage": stage,
    **SHARED,
}
FSDP2: Mapping[str, Axis] = {
    "world": lambda job: job.world_size,
    "replicate": lambda job: job.replicate,
    "titan's tp": lambda job: job.tensor_model_parallel_size,
    "units": lambda job: job.fsdp_units,
    "bias": lambda job: job.add_bias_linear,
    "reshard": lambda job: job.reshard_after_forward,
    "micro-batches": lambda job: job.num_microbatches,
    **SHARED,
}
ZERO: Mapping[str, Axis] = {
    "stage of ZeRO": lambda job: job.stage,
    "world": lambda job: job.world_size,
    "first rank": lambda job: job.rank == 0,
    "micro-batches": lambda job: job.num_microbatches,
    "dtype": lambda job: job.dtype,
    "bucket": lambda job: job.reduce_bucket_size,
    "overlap": lambda job: job.overlap_comm,
    "contiguous": lambda job: job.contiguous_gradients,
    **SHARED,
}
IMPOSSIBLE: Mapping[tuple[str, str], Callable[[Any, Any], bool]] = {
    ("tp", "sp"): lambda tp, sp: sp and tp == 1,
    ("pp", "vpp"): lambda pp, vpp: pp == 1 < vpp,
    ("pp", "stage"): lambda pp, stage: pp < {"first": 1, "last": 2, "middle": 3}[stage],
    ("distributed optimizer", "overlap"): lambda on, overlap: overlap == "parameters" and not on,
    ("ep", "dispatcher"): lambda ep, dispatcher: ep > 1 and dispatcher == "none",
    ("recompute", "dispatcher"): lambda recompute, dispatcher: recompute == "selective" and dispatcher != "none",
    ("recompute", "ep"): lambda recompute, ep: recompute == "selective" and ep > 1,
    ("dp", "dispatcher"): lambda dp, dispatcher: dp > 4 and dispatcher == "none",
    ("dp", "recompute"): lambda dp, recompute: dp > 4 and recompute == "selective",
    ("world", "first rank"): lambda world, first: world == 1 and not first,
    ("world", "replicate"): lambda world, replicate: world == replicate,
    ("world", "titan's tp"): lambda world, tp: world == tp,
    ("titan's tp", "units"): lambda tp, units: tp > 1 and units != TORCHTITAN,
    ("titan's tp", "untied"): lambda tp, untied: tp > 1 and not untied,
    ("titan's tp", "vocab divides"): lambda tp, divides: tp > 1 and not divides,
    ("units", "untied"): lambda units, untied: units == TORCHTITAN and not untied,
}
"""Pairs that a framework refuses or that say nothing new: selective recomputation sends nothing, and a dp of 8 is for
experts.
"""


@cache
def recorded(frame: str) -> list[TraceJob]:
    """Every recorded training of a framework; with context parallelism, selective recomputation sends, too."""
    files = [trace_matrix.FOLDER / f"{name}.jsonl.xz" for name in trace_matrix.MATRICES if name != "context"]
    return [
        trace.job for path in files for trace in load(path) if (trace.job.frame, trace.job.phase) == (frame, TRAINING)
    ]


def wanted(axes: Mapping[str, Axis], jobs: list[TraceJob]) -> set[Pair]:
    """Every two values of two axes that are not impossible."""
    values = {name: {axis(job) for job in jobs} for name, axis in axes.items()}
    pairs = {(a, x, b, y) for a, b in combinations(axes, 2) for x in values[a] for y in values[b]}
    return {pair for pair in pairs if not impossible(*pair)}


def impossible(a: str, x: Any, b: str, y: Any) -> bool:
    """Whether the two values exclude each other."""
    one, other = IMPOSSIBLE.get((a, b)), IMPOSSIBLE.get((b, a))
    return bool((one and one(x, y)) or (other and other(y, x)))


@pytest.mark.parametrize(("frame", "axes"), [("Megatron", MEGATRON), ("FSDP2", FSDP2), ("DeepSpeed", ZERO)])
def test_recorded_jobs_hold_every_pair_of_values(frame: str, axes: Mapping[str, Axis]) -> None:
    jobs = recorded(frame)
    assert len(jobs) >= 40
    seen = {(a, axes[a](job), b, axes[b](job)) for job in jobs for a, b in combinations(axes, 2)}
    assert sorted(map(str, wanted(axes, jobs) - seen)) == []
    assert not [pair for pair in seen if impossible(*pair)]


def test_every_axis_has_all_its_values() -> None:
    values = {name: {axis(job) for job in recorded("Megatron")} for name, axis in MEGATRON.items()}
    assert values == {
        "tp": {1, 2, 4}, "pp": {1, 2, 4}, "vpp": {1, 2}, "ep": {1, 2, 4}, "dp": {1, 2, 4, 8}, "sp": {False, True},
        "distributed optimizer": {False, True}, "overlap": {"none", "gradients", "parameters"},
        "dispatcher": {"none", "allgather", "alltoall"}, "stage": {"first", "middle", "last"},
        "untied": {False, True}, "vocab divides": {False, True}, "GQA": {False, True},
        "recompute": {"none", "selective", "full"},
    }  # fmt: skip
    zero = {name: {axis(job) for job in recorded("DeepSpeed")} for name, axis in ZERO.items()}
    assert zero["stage of ZeRO"] == {1, 2, 3} and zero["world"] == {1, 2, 6, 64}
