"""Writes the record of a round, round.json, from its nodes after its end.

Data from hosts can at worst change a verdict: what cannot be judged or written is named and left out.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protocol import safe_json
from protocol.finding import PartFinding
from protocol.masking import mask_argv, mask_config, mask_environment
from run_benchmarks.console.console import LOG
from run_benchmarks.plan.plan import CasePlan
from run_benchmarks.results.curves import CURVES_FILE, RoundCurves
from run_benchmarks.results.device_findings import is_broken, models_of, unlinked_hosts, unseen_hosts
from run_benchmarks.results.host_findings import host_findings, usual_links
from run_benchmarks.results.judge import judge
from run_benchmarks.results.monitor_readings import PortLink, Sight, read_sys_info, sight_of
from run_benchmarks.results.observations import with_observations
from run_benchmarks.results.outcomes import CaseLike, findings_in
from run_benchmarks.results.records import NodeRecord, RoundRecord, Verdict, record_text, write_text
from run_benchmarks.results.seal import config_digest
from run_benchmarks.results.step_curves import StepCurves
from run_benchmarks.rounds.integrity import Neighbourhood, dead_monitor, integrity
from run_benchmarks.rounds.owed import stored_findings, with_recorded
from run_benchmarks.rounds.time_budget import TimeBudget, budget_of
from run_benchmarks.state.context import RunContext, RunningNode

MAX_REASON_CHARACTERS = 1000
SAID = 3  # findings of a failed round that its reason names


@dataclass(frozen=True, kw_only=True)
class RoundFacts:
    """The controller's own facts about a round. `ended_early`: verdict and reason if it ended the round; `recorded`:
    its record so far, if this is a later collection.
    """

    index: int
    attempt: int
    started_ms: int
    phase_seconds: dict[str, float]
    master_port: int | None
    ended_early: tuple[Verdict, str] | None
    neighbourhood: Neighbourhood | None = None
    recorded: RoundRecord | None = None


def write_round(
    path: Path, context: RunContext, case: CasePlan, nodes: Sequence[RunningNode], facts: RoundFacts
) -> RoundRecord:
    """Judge a round, write its round.json and, beside it, its curves.json, and return the record.

    Raises:
        OSError: a file cannot be written.
    """
    curves = ""
    try:
        with TimeBudget(budget_of(nodes)):
            record, steps = round_record(context, case, nodes, facts)
            text = record_text(record)
            found = [each.outcome.curves for each in nodes if each.outcome.curves is not None]
            curves = record_text(RoundCurves(nodes=found, steps=steps), indent=None)
    except Exception as error:  # noqa: BLE001 - whatever a host sent is this round's verdict and not the run's end
        LOG.debug("round %d of %s cannot be judged", facts.index, case.name, exc_info=True)
        record = unjudged_record(context, case, nodes, facts, error)
        text = record_text(record)
    if curves:
        write_text(path.with_name(CURVES_FILE), curves)
    write_text(path, text)
    return record


def round_record(
    context: RunContext, case: CasePlan, nodes: Sequence[RunningNode], facts: RoundFacts
) -> tuple[RoundRecord, StepCurves | None]:
    """Judge the collected files of a round and make its record; and what its ranks did by step."""
    judgement = judge(
        [node.outcome for node in nodes], ended_early=facts.ended_early, case_sha256=case.case_sha256, case=case
    )
    reason = judgement.reason
    if facts.attempt > 1 and judgement.verdict is Verdict.PASS:
        reason += f", in attempt {facts.attempt}"
    neighbourhood = facts.neighbourhood or Neighbourhood(context.plan, context.runtime)
    record = RoundRecord(
        **_known_before(context, case, facts),
        verdict=judgement.verdict,
        reason=reason,
        first_failure=judgement.first_failure,
        warnings=[*(warning for node in nodes for warning in node.warnings), *judgement.warnings],
        devices=list(judgement.devices),
        metrics=judgement.metrics,
        steps=judgement.steps,
        partial=judgement.partial,
        data_files=judgement.data_files,
        nodes=[_node_record(node, context, facts, judgement.phases_ms.get(node.plan.host)) for node in nodes],
        integrity=integrity(nodes, context.reports, neighbourhood, facts.started_ms),
    )
    if facts.recorded is not None:
        record = with_recorded(record, facts.recorded)
    for node, part in zip(nodes, record.nodes, strict=True):
        if record.integrity is not None and (remark := dead_monitor(node, part.monitor)) is not None:
            record.integrity.remarks.append(remark)
    sights, seen = _seen_by_monitors(nodes, record, case)
    then = neighbourhood.findings() if facts.recorded is None else stored_findings(facts.recorded)
    return with_findings(case, record, [*then, *seen], sights), judgement.step_curves


def _seen_by_monitors(
    nodes: Sequence[RunningNode], record: RoundRecord, case: CasePlan
) -> tuple[list[Sight], list[PartFinding]]:
    """The network as the hosts' monitors saw it, and the bad parts that they saw."""
    told = [(part.host, node.outcome.folder, part.monitor) for node, part in zip(nodes, record.nodes, strict=True)]
    # Read twice: the objects of a host's 4 MiB take 90 MB, and are never those of all hosts at once.
    sights = [sight_of(host, read_sys_info(folder), monitor) for host, folder, monitor in told]
    usual = usual_links(sights)
    seen: list[PartFinding] = []
    models: dict[str, str] = {}
    for host, at, monitor in told:
        found, models[host] = _told_by_host(host, at, monitor, usual)
        seen += found
    monitors = {host: monitor for host, _, monitor in told}
    # Ranks of gloo compute on the CPU, whatever devices their vendor has.
    seen += [*unseen_hosts(monitors, are_used=case.backend != "gloo"), *unlinked_hosts(monitors, models)]
    return sights, seen


