"""Outcome of the tools of others: hosts whose tests fail, hosts that are slower than the others, and what was not run.

A figure is compared with that of the same part (device, matrix cell) of the other hosts, whose place on the board is
the same. What was not run passes nothing: it degrades the round.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal

from common.shortening import few
from common.statistics import behind
from protocol.default_outcome import DefaultOutcome, is_measured
from protocol.finding import FindingKind, FindingSeverity, PartFinding
from protocol.outcome import Block, HostFigure, MeasuredCase, MeasuredRound, Metric, Table, TableCell
from training.benchmarks.tools.table import TOOLS

INSPECTOR_HINT = "it comes late: the others wait for it in this collective"
_LIMIT = 7.0
SHOWN, MAX_TEST = 4, 200


class ToolsOutcome(DefaultOutcome):
    """Outcome of other people's tools, such as nccl-tests: their figures, and where they fail or are slow."""

    def findings(self, case: MeasuredCase, measured: MeasuredRound) -> Sequence[PartFinding]:
        """The parts where a tool failed, or was behind the others by more than `max_percent_behind`."""
        limit = case.config.get("max_percent_behind")
        return [
            finding
            for step in measured.steps
            for finding in (
                *_failed(step, measured),
                *_slow(step, measured, limit if is_measured(limit) else _LIMIT),
                *_not_run(step, measured),
                *_silent(step, measured),
                *_told(step, measured),
            )
        ]

    def console(self, case: MeasuredCase, measured: MeasuredRound) -> Sequence[Block]:
        """Each figure of all hosts, the worst host named."""
        rows = [row for step in measured.steps for figure in _figures(step) if (row := _row(figure, measured))]
        columns = ("tool", "unit", "hosts", "worst", "of", "best")
        return (Table(title=f"{case.name}: tools", columns=columns, rows=tuple(rows)),) if rows else ()

    def report(self, case: MeasuredCase, measured: MeasuredRound) -> Sequence[Block]:
        """As on the console."""
        return self.console(case, measured)

    def host_figures(self, case: MeasuredCase, measured: MeasuredRound) -> Sequence[HostFigure]:
        """Each figure of each tool by host, in its unit."""
        return [
            HostFigure(name=figure.test, unit=figure.unit, better=figure.better, values=figure.by_host(measured))
            for step in measured.steps
            for figure in _figures(step)
        ]


class _Figure:
    """A figure of all hosts, by rank; a host may have sent anything."""

    def __init__(self, found: Mapping[str, Any]) -> None:
        self.test, self.unit = str(found.get("test"))[:MAX_TEST], str(found.get("unit"))[:20]
        self.better: Literal["higher", "lower"] = "lower" if found.get("better") == "lower" else "higher"
        values = found.get("values_of_ranks")
        listed = values if isinstance(values, list) else []
        self.values = [float(value) if is_measured(value) and value > 0 else None for value in listed]

    def ranks(self, measured: MeasuredRound) -> list[int]:
        """The ranks of the hosts that have a value."""
        return [rank for rank, value in enumerate(self.values) if value is not None and rank in measured.hosts]

    def by_host(self, measured: MeasuredRound) -> dict[str, float]:
        """The values of the hosts that have one."""
        found = {measured.hosts.get(rank): value for rank, value in enumerate(self.values)}
        return {host: value for host, value in found.items() if host is not None and value is not None}


