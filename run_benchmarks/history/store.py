"""Keeps runs in the history, and reads from it the series of a metric and the record of a host."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from sqlalchemy import Connection, Row, Table, delete, insert, select

from run_benchmarks.history.database import Database
from run_benchmarks.history.entries import case_entries, host_rows, run_row
from run_benchmarks.history.tables import CASES, HOST_VALUES, HOSTS, METRICS, RUNS
from run_benchmarks.results.loading import LoadedRun

MOST_RUNS = 400
TYPICAL_RUNS = 10
MEASURED = ("pass", "degraded")


@dataclass(frozen=True, kw_only=True)
class Point:
    """A case in one run: its value (None: none of that name) in the unit of its series, and what it ran on and with."""

    run_id: str
    folder: str
    started_ms: int
    verdict: str
    device: str
    value: float | None
    provenance: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Series:
    """A metric of a case, or of one of its hosts, over runs of the same kind, the earliest first.

    `others`: how many runs of the case were of another kind: benchmark, device, size or settings differ.
    """

    case: str
    metric: str
    unit: str
    better: str
    host: str = ""
    points: tuple[Point, ...] = ()
    others: int = 0
    metrics: tuple[str, ...] = ()

    @property
    def measured(self) -> tuple[Point, ...]:
        """The points that have a value."""
        return tuple(point for point in self.points if point.value is not None)

    @property
    def values(self) -> list[float]:
        """Their values, in `unit`."""
        return [point.value for point in self.points if point.value is not None]


@dataclass(frozen=True, kw_only=True)
class HostLine:
    """A figure of a host over the runs of a case: how often it was among the worst 5 % of hosts, its latest value."""

    case: str
    metric: str
    unit: str
    runs: int
    worst: int
    latest: float


@dataclass(frozen=True, kw_only=True)
class HostHistory:
    """A host in all runs: how often it was healthy, degraded or lost, why last, and its figures."""

    host: str
    states: dict[str, int] = field(default_factory=dict)
    last_reason: str = ""
    lines: tuple[HostLine, ...] = ()


def keep(database: Database, run: LoadedRun, owner: str) -> None:
    """Put a run into the history, in the place of what is there of it.

    Raises:
        HistoryError: it cannot be written.
    """
    row, hosts, entries = _fitting(RUNS, run_row(run, owner)), host_rows(run), list(case_entries(run))
    with database.writing() as connection:
        same = (RUNS.c.owner == row["owner"]) & (RUNS.c.run_id == row["run_id"])
        connection.execute(delete(RUNS).where(same))
        run_key = connection.execute(insert(RUNS).values(row).returning(RUNS.c.id)).scalar_one()
        if hosts:
            connection.execute(insert(HOSTS), _rows(HOSTS, hosts, run_id=run_key))
        for entry in entries:
            made = insert(CASES).values(_fitting(CASES, entry.case) | {"run_id": run_key}).returning(CASES.c.id)
            case_key = connection.execute(made).scalar_one()
            for table, rows in ((METRICS, entry.metrics), (HOST_VALUES, entry.host_values)):
                if rows:
                    connection.execute(insert(table), _rows(table, rows, case_id=case_key))


def _rows(table: Table, rows: Iterable[Mapping[str, Any]], **own: int) -> list[dict[str, Any]]:
    """These rows of `own`; of those whose names, cut to fit, are the same, the first."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        fitting = _fitting(table, row) | own
        found.setdefault(tuple(fitting[column.name] for column in table.primary_key), fitting)
    return [*found.values()]