def _told_by_host(
    host: str, folder: Path, monitor: Mapping[str, Any] | None, usual: Mapping[str, PortLink]
) -> tuple[list[PartFinding], str]:
    """The bad parts of a host, and the models of its accelerators."""
    info = read_sys_info(folder)
    return host_findings(host, info, monitor, usual), models_of(info)


def with_findings(
    case: CaseLike, record: RoundRecord, seen: Sequence[PartFinding] = (), sights: Sequence[Sight] = ()
) -> RoundRecord:
    """A round that passed with the bad parts that it found, DEGRADED if there are some.

    One that failed or timed out keeps its verdict and gets the devices that broke in it. `seen`: those that the hosts'
    monitors saw, which follow those of the benchmark. `sights`: what else they saw, which stands beside the benchmark's
    findings on a host, device or link.
    """
    if record.verdict in (Verdict.FAIL, Verdict.TIMEOUT):
        return _with_broken_devices(record, [each for each in seen if is_broken(each)])
    if record.verdict is not Verdict.PASS:
        return record
    measured, warnings = findings_in(case, record)
    found = [*with_observations(measured, sights, record.remarks), *seen]
    update: dict[str, Any] = {"findings": found, "warnings": [*record.warnings, *warnings]}
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        update |= {"verdict": Verdict.DEGRADED, "reason": f"{found[0].sentence}{more}; {record.reason}"}
    return record.model_copy(update=update)


def _with_broken_devices(record: RoundRecord, broken: Sequence[PartFinding]) -> RoundRecord:
    if not broken:
        return record
    reason = "; ".join([record.reason, *(each.sentence for each in broken[:SAID])])
    return record.model_copy(update={"findings": list(broken), "reason": reason})


