"""Outcome of the device tests: the slowest device's figure in each test, and its percentage of the datasheet."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from common.charts.chart import Bar, Bars, Heat
from protocol.claims import LoggedRun, departures, process_seconds
from protocol.default_outcome import DefaultOutcome, is_measured
from protocol.finding import MAX_CHARACTERS, PartFinding
from protocol.outcome import Block, HostFigure, MeasuredCase, MeasuredRound, Metric, Picture, Table, TableCell
from protocol.perflog import Event
from training.benchmarks.base.pytorch.config import DISK_TESTS, HOST_TESTS, Config
from training.benchmarks.base.pytorch.verdict import promised, summary
from vendors.datasheets import datasheet

_KEY = ("matmul_bf16", "matmul_fp16", "matmul_fp32")
_MEANING = "slowest device of the run"
_FARTHEST = {
    "host_to_device_numa": "from the NUMA node that is farthest from it",
    "peers": "to the device that it copies to most slowly",
}


class BaseOutcome(DefaultOutcome):
    """Outcome of the tests of single devices: a figure for each, and the devices whose results are not their peers'."""

    # Settings that judge the devices and do not change what is measured.
    incidental = ("datasheet", "min_percent", "max_percent_below_best", "tests")

    def metrics(self, config: Mapping[str, Any]) -> Sequence[Metric]:
        """A figure and a percentage for each test; the latter only where the device has a datasheet."""
        tests = [test for test in config.get("tests", ()) if isinstance(test, str)]
        key = next((test for test in _KEY if test in tests), tests[0] if tests else "")
        found = []
        for test in tests:
            unit = _unit(test)
            name = unit.replace("/s", "ps")
            figure = Metric(name=f"{test}_{name}", unit=unit, better="higher", meaning=_MEANING, is_key=test == key)
            found.append(figure)
            if test in _FARTHEST:
                far = f"{_MEANING}, {_FARTHEST[test]}"
                found.append(Metric(name=f"{test}_farthest_{name}", unit=unit, better="higher", meaning=far))
            share = Metric(
                name=f"{test}_percent", unit="%", better="higher", meaning="of the datasheet", is_reference=False
            )
            found.append(share)
        return (*found, Metric(name="e2e_time", unit="s", better="lower", is_reference=False))

    def contradictions(self, case: MeasuredCase, log: LoggedRun) -> Sequence[str]:
        """Claims of FINISHED that its rows contradict, which have the figures of all ranks in every test."""
        if log.rows is None:
            return process_seconds(log)
        config = Config.model_validate_json(json.dumps(dict(case.config)))
        found = [*process_seconds(log), *departures(log, summary(log.rows), "the STEP_END of its tests")]
        if (tests := [row["test"] for row in log.rows]) != [*config.tests]:
            found.append(f"its log has the tests {tests!r:.200}, its settings {[*config.tests]!r:.200}")
        device = log.value(Event.SUBMIT_INFO).get("device_name")
        sheet = datasheet(device) if isinstance(device, str) else None
        for row in (row for row in log.rows if "not_run" not in row):
            promise, used = promised(row["test"], config, sheet), row["datasheet"]
            if used != promise:
                found.append(
                    f"{row['test']} is held against {used!r:.40} by its log, {promise} by settings and datasheet"
                )
        return found

    def report(self, case: MeasuredCase, measured: MeasuredRound) -> Sequence[Block]:
        """Every test with the slowest and the fastest rank, bad ones marked."""
        rows = tuple(row for step in measured.steps if (row := _row(step) or _row_of_none(step)) is not None)
        if not rows:
            return ()
        title = "every device in each test, all at once"
        columns = ("test", "unit", "slowest rank", "fastest rank", "datasheet", "bad ranks")
        return (*_charts(measured.steps), Table(title=title, columns=columns, rows=rows))

    def findings(self, case: MeasuredCase, measured: MeasuredRound) -> Sequence[PartFinding]:
        """The devices whose results differ, bit by bit, from those of their kind."""
        return [each for step in measured.steps for each in _odd_devices(step, case, measured)]

    def host_figures(self, case: MeasuredCase, measured: MeasuredRound) -> Sequence[HostFigure]:
        """The slowest device of each host in each test, in its unit."""
        found = []
        for step in measured.steps:
            values, test = step.get("values_of_ranks"), str(step.get("test"))
            if not isinstance(values, list) or len(values) != case.nproc * len(measured.hosts):
                continue
            of_hosts = {
                name: float(min(values[rank * case.nproc : (rank + 1) * case.nproc]))
                for rank, name in measured.hosts.items()
            }
            found.append(HostFigure(name=test, unit=_unit(test), better="higher", values=of_hosts))
        return found


_ODD = "test it alone; replace it if its bits differ again, or equal its software with that of its kind"
_ODD_HOST = dict.fromkeys(DISK_TESTS, "look at the disk, its controller and the host's memory: SMART, ECC errors")
_ODD_HOST |= dict.fromkeys(HOST_TESTS, "look for machine-check and memory errors; test its processors and memory alone")


