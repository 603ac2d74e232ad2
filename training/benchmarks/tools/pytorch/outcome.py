"""Outcome of the tools of others: hosts whose tests fail, hosts that are slower than the others, and what was not run.

A figure is compared with that of the same part (device, matrix cell) of the other hosts, whose place on the board is
the same. What was not run passes nothing: it degrades the round.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from common.statistics import behind
from protocol.default_outcome import DefaultOutcome, is_measured
from protocol.finding import MAX_CHARACTERS, FindingKind, FindingSeverity, PartFinding
from protocol.outcome import Block, HostFigure, MeasuredCase, MeasuredRound, Metric, Table, TableCell
from training.benchmarks.tools.table import TOOLS

INSPECTOR_HINT = "it comes late: the others wait for it in this collective"
_LIMIT = 7.0
SHOWN, MAX_TEST = 4, 200


class ToolsOutcome(DefaultOutcome):
    """See Outcome."""

    def findings(self, case: MeasuredCase, measured: MeasuredRound) -> Sequence[PartFinding]:
        """See FindingOutcome."""
        limit = case.config.get("max_percent_behind")
        return [
            finding
            for step in measured.steps
            for finding in (
                *_failed(step, measured),
                *_slow(step, measured, limit if is_measured(limit) else _LIMIT),
                *_not_run(step, measured),
                *_silent(step, measured),
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
        """See HostOutcome."""
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


def _by_host(step: Mapping[str, Any], key: str, measured: MeasuredRound) -> dict[str, Mapping[str, Any]]:
    """The object under `key` of each host that there is."""
    found = step.get(key)
    return {
        measured.hosts[int(rank)]: value
        for rank, value in (found.items() if isinstance(found, dict) else ())
        if str(rank).isdecimal() and int(rank) in measured.hosts and isinstance(value, dict)
    }


def _failed(step: Mapping[str, Any], measured: MeasuredRound) -> Iterator[PartFinding]:
    """The parts that the tool itself calls broken."""
    tool = str(step.get("tool"))
    for host, parts in _by_host(step, "failed", measured).items():
        for part, why in parts.items():
            yield _finding((host,), "failed_test", f"{tool}: {part}: {why}", "follow the tool's manual")


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


def _not_run(step: Mapping[str, Any], measured: MeasuredRound) -> Iterator[PartFinding]:
    """A fault of the host where the tool gives no result, though it does on most; else nobody's, and nothing passed."""
    tool, found = str(step.get("tool")), _by_host(step, "not_run", measured)
    ran = len(measured.hosts) - len(found)
    reasons: dict[str, list[str]] = {}
    for host, why in found.items():
        if why.get("is_missing") is not True and ran > len(found):
            said = f"{tool} gives a result on {ran} other hosts, not here: {why.get('why')}"
            yield _finding((host,), "failed_test", said, "run it there by hand")
        else:
            reasons.setdefault(str(why.get("why")), []).append(host)
    for reason, hosts in reasons.items():
        name = "" if tool in TOOLS and reason.startswith(TOOLS[tool].command[0]) else f"{tool}: "
        more = f" and {len(hosts) - SHOWN} more" if len(hosts) > SHOWN else ""
        said = f"not run: {name}{reason} on {', '.join(hosts[:SHOWN])}{more}"
        yield _finding(tuple(hosts), "not_run", said, "install it, or leave it out", "warning" if ran else "fault")


def _silent(step: Mapping[str, Any], measured: MeasuredRound) -> Iterator[PartFinding]:
    """The parts without a figure, as a port whose calls all fail: a fault of the host if most others have it."""
    tool = str(step.get("tool"))
    values = {figure.test: len(figure.by_host(measured)) for figure in _figures(step)}
    parts: dict[str, dict[str, str]] = {}
    for host, told in _by_host(step, "silent", measured).items():
        for part, why in told.items():
            parts.setdefault(str(part), {})[host] = str(why)
    for part, hosts in parts.items():
        test = f"{tool} {part}"
        ran = values.get(test[:MAX_TEST], 0)
        for host, why in hosts.items() if ran > len(hosts) else ():
            said = f"{test} gives a result on {ran} other hosts, not here: {why}"
            yield _finding((host,), "failed_test", said, "check the device, its slot and cable")
        if ran <= len(hosts):
            more = f" and {len(hosts) - SHOWN} more" if len(hosts) > SHOWN else ""
            said = f"not run: {test}: {next(iter(hosts.values()))} on {', '.join([*hosts][:SHOWN])}{more}"
            yield _finding(tuple(hosts), "not_run", said, "look why, or leave the device out", "warning")


def _finding(
    hosts: tuple[str, ...], kind: FindingKind, evidence: str, action: str, severity: FindingSeverity = "fault"
) -> PartFinding:
    return PartFinding(
        part="host" if len(hosts) == 1 else "group",
        hosts=hosts,
        kind=kind,
        severity=severity,
        evidence=evidence[:MAX_CHARACTERS],
        suggested_action=action,
        drained_hosts=() if kind == "not_run" else hosts,
        sentence=(f"host {hosts[0]}: {evidence}" if len(hosts) == 1 else evidence)[:MAX_CHARACTERS],
    )


OUTCOME = ToolsOutcome((Metric(name="e2e_time", unit="s", better="lower", is_reference=False),))
