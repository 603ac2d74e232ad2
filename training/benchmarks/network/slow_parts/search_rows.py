"""Reads an adaptive search from the rows of its rounds: times, findings, and the search again, held against its log."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from pydantic import BaseModel, Field, JsonValue

from common.units import format_size
from protocol.finding import PartFinding, SymptomName
from training.benchmarks.network.patterns.designs import Members
from training.benchmarks.network.patterns.topology import Topology
from training.benchmarks.network.slow_parts.adaptive import VERSION, BadMembers, ScanResult, Search
from training.benchmarks.network.slow_parts.comparison import PeerComparison, Times
from training.benchmarks.network.slow_parts.figures import LATENCY_BYTES
from training.benchmarks.network.slow_parts.findings import told, worded
from training.benchmarks.network.slow_parts.ground import Ground, ground_of, searched
from training.benchmarks.network.slow_parts.packing import unpacked

# Medians over the repeats of a round need so many.
_LEAST_REPEATS = 3
_CAUSES: dict[str, tuple[str, str]] = {
    "host": ("NIC, cable, PCIe or load of the host", "drain the host; check its NICs, cables and counters"),
    "link": ("the path between them", "check the switches and cables between the two hosts"),
}


class _Logged(BaseModel):
    """The part of TRAIN_START that is of the search."""

    search_version: int = Field(ge=VERSION, le=VERSION)


def check_version(started: Mapping[str, Any]) -> None:
    """Check that a log, whose TRAIN_START is given, is of a search that asks for the same rounds as this version's.

    Raises:
        pydantic.ValidationError: it is of another version.
    """
    _Logged.model_validate(started)


def repeats_of(asked: int) -> int:
    """How often a round is measured where so many repeats were asked for."""
    return max(_LEAST_REPEATS, asked)


def searched_again(
    rows: Sequence[Mapping[str, Any]],
    hosts: int,
    around: Topology,
    comparison: PeerComparison,
    find: Search,
    repeats: int,
) -> tuple[ScanResult, Ground, list[int]]:
    """The result that a search among so many hosts reaches by the rows of its steps, on which ground, and the sizes
    measured, in bytes.

    Raises:
        ValueError: the rows are of other rounds than those that the search asks for.
    """
    search = searched(ground_of(range(hosts), around), comparison, find)
    asked = next(search)
    ended: tuple[ScanResult, Ground] | None = None
    for name, own in groupby(rows, key=lambda row: row["round"]):
        values = [*own]
        groups = [tuple(group["node_ranks"]) for group in _groups_of(values[0])]
        if ended is not None or groups != [*asked.groups]:
            raise ValueError(f"round {name} has other groups than the search asks for")
        try:
            asked = search.send(times_of(groups, values, repeats))
        except StopIteration as end:
            ended = end.value
    if ended is None:
        raise ValueError(f"the search ends before {asked.purpose}")
    return *ended, sorted({int(row["size_bytes"]) for row in rows})


def _groups_of(value: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return value.get("groups") or [*unpacked(value, {})]


def times_of(groups: Sequence[Members], values: Sequence[Mapping[str, Any]], repeats: int) -> list[Times]:
    """p50 of each group in each repeat: of the smallest size for the latency, of the largest for the bandwidth."""
    found: list[dict[Members, dict[SymptomName, float]]] = [{group: {} for group in groups} for _ in range(repeats)]
    sizes = sorted({int(value["size_bytes"]) for value in values})
    for value in values:
        size = int(value["size_bytes"])
        for group, measured in zip(groups, _groups_of(value), strict=True):
            own = found[int(value["repeat"]) - 1][group]
            if size == sizes[0] <= LATENCY_BYTES:
                own["latency"] = float(measured["time_us"]["p50"])
            if size == sizes[-1] > LATENCY_BYTES:
                own["bandwidth"] = float(measured["time_us"]["p50"])
    return [*found]


def search_figures(
    result: ScanResult, ground: Ground, names: Sequence[str], sizes: Sequence[int]
) -> dict[str, JsonValue]:
    """The figures of FINISHED of a search; `names` of hosts by node rank, `sizes` in bytes."""
    said: list[JsonValue] = [*ground.not_judged(names, result.undecided)]
    found = told([finding_of(bad, names, sizes) for bad in result.bad])
    return {"search_rounds": result.rounds, **found, **({"not_judged": said} if said else {})}


def finding_of(bad: BadMembers, names: Sequence[str], sizes: Sequence[int]) -> PartFinding:
    """The finding for a bad host or link; `names` of hosts by node rank, `sizes` in bytes."""
    part = "host" if len(bad.members) == 1 else "link"
    shown = {"bandwidth": format_size(max(sizes)), "latency": format_size(min(sizes)) if min(sizes) else "barriers"}
    evidence = [
        f"{100 * (1 - 1 / each.ratio):.0f} % slow at {shown['bandwidth']}"
        if each.symptom == "bandwidth"
        else f"small messages ({shown['latency']}) take {each.ratio:.2g} times as long"
        for each in bad.excesses
    ]
    where = " with good hosts" if part == "host" else ""
    found = PartFinding(
        part="host" if part == "host" else "link",
        hosts=tuple(names[place] for place in bad.members),
        node_ranks=bad.members,
        kind="constant",
        symptoms=tuple(each.symptom for each in bad.excesses),
        share_of_expected=min(1 / each.ratio for each in bad.excesses),
        p_value=None,
        evidence="; ".join(evidence) + where,
        cause=_CAUSES[part][0],
        suggested_action=_CAUSES[part][1],
    )
    return worded(found)
