"""Compares what hosts measure together, network and training, with what an earlier acceptance measured of good ones."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median, median_high
from typing import Literal, NamedTuple

from common.statistics import QUARTILES_PER_STD, scatter
from common.units import format_size
from protocol.finding import PartFinding
from run_benchmarks.acceptance.kinds import kinds_of
from run_benchmarks.acceptance.records import CaseLevels, Usual, is_figure, shortfall
from run_benchmarks.acceptance.rungs import ALL_REDUCE, EVERY_LINK, PAIRS, SOAK, TRAINING
from run_benchmarks.results.loading import LoadedRun
from run_benchmarks.results.records import RoundRecord
from run_benchmarks.results.seal import config_digest
from training.benchmarks.network.reporting.references import busbw_of_hosts

COMPARED = (PAIRS, ALL_REDUCE, EVERY_LINK, TRAINING, SOAK)
INTERVAL = 3.92
"""Standard deviations in the interval that holds 95 % of a normal law."""
Known = Mapping[str, CaseLevels]
"""By case."""


@dataclass(frozen=True, kw_only=True)
class _Figure:
    """A figure of a case. values: by host; of all together one, of "". scatter: of that one, as of a standard
    deviation, in `unit`; None: that of the hosts.
    """

    name: str
    unit: str
    better: Literal["higher", "lower"]
    values: Mapping[str, float]
    scatter: float | None = None


class _Measured(NamedTuple):
    """A case that a run measured to the end. now: its conditions, without figures."""

    case: str
    hosts: list[str]
    now: CaseLevels
    figures: list[_Figure]


def levels_of(run: LoadedRun, without: Container[str]) -> dict[str, CaseLevels]:
    """The levels of the cases of a run, by host without those of some; of all together only if none is without."""
    found = {}
    for case, hosts, now, its in _measured(run):
        figures = {}
        is_good = not any(host in without for host in hosts)
        for each in its:
            values = [value for host, value in each.values.items() if host not in without]
            if values and (is_good or each.scatter is None):
                spread = scatter(values) if each.scatter is None else each.scatter
                figures[each.name] = Usual(unit=each.unit, median=median(values), scatter=spread, devices=len(values))
        if figures:
            found[case] = now.model_copy(update={"figures": figures})
    return found


def slow_hosts(run: LoadedRun, limit: float, then: Known) -> dict[str, list[str]]:
    """Evidence by host that is behind the levels `then` by more than `limit` percent and their scatter, unless most
    hosts are.
    """
    found: dict[str, list[str]] = {}
    for case, each, usual, percent in _short(run, limit, then):
        if each.scatter is None and 2 * len(percent) <= len(each.values):
            for host, by in percent.items():
                found.setdefault(host, []).append(_said(case, each, each.values[host], by, usual))
    return found


def slow_together(run: LoadedRun, limit: float, then: Known) -> list[PartFinding]:
    """A fault of nobody for each figure in which all hosts together, or most of them, are behind the levels `then` by
    more than `limit` percent and their scatter.
    """
    found = []
    for case, each, usual, percent in _short(run, limit, then):
        if each.scatter is not None or 2 * len(percent) > len(each.values):
            value = median(each.values[host] for host in percent)
            found.append(_fault(case, each, _said(case, each, value, median(percent.values()), usual)))
    return found


def not_compared(run: LoadedRun, then: Known) -> list[str]:
    """A sentence on each case that was measured and that `then` has not, or has of another case."""
    found = []
    for case, _hosts, now, _its in _measured(run):
        if case not in then:
            found.append(f"--against: not compared: it has nothing of {case}")
        elif other := _differs(case, now, then[case]):
            found.append(f"--against: not compared: {case}: the case differs: {other}")
    return found


def _short(run: LoadedRun, limit: float, then: Known) -> Iterator[tuple[str, _Figure, Usual, dict[str, float]]]:
    """Case, figure, its level, and by host how many percent it is behind, of those with any."""
    for case, _hosts, now, its in _measured(run):
        if case not in then or _differs(case, now, then[case]):
            continue
        for each in its:
            usual = then[case].figures.get(each.name)
            if usual is not None and usual.unit == each.unit:
                percent = shortfall(each.values, each.better, limit, usual)
                if percent:
                    yield case, each, usual, percent


def _measured(run: LoadedRun) -> Iterator[_Measured]:
    """Each case that is compared, of its last round that was measured to the end."""
    for case in COMPARED:
        good = [each for each in run.rounds.get(case, []) if each.verdict.is_measured]
        figures = _figures(case, good[-1]) if good else []
        if figures:
            yield _Measured(case, [node.host for node in good[-1].nodes], _conditions(run, case, good[-1]), figures)


def _conditions(run: LoadedRun, case: str, record: RoundRecord) -> CaseLevels:
    return CaseLevels(
        hosts=len(record.nodes),
        ranks=max((len(node.ranks) for node in record.nodes), default=0),
        settings=_settings(run, case, record),
        kinds=", ".join(sorted({*kinds_of(run, case).values()} - {""})),
    )


def _settings(run: LoadedRun, case: str, record: RoundRecord) -> str:
    """The digest of a case's settings: of a soak without its steps, whose number the rest of the budget decides."""
    for each in run.record.cases if case == SOAK else ():
        if each.name == SOAK:
            return config_digest({key: value for key, value in each.config.items() if key != "max_steps"})
    return record.config_sha256 or ""


