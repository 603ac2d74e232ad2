"""Finds the suspects of a rung's run: hosts to drain by its findings, hosts that failed, devices behind their peers.

Devices are compared with the median of all devices of the run in the same test. One is a suspect if it is behind by
more than `limit` percent and by more than OUTLYING times what its peers scatter (1.4826 times their median absolute
deviation, a normal law's standard deviation: Rousseeuw and Croux, JASA 88, 1993). Where its datasheet is known, it is a
suspect below FLOORS, too, which every sound device exceeds.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from statistics import median
from types import MappingProxyType

from run_benchmarks.acceptance.records import Usual
from run_benchmarks.results.loading import LoadedRun
from run_benchmarks.results.records import RoundRecord

OUTLYING = 5.0
MAD = 1.4826
FEWEST_PEERS = 4
FLOORS: Mapping[str, float] = {"matmul_bf16": 50.0, "memory": 70.0, "memory_capacity": 85.0}
"""Percent of the datasheet; docs/reference/training-benchmarks.md gives the reasons."""
DISK_LIMIT = 30.0
"""Percent that a disk may be behind: the same model differs more than devices do, as it fills and ages."""
OF_HOST = {
    "host_matmul": "look for other programs, power limits and a CPU that is held at a low clock",
    "host_memory": "look for a missing memory module and other programs",
    "disk_write": "look at the disk of the results' folder: SMART, controller, free space, mount options",
    "disk_read": "look at the disk of the results' folder: SMART, controller, mount options",
    "data_write": "look at the disk or mount of the data: SMART, network, mount options",
    "data_read": "look at the disk or mount of the data: SMART, network, read-ahead",
}
"""Tests whose figure is the host's and no device's, each with what to do about a slow one."""
PROOFS = {"different_results", "lost", "memory_errors"}
"""Kinds of findings that are no matter of chance: to see one once suffices."""
Suspects = dict[str, list[str]]


def suspects_of(run: LoadedRun, limit: float, usual: Mapping[str, Usual] | None = None) -> Suspects:
    """Hosts with the evidence against each, in words; `limit` in percent; `usual`: recorded figures, by test."""
    found: Suspects = {}
    for entry in run.record.drain:
        found.setdefault(entry.host, []).extend(entry.reasons)
    for host, reason in run.record.left_out.items():
        found.setdefault(host, []).append(reason)
    for case, rounds in run.rounds.items():
        for record in rounds:
            for host, said in [*_failed(case, record), *slow_devices(record, limit, usual or {})]:
                if said not in found.setdefault(host, []):
                    found[host].append(said)
    return {host: said for host, said in found.items() if said}


def proven(run: LoadedRun) -> set[str]:
    """Hosts with a finding that needs no second occasion: a wrong bit may not come again for days."""
    return {entry.host for entry in run.record.drain if any(each.kind in PROOFS for each in entry.evidence)}


def _failed(case: str, record: RoundRecord) -> Iterator[tuple[str, str]]:
    first = record.first_failure
    bad = [step["bad_ranks"] for step in record.steps if isinstance(step.get("bad_ranks"), dict)]
    if any(bad):  # all ranks end with an error, and any of them may be the first
        for rank, why in ((rank, why) for each in bad for rank, why in each.items()):
            for node in record.nodes:
                if str(rank).isdecimal() and int(rank) in node.ranks:
                    yield node.host, f"{case}: device {node.ranks.index(int(rank))}: {str(why)[:300]}"
    elif record.verdict.is_failure and first is not None and first.host:
        yield first.host, f"{case}: {record.verdict}: {record.reason[:300]}"


def usual_of(run: LoadedRun, without: Container[str]) -> dict[str, Usual]:
    """The results of the devices of a run by test, those of the hosts `without` left out."""
    found: dict[str, Usual] = {}
    for record in (record for records in run.rounds.values() for record in records):
        good = [rank for node in record.nodes if node.host not in without for rank in node.ranks]
        for step in record.steps:
            values = step.get("values_of_ranks")
            if isinstance(values, list) and good and max(good) < len(values) and all(map(_is_figure, values)):
                own = [float(values[rank]) for rank in good]
                middle = median(own)
                scatter = MAD * median(abs(value - middle) for value in own)
                unit = str(step.get("unit"))
                found[str(step.get("test"))] = Usual(unit=unit, median=middle, scatter=scatter, devices=len(own))
    return found


def slow_devices(
    record: RoundRecord, limit: float, usual: Mapping[str, Usual] = MappingProxyType({})
) -> Iterator[tuple[str, str]]:
    """Host and evidence of each device that is behind its peers, or what was `usual`, by more than `limit` percent, or
    below FLOORS.
    """
    hosts = {rank: node.host for node in record.nodes for rank in node.ranks}
    for step in record.steps:
        values = step.get("values_of_ranks")
        if not isinstance(values, list) or not all(_is_figure(value) for value in values):
            continue
        test, unit, promised = str(step.get("test")), step.get("unit"), step.get("datasheet")
        most = max(limit, DISK_LIMIT) if test.startswith(("disk_", "data_")) else limit
        found = {rank: f"{behind:.0f} % below its peers' median" for rank, behind in _behind(values, most).items()}
        if (then := usual.get(test)) is not None and then.unit == unit:
            least = then.median - max(most / 100 * then.median, OUTLYING * then.scatter)
            below = {rank: 100 * (1 - value / then.median) for rank, value in enumerate(values) if value < least}
            found |= {rank: f"{percent:.0f} % below {then.devices} accepted ones" for rank, percent in below.items()}
        if test in FLOORS and _is_figure(promised):
            for rank, value in enumerate(values):
                if (percent := 100 * value / float(str(promised))) < FLOORS[test]:
                    found[rank] = f"{percent:.0f} % of its datasheet, {FLOORS[test]:g} % is the least"
        slowest = {hosts[rank]: rank for rank in sorted(found, key=lambda rank: -values[rank]) if rank in hosts}
        for rank, why in found.items():
            said = f"{test} {values[rank]:.4g} {unit}, {why}"
            if test not in OF_HOST and rank in hosts:
                yield hosts[rank], f"device {_local(record, rank)}: {said}"
            elif slowest.get(hosts.get(rank, "")) == rank:
                yield hosts[rank], f"{said}: {OF_HOST[test]}"
        yield from _slow_pairs(record, step, limit)


def _slow_pairs(record: RoundRecord, step: Mapping[str, object], limit: float) -> Iterator[tuple[str, str]]:
    """Pairs of devices of a host that copy more slowly than the same pair of other hosts, of which there are enough.

    Two pairs of one host may differ by its topology; the same pair of two hosts of a kind does not.
    """
    rows = step.get("peers_of_ranks")
    if not isinstance(rows, list):
        return
    pairs: dict[tuple[int, int], list[tuple[str, float]]] = {}
    for node in record.nodes:
        for place, rank in enumerate(node.ranks):
            row = rows[rank] if rank < len(rows) else None
            for peer, value in enumerate(row) if isinstance(row, list) else ():
                if _is_figure(value):
                    pairs.setdefault((place, peer), []).append((node.host, float(value)))
    for (place, peer), measured in pairs.items():
        for index, behind in _behind([value for _, value in measured], limit).items():
            host, value = measured[index]
            why = f"{behind:.0f} % below the same pair of its peers"
            yield host, f"device {place} to {peer}: {value:.4g} {step.get('unit')}, {why}: look at their link"


def not_run_in(run: LoadedRun) -> list[str]:
    """The tests of a run that no host made, with the reason, each once."""
    steps = (step for records in run.rounds.values() for record in records for step in record.steps)
    said = (f"{step.get('test')}: {step['not_run']}"[:300] for step in steps if isinstance(step.get("not_run"), str))
    return list(dict.fromkeys(said))


def _is_figure(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e18


def _behind(values: list[float], limit: float) -> dict[int, float]:
    """By rank, percent below the median of those that are outliers."""
    if len(values) < FEWEST_PEERS:
        return {}
    middle = median(values)
    scatter = MAD * median(abs(value - middle) for value in values)
    return {
        rank: 100 * (1 - value / middle)
        for rank, value in enumerate(values)
        if middle - value > max(limit / 100 * middle, OUTLYING * scatter)
    }


def _local(record: RoundRecord, rank: int) -> int:
    """The number of a rank's device on its host."""
    return next(node.ranks.index(rank) for node in record.nodes if rank in node.ranks)


def agreed(first: Mapping[str, list[str]], second: Mapping[str, list[str]]) -> tuple[Suspects, Suspects]:
    """Suspects of two occasions that both name, with the evidence of both; and those that only one names."""
    both = {
        host: [*said, *(f"again: {each}" for each in second[host])] for host, said in first.items() if host in second
    }
    return both, {host: said for host, said in first.items() if host not in second}
