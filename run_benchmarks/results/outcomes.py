"""Passes the records of cases and rounds to their benchmark's outcome, for statements, tables and baselines."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from common.errors import in_brief
from protocol.default_outcome import DefaultOutcome, is_measured
from protocol.finding import FindingOutcome, PartFinding
from protocol.masking import mask_config
from protocol.outcome import (
    Assessment,
    Block,
    HostFigure,
    HostOutcome,
    MeasuredCase,
    MeasuredRound,
    Metric,
    Outcome,
    Paragraph,
    declared,
)
from run_benchmarks.results.comparison import BaselineRow
from run_benchmarks.results.records import NodeRecord, RoundRecord
from training.benchmarks.catalog import UnknownBenchmarkError, benchmark

MAX_FINDINGS = 1000


class CaseLike(Protocol):
    """The fields of a case, planned or recorded, that an outcome needs."""

    @property
    def name(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def framework(self) -> str: ...

    @property
    def config(self) -> dict[str, Any]: ...

    @property
    def nnodes(self) -> int: ...

    @property
    def nproc(self) -> int: ...


def outcome_of(case: CaseLike) -> Outcome:
    """The outcome of the case's benchmark; the default one if the benchmark no longer exists (an old record)."""
    try:
        return benchmark(case.model, case.framework).outcome
    except UnknownBenchmarkError:
        return DefaultOutcome()


def measured_case(case: CaseLike) -> MeasuredCase:
    """The case in the form that an outcome takes."""
    return MeasuredCase.masked(case.name, case.config, nnodes=case.nnodes, nproc=case.nproc)


def measured_round(record: RoundRecord) -> MeasuredRound:
    """The round in the form that an outcome takes."""
    hosts = {node.node_rank: node.host for node in record.nodes}
    partial = "" if record.partial is None else str(record.partial)
    return MeasuredRound(
        number=record.round,
        metrics=record.metrics,
        steps=record.steps,
        hosts=hosts,
        partial=partial,
        joules=joules_of(record.nodes),
    )


def joules_of(nodes: Sequence[NodeRecord]) -> dict[str, float]:
    """The joules of the measured work on all nodes by power meter, of the meters that each of them has."""
    of_nodes = []
    for node in nodes:
        phase = (node.monitor or {}).get("phase")
        meters = phase.get("power") if isinstance(phase, dict) else None
        found = meters.items() if isinstance(meters, dict) else ()
        joules = {meter: power.get("joules") for meter, power in found if isinstance(power, dict)}
        of_nodes.append({meter: value for meter, value in joules.items() if is_measured(value) and value > 0})
    common = set.intersection(*map(set, of_nodes)) if of_nodes else set()
    return {meter: math.fsum(each[meter] for each in of_nodes) for meter in sorted(common)}


def device_of(rounds: Sequence[RoundRecord]) -> str:
    """The type of device of these rounds; several are joined by " + "."""
    return " + ".join(sorted({device for each in rounds for device in each.devices})) or "unknown"


def metrics_of(case: CaseLike) -> Sequence[Metric]:
    """The metrics that the case's benchmark declares, the key figure first; none if it fails."""
    try:
        return declared(outcome_of(case).metrics(mask_config(case.config)))
    except Exception:  # noqa: BLE001 - the settings of a record are of any version
        return ()


def assess(case: CaseLike, rounds: Sequence[RoundRecord]) -> Assessment:
    """The benchmark's statements on these rounds; a warning if it fails."""
    try:
        return outcome_of(case).assess(measured_case(case), [measured_round(each) for each in rounds])
    except Exception as error:  # noqa: BLE001 - whatever hosts sent is not the run's end
        return Assessment(warnings=(failure(error),))


def findings_in(case: CaseLike, record: RoundRecord) -> tuple[tuple[PartFinding, ...], list[str]]:
    """The bad parts of the cluster that the benchmark finds in a round; a warning if it fails or finds too many."""
    outcome = outcome_of(case)
    if not isinstance(outcome, FindingOutcome):
        return (), []
    try:
        found = tuple(outcome.findings(measured_case(case), measured_round(record)))
    except Exception as error:  # noqa: BLE001 - whatever hosts sent is not the run's end
        return (), [failure(error)]
    if len(found) <= MAX_FINDINGS:
        return found, []
    return found[:MAX_FINDINGS], [f"{len(found) - MAX_FINDINGS} of {len(found)} findings are not in this record"]


def host_figures(case: CaseLike, record: RoundRecord) -> Sequence[HostFigure]:
    """The figures of each host that the benchmark measured in a round; nothing if it fails on what hosts sent."""
    outcome = outcome_of(case)
    if not isinstance(outcome, HostOutcome):
        return ()
    try:
        return tuple(outcome.host_figures(measured_case(case), measured_round(record)))
    except Exception:  # noqa: BLE001 - whatever hosts sent is not the history's end
        return ()


def console_blocks(case: CaseLike, record: RoundRecord) -> Sequence[Block]:
    """The tables of a round for the console; a sentence if hosts sent data that cannot be shown."""
    try:
        return tuple(outcome_of(case).console(measured_case(case), measured_round(record)))
    except Exception as error:  # noqa: BLE001 - the tables of all rounds are not lost for what one of them holds
        return (Paragraph(text=f"{case.name} round {record.round}: {failure(error)}"),)


def report_blocks(case: CaseLike, record: RoundRecord, baseline: Sequence[BaselineRow] = ()) -> Sequence[Block]:
    """The round's section of the report; a sentence where its measurements cannot be analysed."""
    try:
        measured = replace(measured_case(case), baseline={row.what: row.baseline for row in baseline})
        return tuple(outcome_of(case).report(measured, measured_round(record)))
    except Exception as error:  # noqa: BLE001 - the data of one round must not cost the report of all
        return (Paragraph(text=failure(error)),)


def failure(error: Exception) -> str:
    """A sentence for an outcome that failed on data from hosts."""
    return f"its measurements cannot be analysed: {in_brief(error)}"