def _differs(case: str, now: CaseLevels, then: CaseLevels) -> str:
    """In which conditions two cases differ; empty if they are alike. Settings name search or pairs, steps and sizes.

    Pairs may be of fewer hosts: each pair is of two, and fewer load the network less.
    """
    is_fewer = case == PAIRS and now.hosts < then.hosts
    said = [
        f"{what} {mine}, then {theirs}"
        for what, mine, theirs in (
            ("hosts", now.hosts, now.hosts if is_fewer else then.hosts),
            ("ranks of a host", now.ranks, then.ranks),
            ("devices", now.kinds or "unknown", then.kinds or "unknown"),
        )
        if mine != theirs
    ]
    return ", ".join([*said, *(["other settings"] if now.settings != then.settings else [])])


def _figures(case: str, record: RoundRecord) -> list[_Figure]:
    """The figures of a round; a host may have sent anything."""
    if case == PAIRS:
        return [*_of_hosts(record)]
    return [*(_of_training(record) if case in (TRAINING, SOAK) else _of_all(record.steps))]


def _of_hosts(record: RoundRecord) -> Iterator[_Figure]:
    """The busbw of each size by host, of two pairs the better, as the other host of one may be the slow one; of a
    search of all: it is not made again of few hosts.
    """
    names = {node.node_rank: node.host for node in record.nodes}
    is_search = any(step.get("pattern") == "adaptive" for step in record.steps)
    for size, values in sorted(busbw_of_hosts(record.steps, names, median_high).items()):
        good = {host: value for host, value in values.items() if host in names.values() and is_figure(value)}
        if good:
            every = [*good.values()]
            yield _Figure(
                name=f"busbw of {format_size(size)}",
                unit="GB/s",
                better="higher",
                values={"": median(every)} if is_search else good,
                scatter=scatter(every) if is_search else None,
            )


def _of_all(steps: Iterable[Mapping[str, object]]) -> Iterator[_Figure]:
    """The busbw of each size, and its scatter from the quartiles of the operations' times."""
    for step in steps:
        size, rate = step.get("size_bytes"), step.get("busbw_GBps")
        if isinstance(size, int) and is_figure(rate):
            told = step.get("time_us")
            times = told if isinstance(told, dict) else {}
            quartiles = [value for key in ("p25", "p50", "p75") if is_figure(value := times.get(key))]
            spread = (
                rate * abs(quartiles[2] - quartiles[0]) / QUARTILES_PER_STD / quartiles[1] if quartiles[2:] else 0.0
            )
            name = f"busbw of {format_size(size)}"
            yield _Figure(name=name, unit="GB/s", better="higher", values={"": rate}, scatter=spread)


def _of_training(record: RoundRecord) -> Iterator[_Figure]:
    """The steady rate of samples and the usual time of a step, with the scatter that the interval of the rate tells."""
    for name, rate in record.metrics.items():
        if not (name.startswith("throughput(") and name.endswith("_steady") and is_figure(rate)):
            continue
        low, high = record.metrics.get(f"{name}_low"), record.metrics.get(f"{name}_high")
        share = abs(high - low) / INTERVAL / rate if is_figure(low) and is_figure(high) else 0.0
        yield _Figure(name=name, unit="samples/s", better="higher", values={"": rate}, scatter=share * rate)
        step = record.metrics.get("step_time_p50")
        if is_figure(step):
            yield _Figure(name="step_time_p50", unit="s", better="lower", values={"": step}, scatter=share * step)


def _said(case: str, figure: _Figure, value: float, percent: float, usual: Usual) -> str:
    way = "below" if figure.better == "higher" else "above"
    beside = f"{usual.devices} accepted ones" if figure.scatter is None else "an accepted cluster"
    return f"{case} {figure.name}: {value:.4g} {figure.unit}, {percent:.0f} % {way} {beside}"


def _fault(case: str, figure: _Figure, said: str) -> PartFinding:
    return PartFinding(
        part="group",
        hosts=(),
        device=f"{case} {figure.name}",
        kind="constant",
        evidence=said,
        suggested_action="look at switches, clocks, drivers and what else runs: no host stands out",
        sentence=f"{said}: no host stands out",
    )