def _odd_devices(step: Mapping[str, Any], case: MeasuredCase, measured: MeasuredRound) -> Iterator[PartFinding]:
    """A fault for each device, in tests of hosts each host, that differs from most of its kind; a warning where it is
    not known which is wrong.
    """
    odd, split, test = step.get("odd_ranks"), step.get("split_ranks"), str(step.get("test"))
    found: dict[tuple[str, str], str] = {}
    for rank, why in odd.items() if isinstance(odd, dict) else ():
        place = _place(rank, case, measured)
        if place is not None:
            found.setdefault((place[0], "") if test in _ODD_HOST else place, f"{test}: {why}")
    for (host, name), said in found.items():
        yield PartFinding(
            part="device" if name else "host",
            hosts=(host,),
            device=name,
            kind="different_results",
            evidence=said,
            suggested_action=_ODD_HOST.get(test, _ODD),
            drained_hosts=(host,),
            sentence=f"{host} {name}: {said}" if name else f"host {host}: {said}",
        )
    for ranks in split if isinstance(split, list) else ():
        places = [place for rank in ranks if (place := _place(rank, case, measured)) is not None]
        if places:
            hosts = tuple(dict.fromkeys(host for host, _ in places))
            said = f"{test}: {len(places)} devices of one kind differ in bits, and no more than half of them agree"
            if test in _ODD_HOST:
                said = f"{test}: {len(hosts)} hosts of one kind differ in bits, and no more than half of them agree"
            yield PartFinding(
                part="group",
                hosts=hosts,
                kind="different_results",
                severity="warning",
                evidence=said,
                suggested_action="compare their software; test them beside more of their kind",
                sentence=f"{', '.join(hosts)}: {said}",
            )


def _place(rank: object, case: MeasuredCase, measured: MeasuredRound) -> tuple[str, str] | None:
    """Host and name of a rank's device; None for a rank that there is not."""
    number = int(str(rank)) if str(rank).isdecimal() else -1
    host = measured.hosts.get(number // case.nproc) if number >= 0 else None
    return None if host is None else (host, f"device {number % case.nproc}")


def _charts(steps: Sequence[Mapping[str, Any]]) -> Iterator[Picture]:
    """The slowest device against the datasheet, and every rank against the best one."""
    found = [step for step in steps if _row(step) is not None]
    known = [step for step in found if is_measured(step.get("datasheet")) and step["datasheet"] > 0]
    bars = []
    for step in known:
        percent = 100 * min(step["values_of_ranks"]) / step["datasheet"]
        text = f"{percent:.1f} % of {step['datasheet']:g} {step.get('unit')}"
        bars.append(Bar(name=str(step.get("test")), value=percent, text=text, tone="bad" if step["bad_ranks"] else ""))
    if bars:
        title = "Slowest device against the datasheet"
        yield Picture(chart=Bars(title=title, unit="% of the datasheet", bars=bars, one_hue=True))
    ranks = {len(step["values_of_ranks"]) for step in found}
    if len(ranks) == 1 and (count := ranks.pop()) > 1:
        yield Picture(
            chart=Heat(
                title="Every device against the best of its test",
                columns=[f"rank {rank}" for rank in range(count)],
                rows=[str(step.get("test")) for step in found],
                cells=[_of_best(step["values_of_ranks"]) for step in found],
                unit="% of the best rank",
            )
        )


def _of_best(values: Sequence[float]) -> list[float | None]:
    """Percent of the highest value, in any unit."""
    best = max(values)
    return [100 * value / best if best > 0 else None for value in values]


def _unit(test: str) -> str:
    """The unit of a test's figure."""
    if test.startswith("matmul_") or test == "host_matmul":
        return "TOPS" if test == "matmul_int8" else "TFLOPS"
    if test == "training":
        return "steps/s"
    return "GB" if test == "memory_capacity" else "GB/s"


def _row(step: Mapping[str, Any]) -> tuple[TableCell, ...] | None:
    """The row of a test; None for a step of another form."""
    values, bad, promise = step.get("values_of_ranks"), step.get("bad_ranks"), step.get("datasheet")
    if not isinstance(values, list) or not values or not all(isinstance(value, int | float) for value in values):
        return None
    lowest, highest = min(values), max(values)
    named = dict(bad) if isinstance(bad, dict) else {}
    return (
        TableCell(value=str(step.get("test"))),
        TableCell(value=str(step.get("unit"))),
        TableCell(value=lowest, note=f"rank {values.index(lowest)}", is_bad=str(values.index(lowest)) in named),
        TableCell(value=highest, note=f"rank {values.index(highest)}"),
        TableCell(value=promise if isinstance(promise, int | float) else ""),
        TableCell(value="; ".join(f"{rank}: {why}" for rank, why in named.items()), is_bad=bool(named)),
    )


def _row_of_none(step: Mapping[str, Any]) -> tuple[TableCell, ...] | None:
    """The row of a test that no host ran, with the reason; None for another step."""
    if "not_run" not in step:
        return None
    words = (str(step.get("test")), "", "", "", "", f"not run: {step['not_run']}"[:MAX_CHARACTERS])
    return tuple(TableCell(value=word) for word in words)


OUTCOME = BaseOutcome()
