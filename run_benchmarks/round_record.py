"""From the nodes of a round that is over to its record, round.json."""

from __future__ import annotations

import time
from collections.abc import Sequence

from run_benchmarks.context import Node, RunContext
from run_benchmarks.plan import CasePlan
from run_benchmarks.results.judge import judge
from run_benchmarks.results.records import NodeRecord, RoundRecord, Verdict
from training.benchmarks.driver.masking import mask_argv, mask_environment


def round_record(
    context: RunContext,
    case: CasePlan,
    nodes: Sequence[Node],
    *,
    index: int,
    attempt: int,
    started_ms: int,
    phase_seconds: dict[str, float],
    master_port: int | None,
    ended_early: tuple[Verdict, str] | None,
) -> RoundRecord:
    """Judge what was collected of a round and say it all; `ended_early` where the controller itself ended the round."""
    judgement = judge([node.outcome for node in nodes], ended_early=ended_early)
    return RoundRecord(
        run_id=context.plan.run_id,
        case=case.name,
        round=index,
        attempt=attempt,
        verdict=judgement.verdict,
        reason=judgement.reason,
        first_failure=judgement.first_failure,
        warnings=[*(warning for node in nodes for warning in node.warnings), *judgement.warnings],
        started_ms=started_ms,
        finished_ms=time.time_ns() // 1_000_000,
        phase_seconds=phase_seconds,
        master_port=master_port,
        world_size=case.nnodes * case.nproc,
        metrics=judgement.metrics,
        steps=judgement.steps,
        nodes=[_node_record(node, context, master_port) for node in nodes],
    )


def _node_record(node: Node, context: RunContext, master_port: int | None) -> NodeRecord:
    exit_record = node.outcome.exit_record()
    workload = node.plan.workload
    return NodeRecord(
        host=node.plan.host,
        node_rank=node.plan.node_rank,
        ranks=list(node.plan.ranks),
        exit_code=node.outcome.exit_code,
        argv=mask_argv(workload.argv if master_port is None else workload.bound_argv(master_port)),
        environment=mask_environment(workload.environment),
        image=node.plan.image,
        image_id=context.image_ids.get(node.plan.image or ""),
        interface=exit_record.interface if exit_record else None,
        clock_offset_seconds=round(node.outcome.clock_offset, 4),
        code_digest=node.code_digest,
        files=node.outcome.files,
        missing=node.outcome.missing(),
        incomplete=node.outcome.incomplete,
        monitor=node.outcome.monitor_summary(),
    )
