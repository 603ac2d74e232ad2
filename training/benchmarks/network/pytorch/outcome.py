"""Outcome of the network benchmark: busbw and its analysis, a reference for each collective and group."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from protocol.case_config import CaseConfig
from protocol.claims import LoggedRun, departures, process_seconds
from protocol.default_outcome import DefaultOutcome, compare
from protocol.finding import PartFinding
from protocol.outcome import (
    Assessment,
    Block,
    Comparison,
    HostFigure,
    MeasuredCase,
    MeasuredRound,
    Metric,
    Paragraph,
    Picture,
    Preformatted,
    Reference,
    Table,
    TableCell,
)
from protocol.perflog import Event
from training.benchmarks.network.pytorch.config import Config
from training.benchmarks.network.pytorch.summing import derived
from training.benchmarks.network.reporting.references import (
    median_busbw_gbps,
    named_references,
    regressions_in_words,
    what_of,
)
from training.benchmarks.network.reporting.view import (
    NetworkView,
    groups_table,
    matrix_chart,
    matrix_table,
    nccl_table,
    network_view,
    sizes_table,
    sweep_chart,
)
from training.benchmarks.network.slow_parts.findings import findings_of, missed_link, recorded
from training.benchmarks.network.slow_parts.peers import peer_blocks

# The console omits a wider matrix, which no terminal could show; the report has it.
MATRIX_HOSTS = 12
# Hosts whose own matrix is shown.
CONSOLE_HOSTS, REPORT_HOSTS = 4, 64
SMALL = "8"  # bytes
# Of a case that compares no parts of the cluster with each other.
NOBODY: dict[str, Any] = {"findings": [], "findings_left_out": 0, "remarks": [], "not_judged": []}

_LIMITS = ("slow_percent", "late_percent", "expected_link", "expected_links")  # change no measurement
_E2E = Metric(name="e2e_time", unit="s", better="lower", meaning="from the start of rank 0 to the result")
_ALWAYS = (
    Metric(name="max_busbw_GBps", unit="GB/s", better="higher", meaning="largest bus bandwidth", is_key=True),
    Metric(name="avg_busbw_GBps", unit="GB/s", better="higher", meaning="mean bus bandwidth of all sizes"),
    Metric(name="max_algbw_GBps", unit="GB/s", better="higher", meaning="largest algorithm bandwidth"),
    Metric(name="min_p50_us", unit="us", better="lower", meaning="smallest median time of an operation"),
)
_OF_A_LINK = Metric(
    name="measured_over_expected", unit="", better="higher", meaning="largest busbw / that of expected_link"
)
_OF_GROUPS = Metric(name="noise_percent", unit="%", better="lower", meaning="noise from repeat to repeat")
_OF_HALVES = Metric(name="bisection_GBps", unit="GB/s", better="higher", meaning="across the cut, in each direction")
_OF_PARTS = Metric(name="many_over_one", unit="", better="lower", meaning="time of many messages / of one")
_OF_LOAD = {
    "overlap": (
        Metric(name="overlap_percent", unit="%", better="higher", meaning="of all_reduce or compute that is hidden"),
    ),
    "congestion": (
        Metric(name="congestion_p50", unit="", better="lower", meaning="median time beside traffic / alone"),
        Metric(name="congestion_p99", unit="", better="lower", meaning="99th percentile beside traffic / alone"),
    ),
    "soak": (Metric(name="jitter", unit="", better="lower", meaning="largest p99 / p50 of a size"),),
}
_OF_OBJECTS = Metric(name="object_over_tensor", unit="", better="lower", meaning="time with an object / with a tensor")


class NetworkOutcome(DefaultOutcome):
    """Outcome of the network benchmark: bandwidth by collective and size, and slow hosts, devices and links."""

    def metrics(self, config: Mapping[str, Any]) -> Sequence[Metric]:
        """The metrics of every case, and those of its tool and pattern."""
        tool, pattern = config.get("tool", "sweep"), config.get("pattern", "all")
        depending = (
            (_OF_A_LINK, config.get("expected_link") is not None),
            (_OF_GROUPS, pattern != "all"),
            (_OF_HALVES, pattern == "halves"),
            (_OF_PARTS, tool == "all_reduce_latency_comp"),
            (_OF_OBJECTS, str(tool).startswith("all_gather_object")),
        )
        return (*_ALWAYS, *(metric for metric, is_there in depending if is_there), *_OF_LOAD.get(str(tool), ()), _E2E)

    def conditions(self, case: MeasuredCase) -> Mapping[str, JsonValue]:
        """The backend alone: collective, size, form and hosts are in each measurement's key."""
        return {"backend": case.config.get("backend")}

    def figure_conditions(self, case: MeasuredCase) -> Mapping[str, JsonValue]:
        """All settings but limits: a metric is of all collectives, sizes and hosts of a case."""
        return {key: value for key, value in super().conditions(case).items() if key not in _LIMITS}

    def contradictions(self, case: MeasuredCase, log: LoggedRun) -> Sequence[str]:
        """Claims of FINISHED that contradict the rows of its log and what TRAIN_START says of the hosts."""
        if log.rows is None:
            return process_seconds(log)
        config = Config.model_validate_json(json.dumps(dict(case.config)))
        found = derived(config, case.nnodes, log.rows, log.value(Event.TRAIN_START))
        return [*process_seconds(log), *departures(log, NOBODY | found, "the rows of its log")]

    def references(self, case: MeasuredCase, rounds: Sequence[MeasuredRound]) -> Mapping[str, Reference]:
        """The time of each collective, size, form and group."""
        return named_references((each.steps, each.hosts) for each in rounds)

    def compare(self, now: Mapping[str, Reference], then: Mapping[str, Reference], percent: float) -> Comparison:
        """Compare the measurements of both; hosts all of whose pairs became slower are named."""
        changes = compare(now, then, percent, {key: what_of(found) for key, found in now.items()})
        return Comparison(changes=changes, sentences=tuple(regressions_in_words(changes)))

    def assess(self, case: MeasuredCase, rounds: Sequence[MeasuredRound]) -> Assessment:
        """The findings in the groups of each round, as sentences."""
        views = {each.number: network_view(case, each) for each in rounds}
        return Assessment(
            sentences=tuple(
                f"round {number}: {sentence}" if len(rounds) > 1 else sentence
                for number, view in views.items()
                if view is not None and view.analysis is not None
                for sentence in view.sentences
            )
        )

    def findings(self, case: MeasuredCase, measured: MeasuredRound) -> Sequence[PartFinding]:
        """The bad parts that the ranks named, and a link slower than the expected one."""
        said = measured.metrics.get("findings")
        if said is not None:
            named = findings_of(said, measured.hosts)
        else:
            view = network_view(case, measured)
            named = view.analysis.findings if view is not None and view.analysis is not None else ()
        missed = missed_link(case.config, measured.metrics, tuple(measured.hosts.values()))
        return [*map(recorded, named), *missed]

    def host_figures(self, case: MeasuredCase, measured: MeasuredRound) -> Sequence[HostFigure]:
        """The median busbw, in GB/s, of the groups that a host measured in."""
        values = median_busbw_gbps(measured.steps, measured.hosts)
        return [HostFigure(name="busbw_GBps", unit="GB/s", better="higher", values=values)] if values else []

    def console(self, case: MeasuredCase, measured: MeasuredRound) -> Sequence[Block]:
        """The table of nccl-tests for a sweep by all ranks, the matrix for pairs, one a host for peers."""
        title = f"{case.name} round {measured.number}" + f" (partial: {measured.partial})" * bool(measured.partial)
        if text := nccl_table(title, measured.steps):
            return (Preformatted(text=text),)
        if peers := list(peer_blocks(measured.steps, measured.hosts, CONSOLE_HOSTS)):
            return (Paragraph(text=title), *peers)
        view = network_view(case, measured)
        if view is None or not 0 < len(view.matrix) <= MATRIX_HOSTS:
            return ()
        return (_small_matrix(title, view),)

    def report(self, case: MeasuredCase, measured: MeasuredRound) -> Sequence[Block]:
        """Sentences, a plot, a pattern's matrix or groups, and every size that all ranks measured."""
        view = network_view(case, measured)
        if view is None:
            return ()
        blocks: list[Block] = [Paragraph(text=sentence) for sentence in view.sentences]
        if (chart := sweep_chart(case, measured)) is not None:
            blocks.append(Picture(chart=chart))
        if view.matrix:
            blocks.append(Picture(chart=matrix_chart(view)))
            blocks += [matrix_table(view)] if len(view.hosts) <= MATRIX_HOSTS else []
        elif view.analysis is not None and view.analysis.groups:
            blocks.append(groups_table(view.analysis))
            if view.analysis.bisection_gbps is not None:
                blocks.append(Paragraph(text=f"Bisection: {view.analysis.bisection_gbps:.4g} GB/s in each direction."))
        blocks += peer_blocks(measured.steps, measured.hosts, REPORT_HOSTS)
        sizes = sizes_table(measured.steps)
        return [*blocks, sizes] if sizes.rows else blocks

    def probe(self, config: Mapping[str, Any]) -> Mapping[str, JsonValue] | None:
        """Overrides for a small all_reduce among all ranks, which any two hosts can run, whatever the case measures."""
        own = {
            name: field.default for name, field in Config.model_fields.items() if name not in CaseConfig.model_fields
        }
        return own | {"sizes": SMALL}


def _small_matrix(title: str, view: NetworkView) -> Table:
    return Table(
        title=f"{title}: busbw between hosts, GB/s, median of the repeats (!: named)",
        columns=("", *view.hosts),
        rows=tuple(
            (
                TableCell(value=host),
                *(TableCell(value="" if cell is None else f"{cell.gbps:.4g}{' !' * cell.named}") for cell in cells),
            )
            for host, cells in zip(view.hosts, view.matrix, strict=True)
        ),
    )


OUTCOME = NetworkOutcome()