def _figures(step: Mapping[str, Any]) -> list[_Figure]:
    found = step.get("figures")
    return [_Figure(each) for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _row(figure: _Figure, measured: MeasuredRound) -> tuple[TableCell, ...] | None:
    values = figure.by_host(measured)
    if not values:
        return None
    ordered = sorted(values, key=lambda host: values[host], reverse=figure.better == "lower")
    return (
        TableCell(value=figure.test),
        TableCell(value=figure.unit),
        TableCell(value=len(values)),
        TableCell(value=values[ordered[0]]),
        TableCell(value=ordered[0]),
        TableCell(value=values[ordered[-1]]),
    )


def _by_rank(step: Mapping[str, Any], key: str, measured: MeasuredRound) -> dict[int, Mapping[str, Any]]:
    """The object under `key` of each host that there is."""
    found = step.get(key)
    return {
        int(rank): value
        for rank, value in (found.items() if isinstance(found, dict) else ())
        if str(rank).isdecimal() and int(rank) in measured.hosts and isinstance(value, dict)
    }


def _failed(step: Mapping[str, Any], measured: MeasuredRound) -> Iterator[PartFinding]:
    """The parts that the tool itself calls broken."""
    tool = str(step.get("tool"))
    for rank, parts in _by_rank(step, "failed", measured).items():
        for part, why in parts.items():
            yield _finding((measured.hosts[rank],), "failed_test", f"{tool}: {part}: {why}", "follow the tool's manual")


def _slow(step: Mapping[str, Any], measured: MeasuredRound, limit: float) -> Iterator[PartFinding]:
    hint = "" if str(step.get("tool")) in TOOLS else f": {INSPECTOR_HINT}"
    for figure in _figures(step):
        word = "below" if figure.better == "higher" else "above"
        for rank, percent in behind(figure.values, limit, figure.better).items():
            if (host := measured.hosts.get(rank)) is not None:
                said = (
                    f"{figure.test} {figure.values[rank]:.4g} {figure.unit}, {percent:.0f} % {word} its peers' median"
                )
                yield _finding((host,), "constant", f"{said}{hint}", "check the device, its slot and cable")


def _met_one(tool: str, rank: int, without: Collection[int], having: Collection[int]) -> bool:
    """Whether a host met one that has a result, and so is to blame for having none itself.

    With a tool between hosts it met its neighbours in the ring alone: without a result, they may be the broken ones.
    """
    if tool not in TOOLS or TOOLS[tool].scope not in ("pairs", "ring"):
        return True
    ranks = sorted({*without, *having})
    at = ranks.index(rank)
    return not {ranks[at - 1], ranks[(at + 1) % len(ranks)]}.isdisjoint(having)


def _not_run(step: Mapping[str, Any], measured: MeasuredRound) -> Iterator[PartFinding]:
    """A fault of each host without a result, if most have one; else nobody's, and nothing passed."""
    tool, found = str(step.get("tool")), _by_rank(step, "not_run", measured)
    having = measured.hosts.keys() - found.keys()
    ran = len(having)
    tried = {rank for rank, why in found.items() if why.get("is_missing") is not True}
    reasons: dict[str, list[str]] = {}
    for rank, why in found.items():
        host = measured.hosts[rank]
        if rank in tried and ran > len(found):
            said = f"{tool} gives a result on {ran} other hosts, not here: {why.get('why')}"
            met_one = _met_one(tool, rank, tried, having)
            yield _finding((host,), "failed_test", said, "run it there by hand", is_drained=met_one)
        else:
            reasons.setdefault(str(why.get("why")), []).append(host)
    for reason, hosts in reasons.items():
        name = "" if tool in TOOLS and reason.startswith(TOOLS[tool].command[0]) else f"{tool}: "
        said = f"not run: {name}{reason} on {few(hosts, SHOWN)}"
        yield _finding(tuple(hosts), "not_run", said, "install it, or leave it out", "warning" if ran else "fault")


def _silent(step: Mapping[str, Any], measured: MeasuredRound) -> Iterator[PartFinding]:
    """The parts without a figure, as a port whose calls all fail: faults where most others have one."""
    tool = str(step.get("tool"))
    values = {figure.test: figure.ranks(measured) for figure in _figures(step)}
    parts: dict[str, dict[int, str]] = {}
    for rank, told in _by_rank(step, "silent", measured).items():
        for part, why in told.items():
            parts.setdefault(str(part), {})[rank] = str(why)
    for part, whys in parts.items():
        test = f"{tool} {part}"
        having = values.get(test[:MAX_TEST], [])
        hosts: dict[str, str] = {}
        for rank, why in whys.items():
            if len(having) > len(whys):
                said = f"{test} gives a result on {len(having)} other hosts, not here: {why}"
                met_one = _met_one(tool, rank, whys, having)
                action = "check the device, its slot and cable"
                yield _finding((measured.hosts[rank],), "failed_test", said, action, is_drained=met_one)
            else:
                hosts[measured.hosts[rank]] = why
        if hosts:
            said = f"not run: {test}: {next(iter(hosts.values()))} on {few([*hosts], SHOWN)}"
            yield _finding(tuple(hosts), "not_run", said, "look why, or leave the device out", "warning")


def _told(step: Mapping[str, Any], measured: MeasuredRound) -> Iterator[PartFinding]:
    """The verdicts that are neither good nor bad: they pass nothing, and accuse nobody."""
    hosts: dict[tuple[str, str], list[str]] = {}
    for rank, told in _by_rank(step, "told", measured).items():
        for verdict, why in told.items():
            hosts.setdefault((str(verdict), str(why)), []).append(measured.hosts[rank])
    for (verdict, why), names in hosts.items():
        where = f" on {few(names, SHOWN)}" if len(names) > 1 else ""
        said = f"{step.get('tool')} {verdict}: {why}{where}"
        yield _finding(tuple(names), "not_run", said, "follow the tool's manual", "warning")


def _finding(
    hosts: tuple[str, ...],
    kind: FindingKind,
    evidence: str,
    action: str,
    severity: FindingSeverity = "fault",
    *,
    is_drained: bool = True,
) -> PartFinding:
    return PartFinding(
        part="host" if len(hosts) == 1 else "group",
        hosts=hosts,
        kind=kind,
        severity=severity,
        evidence=evidence,
        suggested_action=action,
        drained_hosts=hosts if is_drained and kind != "not_run" else (),
        sentence=f"host {hosts[0]}: {evidence}" if len(hosts) == 1 else evidence,
    )


OUTCOME = ToolsOutcome((Metric(name="e2e_time", unit="s", better="lower", is_reference=False),))
