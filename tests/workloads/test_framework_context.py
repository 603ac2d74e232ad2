"""Tests context parallelism of the dialect `framework` against Megatron-core with Transformer Engine's own exchange."""

from functools import cache
from itertools import product
from typing import Any

import pytest

from tests.workloads import trace_matrix
from tests.workloads.test_framework_dialect import arguments, check_order
from workloads.dialects.framework.placement import RankPlacement
from workloads.dialects.framework.rows import rank_of
from workloads.job.refusals import context_parallelism
from workloads.library import CommType, WorkloadArgs, generate
from workloads.rows.ops import flops_of, kernel_of
from workloads.trace.record import Trace, load

BASE: dict[str, Any] = {
    "world_size": 16, "tensor_model_parallel_size": 2, "context_parallel_size": 4, "num_layers": 2, "hidden_size": 256,
    "num_attention_heads": 8, "seq_length": 128, "global_batch": 4, "computation_enable": True,
}  # fmt: skip


@cache
def recorded() -> list[Trace]:
    return list(load(trace_matrix.FOLDER / "context.jsonl.xz"))


def test_every_recorded_kernel_and_call_is_the_rules_in_order() -> None:
    check_order(recorded(), "micro_batch", "group")


def test_recorded_jobs_have_both_ways_with_every_kind_of_attention_and_recomputation() -> None:
    jobs = [trace.job for trace in recorded()]
    seen = {(job.cp_comm_type, job.multi_latent_attention) for job in jobs}
    assert seen == set(product(("p2p", "a2a"), (True, False)))
    assert {job.activation_recompute for job in jobs} == {"none", "selective", "full"}
    assert {job.context_parallel_size for job in jobs} == {2, 4} and any(job.num_experts for job in jobs)
    sent = {op.comm_type for trace in recorded() for op in trace.ops if op.group == "cp"}
    assert sent == {CommType.all_to_all_single, CommType.isend, CommType.irecv}


def test_recorded_groups_are_the_placements() -> None:
    for trace in recorded():
        place = RankPlacement(arguments(trace.job), trace.job.rank)
        ranks = {"cp": place.context, "dp_cp": place.data, "tp_cp": place.tensor_context, "tp": place.tensor}
        for op in trace.ops:
            assert ranks.get(op.group, op.ranks) == op.ranks


@pytest.mark.parametrize("comm", ["p2p", "a2a"])
def test_the_ranks_of_a_sequence_compute_together_what_one_computes_alone(comm: str) -> None:
    """Causal attention costs half of the square: a ring's steps add up to it, for each of its ranks."""

    def attention(args: WorkloadArgs, rank: int) -> int:
        found = generate_rank(args, rank)
        return sum(flops for op, flops in found if op.startswith("attention"))

    alone = WorkloadArgs(**BASE | {"context_parallel_size": 1, "world_size": 4})
    args = WorkloadArgs(**BASE, cp_comm_type=comm)
    shares = [attention(args, 2 * place) for place in range(4)]
    assert sum(shares) == attention(alone, 0) and len(set(shares)) == 1


def generate_rank(args: WorkloadArgs, rank: int) -> list[tuple[str, int]]:
    """Operators and FLOPs of a rank's first micro-batch."""
    (iteration,) = rank_of(args, rank).iterations(1)
    kernels = [call.kernel for call in iteration if call.kernel and not call.micro_batch]
    return [(text.partition(" ")[0], int(text.rpartition(" flops=")[2].partition(" ")[0])) for text in kernels]


def test_rows_of_a_workload_have_half_of_the_tokens_on_two_ranks() -> None:
    args = WorkloadArgs(**BASE | {"context_parallel_size": 2, "world_size": 8})
    whole = WorkloadArgs(**BASE | {"context_parallel_size": 1, "world_size": 4, "seq_length": 64})
    ours, theirs = (
        [flops_of(row) for row in generate(each, dialect="framework").rows
         if (kernel := kernel_of(row)) and not kernel.op.startswith("attention")]
        for each in (args, whole)
    )  # fmt: skip
    assert ours and ours == theirs


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"seq_length": 124}, "seq_length 124 must be a multiple of 8: each of the 4 context-parallel ranks has two"),
        ({"num_query_groups": 4, "cp_comm_type": "a2a"}, "by a2a each rank gets as many of the 2 groups"),
        ({"phase": "prefill"}, "Megatron-core's static batching divides no prompts"),
    ],
)
def test_what_cannot_be_divided_is_refused(values: dict[str, Any], text: str) -> None:
    (found,) = context_parallelism(WorkloadArgs(**BASE | values))
    assert text in found