def _fitting(table: Table, row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with text that every database takes, whatever a host sent: as long as its column, without zero bytes."""
    return {
        name: value.replace("\0", "\ufffd")[: getattr(table.c[name].type, "length", None)]
        if isinstance(value, str)
        else value
        for name, value in row.items()
    }


def case_names(database: Database) -> list[str]:
    """The cases that the history has."""
    with database.reading() as connection:
        return list(connection.scalars(select(CASES.c.name).distinct().order_by(CASES.c.name)))


def series(database: Database, case: str, metric: str = "", host: str = "", kind: str = "") -> Series:
    """A metric of a case over the latest MOST_RUNS runs of this kind ("": of the last one's); "": its key figure.

    With `host` a figure that the case measures of each host; "": the first one. Values in another unit than the latest
    one's, of a version before, do not count.

    Raises:
        HistoryError: the history cannot be read.
    """
    with database.reading() as connection:
        runs = _latest(connection, case)
        measured = [row for row in runs if row.verdict in MEASURED]
        if not measured:
            return Series(case=case, metric=metric, unit="", better="", host=host)
        same = [row for row in reversed(runs) if row.kind == (kind or measured[0].kind)]
        rows = _figures(connection, [row.id for row in same], host)
    named = _named(rows)
    wanted = metric or next(iter(named), "")
    unit, better, values = _in_latest_unit({row.case_id: row for row in rows if row.figure == wanted}, same)
    return Series(
        case=case,
        metric=wanted,
        unit=unit,
        better=better,
        host=host,
        points=tuple(_point(row, values.get(row.id)) for row in same),
        others=len(runs) - len(same),
        metrics=tuple(named),
    )


def _in_latest_unit(
    of_metric: Mapping[int, Row[Any]], cases: Sequence[Row[Any]]
) -> tuple[str, str, dict[int, Row[Any]]]:
    """The unit of the latest value and which way is better, and the values that have both, by case."""
    latest = next((of_metric[row.id] for row in reversed(cases) if row.id in of_metric), None)
    unit, better = (latest.unit, latest.better) if latest else ("", "")
    return unit, better, {key: row for key, row in of_metric.items() if (row.unit, row.better) == (unit, better)}


def _latest(connection: Connection, case: str) -> Sequence[Row[Any]]:
    """The case in its latest MOST_RUNS runs, the last one first."""
    found = select(CASES, RUNS.c.run_id.label("run"), RUNS.c.folder, RUNS.c.started_ms).join(
        RUNS, CASES.c.run_id == RUNS.c.id
    )
    newest = found.where(CASES.c.name == case).order_by(RUNS.c.started_ms.desc(), RUNS.c.id.desc())
    return connection.execute(newest.limit(MOST_RUNS)).all()


def _figures(connection: Connection, case_keys: Sequence[int], host: str) -> Sequence[Row[Any]]:
    """Reads the figures of these cases, of a host where one is given."""
    table, name = (HOST_VALUES, HOST_VALUES.c.metric) if host else (METRICS, METRICS.c.name)
    found = select(table, name.label("figure")).where(table.c.case_id.in_(case_keys))
    return connection.execute(found.where(HOST_VALUES.c.host == host) if host else found).all()


def _named(rows: Sequence[Row[Any]]) -> list[str]:
    """The figures, each once, the key figure first."""
    return list(dict.fromkeys(row.figure for row in sorted(rows, key=lambda row: (not _is_key(row), row.figure))))


def _point(row: Row[Any], measured: Row[Any] | None) -> Point:
    """A run in a series; `measured`: the row of its figure, None where it has none."""
    return Point(
        run_id=row.run,
        folder=row.folder,
        started_ms=row.started_ms,
        verdict=row.verdict,
        device=row.device,
        value=measured.value if measured is not None else None,
        provenance=json.loads(row.provenance),
    )


def _is_key(row: object) -> bool:
    return bool(getattr(row, "is_key", False))


def means_of_runs(
    database: Database, case: str, kind: str, units: Mapping[str, str], left_out: Sequence[str]
) -> dict[str, list[list[float]]]:
    """By metric its means, in its unit, in the latest MOST_RUNS runs of a case of this kind, grouped by provenance.

    `units`: of the metrics; `left_out`: names of runs that do not count.

    Raises:
        HistoryError: the history cannot be read.
    """
    latest = (
        select(CASES.c.id)
        .join(RUNS, CASES.c.run_id == RUNS.c.id)
        .where(CASES.c.name == case, CASES.c.kind == kind, RUNS.c.run_id.not_in(left_out))
        .order_by(RUNS.c.started_ms.desc())
        .limit(MOST_RUNS)
    )
    with database.reading() as connection:
        rows = connection.execute(
            select(METRICS.c.name, METRICS.c.unit, METRICS.c.value, CASES.c.provenance)
            .join(CASES, METRICS.c.case_id == CASES.c.id)
            .where(CASES.c.id.in_(latest))
        ).all()
    found: dict[str, dict[str, list[float]]] = {}
    for row in (each for each in rows if each.unit == units.get(each.name)):
        found.setdefault(row.name, {}).setdefault(row.provenance, []).append(row.value)
    return {name: list(groups.values()) for name, groups in found.items()}


def seconds_of_a_round(database: Database, cases: Sequence[str]) -> dict[str, float]:
    """The median seconds of a round of each case over its latest TYPICAL_RUNS runs; without those that never passed.

    Raises:
        HistoryError: the history cannot be read.
    """
    with database.reading() as connection:
        rows = connection.execute(
            select(CASES.c.name, CASES.c.seconds, CASES.c.rounds)
            .join(RUNS, CASES.c.run_id == RUNS.c.id)
            .where(CASES.c.name.in_(cases), CASES.c.verdict.in_(MEASURED), CASES.c.rounds > 0)
            .order_by(RUNS.c.started_ms.desc())
        ).all()
    found: dict[str, list[float]] = {}
    for row in rows:
        found.setdefault(row.name, []).append(row.seconds / row.rounds)
    return {name: median(seconds[:TYPICAL_RUNS]) for name, seconds in found.items()}


def host_history(database: Database, host: str) -> HostHistory:
    """A host's record over all cases.

    Raises:
        HistoryError: the history cannot be read.
    """
    with database.reading() as connection:
        states = connection.execute(
            select(HOSTS.c.state, HOSTS.c.reason)
            .join(RUNS, HOSTS.c.run_id == RUNS.c.id)
            .where(HOSTS.c.host == host)
            .order_by(RUNS.c.started_ms)
        ).all()
        lines = _host_lines(connection, host)
    counted: dict[str, int] = {}
    for row in states:
        counted[row.state or "not told"] = counted.get(row.state or "not told", 0) + 1
    reasons = [row.reason for row in states if row.reason]
    return HostHistory(host=host, states=counted, last_reason=reasons[-1] if reasons else "", lines=lines)


def _host_lines(connection: Connection, host: str) -> tuple[HostLine, ...]:
    rows = connection.execute(
        select(CASES.c.name.label("case"), HOST_VALUES)
        .join(CASES, HOST_VALUES.c.case_id == CASES.c.id)
        .join(RUNS, CASES.c.run_id == RUNS.c.id)
        .where(HOST_VALUES.c.host == host)
        .order_by(CASES.c.name, HOST_VALUES.c.metric, RUNS.c.started_ms)
    ).all()
    found: dict[tuple[str, str], list[tuple[float, float, str]]] = {}
    for row in rows:
        found.setdefault((row.case, row.metric), []).append((row.value, row.share_below, row.unit))
    return tuple(_line(case, metric, values) for (case, metric), values in found.items())


def _line(case: str, metric: str, values: Sequence[tuple[float, float, str]]) -> HostLine:
    worst = sum(below <= 0.05 for _, below, _ in values)
    latest, _, unit = values[-1]
    return HostLine(case=case, metric=metric, unit=unit, runs=len(values), worst=worst, latest=latest)