def unjudged_record(
    context: RunContext, case: CasePlan, nodes: Sequence[RunningNode], facts: RoundFacts, error: Exception
) -> RoundRecord:
    """The record of a round whose files caused `error`: FAIL (or the controller's own verdict), naming the host."""
    culprits = [node.plan.host for node in nodes if not _can_be_judged(node, context, facts)]
    names = ", ".join(culprits or [node.plan.host for node in nodes])
    reason = f"the results of {names} cannot be judged: {type(error).__name__}: {_printable(str(error))}"
    verdict = Verdict.FAIL
    if facts.ended_early is not None:
        verdict, early = facts.ended_early
        reason = f"{_printable(early)}; {reason}"
    return RoundRecord(
        **_known_before(context, case, facts),
        verdict=verdict,
        reason=reason,
        warnings=[_printable(warning) for node in nodes for warning in node.warnings],
        metrics={},
        steps=[],
        nodes=[_printable_part(node, context, facts.master_port) for node in nodes],
    )


def _known_before(context: RunContext, case: CasePlan, facts: RoundFacts) -> dict[str, Any]:
    """The fields of a round's record that do not depend on data from its hosts."""
    return {
        "run_id": context.plan.run_id,
        "case": case.name,
        "round": facts.index,
        "attempt": facts.attempt,
        "started_ms": facts.started_ms,
        "finished_ms": time.time_ns() // 1_000_000,
        "phase_seconds": facts.phase_seconds,
        "code_digest": context.code.digest,
        "config_sha256": config_digest(mask_config(case.config)),
        "case_sha256": case.case_sha256,
        "master_port": facts.master_port,
        "world_size": case.nnodes * case.nproc,
    }


def _can_be_judged(node: RunningNode, context: RunContext, facts: RoundFacts) -> bool:
    try:
        with TimeBudget(budget_of([node])):
            return _is_judged(node, context, facts)
    except Exception:  # noqa: BLE001 - any failure is the answer
        return False


def _is_judged(node: RunningNode, context: RunContext, facts: RoundFacts) -> bool:
    """True, or whatever error the node's files cause."""
    found = judge([node.outcome], ended_early=facts.ended_early)
    safe_json.plain([found.metrics, found.steps])
    texts = [found.reason, *found.warnings, *node.warnings]
    "".join(texts).encode("utf-8")
    if found.first_failure is not None:
        found.first_failure.model_dump_json()
    _node_record(node, context, facts, found.phases_ms.get(node.plan.host)).model_dump_json()
    return True


def _printable(text: str) -> str:
    """A host's text in a form that UTF-8 can encode, limited to what a person reads."""
    return text[:MAX_REASON_CHARACTERS].encode("utf-8", "replace").decode("utf-8")


def _printable_part(node: RunningNode, context: RunContext, master_port: int | None) -> NodeRecord:
    record = _own_part(node, context, master_port)
    return record.model_copy(update={"files": {_printable(name): file for name, file in record.files.items()}})


def _own_part(node: RunningNode, context: RunContext, master_port: int | None) -> NodeRecord:
    """The record of a node without its host's files."""
    workload = node.plan.workload
    return NodeRecord(
        host=node.plan.host,
        node_rank=node.plan.node_rank,
        ranks=list(node.plan.ranks),
        exit_code=node.outcome.exit_code,
        argv=mask_argv(workload.argv if master_port is None else workload.bound_argv(master_port)),
        environment=mask_environment(workload.environment),
        image=node.plan.image,
        image_id=context.image_id(node.plan),
        interface=None,
        clock_offset_seconds=round(node.outcome.clock_offset, 4),
        code_digest=node.code_digest,
        files=node.outcome.files,
        missing=[],
        incomplete=node.outcome.incomplete,
        cut=sorted(node.outcome.cut),
        monitor=None,
    )


def _node_record(
    node: RunningNode, context: RunContext, facts: RoundFacts, phase_ms: tuple[int, int] | None
) -> NodeRecord:
    exit_record = node.outcome.exit_record()
    return _own_part(node, context, facts.master_port).model_copy(
        update={
            "interface": exit_record.interface if exit_record else None,
            "missing": node.outcome.missing(),
            "monitor": node.outcome.monitor_summary(phase_ms),
        }
    )
