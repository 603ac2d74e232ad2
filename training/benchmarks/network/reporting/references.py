"""References of a network case: the time of each collective, size, form and group; and who became slower."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Self

from pydantic import JsonValue

from common.statistics import median_of
from common.units import format_size
from protocol.outcome import Change, Reference
from training.benchmarks.network.slow_parts.packing import bandwidths, group_keys, host_names, unpacked

# No operation is faster than a clock's tick, none takes longer than 30 years; ratios of such times are finite.
_MIN_US, _MAX_US = 1e-3, 1e15
_KEY_FIELDS = ("collective", "variant", "dtype", "in_place", "world_size", "size_bytes", "pattern", "round", "group")
# These are in a step, and in its key, only where they are not the usual.
_CHOSEN_FIELDS = ("op", "root", "aggregate", "after_compute_ms")

_PAIR_PATTERNS = ("pairs", "rail_pairs")
_PAIR = 2
# Of more hosts a baseline holds each host's pairs as one: their number grows with the square.
MOST_HOSTS_OF_PAIRS = 64

Step = Mapping[str, Any]
# What a packed step raises that a host damaged.
_DAMAGED = (KeyError, TypeError, ValueError, AttributeError, OverflowError, ZeroDivisionError)


def named_references(rounds: Iterable[tuple[Sequence[Step], Mapping[int, str]]]) -> dict[str, Reference]:
    """The references of rounds, each its steps and the user's names of its hosts by node rank."""
    return references(_with_names(step, names) for steps, names in rounds for step in _plain(steps))


def median_busbw_gbps(steps: Sequence[Step], names: Mapping[int, str]) -> dict[str, float]:
    """GB/s by host: the median over the groups that it measured in, at the largest size; empty without several groups.

    `names`: the user's names of the hosts by node rank.
    """
    found = busbw_of_hosts(steps, names)
    return found[max(found)] if found else {}


def busbw_of_hosts(
    steps: Sequence[Step], names: Mapping[int, str], usual: Callable[[Sequence[float]], float] = median
) -> dict[int, dict[str, float]]:
    """By size in bytes, what `median_busbw_gbps` gives of the largest, or another `usual` one of a host's pairs."""
    found: dict[int, dict[str, list[float]]] = {}
    own: dict[int, str] = {}
    for step in steps:
        own |= host_names(step)
        for size, hosts, busbw in _busbw(step, names, own):
            for host in hosts:
                found.setdefault(size, {}).setdefault(host, []).append(busbw)
    return {size: {host: usual(values) for host, values in of.items()} for size, of in found.items()}


def _busbw(step: Step, names: Mapping[int, str], own: Mapping[int, str]) -> Iterator[tuple[int, Sequence[str], float]]:
    """Size in bytes, hosts and GB/s of each group of a step; of a packed one without its other figures. `own`: the
    hosts' own names. A damaged one has none.
    """
    if "packed" in step:
        try:
            columns = step["packed"]
            size, keys, rates = int(columns["size_bytes"]), group_keys(columns), bandwidths(columns)
        except _DAMAGED:
            return
        for (ranks, _), busbw in zip(keys, rates, strict=True):
            yield size, [names.get(rank) or own.get(rank, f"node {rank}") for rank in ranks], busbw
        return
    for group in _with_names(step, names).get("groups") or ():
        size, rate = group.get("size_bytes"), group.get("busbw_GBps")
        if isinstance(size, int) and isinstance(rate, float):
            yield size, [*map(str, group.get("hosts") or ())], rate


def _plain(steps: Iterable[Step]) -> Iterator[Step]:
    """The steps with their groups unpacked; a damaged one is left out."""
    own: dict[int, str] = {}
    for step in steps:
        if "packed" not in step:
            yield step
            continue
        own |= host_names(step)
        try:
            groups = list(unpacked(step, own))
        except _DAMAGED:
            continue
        yield {**{name: value for name, value in step.items() if name != "packed"}, "groups": groups}


def _with_names(step: Step, names: Mapping[int, str]) -> Step:
    groups = step.get("groups")
    if not isinstance(groups, list):
        return _renamed(step, names)
    return {**step, "groups": [_renamed(group, names) for group in groups if isinstance(group, dict)]}


def _renamed(group: Step, names: Mapping[int, str]) -> Step:
    node_ranks = group.get("node_ranks")
    known = isinstance(node_ranks, list) and all(isinstance(rank, int) and rank in names for rank in node_ranks)
    if not known or not node_ranks:
        return group
    return {**group, "hosts": [names[rank] for rank in node_ranks], "own_hosts": group.get("hosts")}


def references(steps: Iterable[Step]) -> dict[str, Reference]:
    """p50 in microseconds in values of rank 0's STEP_END, by a key that says what was measured.

    A reference is the median over repeats and rounds, with their range; a single repeat has the range of its iterations
    (minimum to p95). Of more than MOST_HOSTS_OF_PAIRS hosts it is one of each host, the median over its pairs. Where
    `hosts` were renamed, `own_hosts` are their own names. Values of another form, by a host, are skipped.
    """
    found: dict[str, list[_Times]] = {}
    rows: dict[str, Step] = {}
    for step in steps:
        for row in _rows(step):
            try:
                times = _Times.read(row["time_us"], row["busbw_GBps"])
                if not isinstance(row.get("size_bytes", 0), int):
                    continue
            except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
                continue
            key = " ".join(f"{name}={value}" for name, value in _identity(row).items())
            found.setdefault(key, []).append(times)
            rows[key] = row
    of_pairs = [k for k, row in rows.items() if row.get("pattern") in _PAIR_PATTERNS and len(_hosts_of(row)) == _PAIR]
    if len({host for key in of_pairs for host in _hosts_of(rows[key])}) > MOST_HOSTS_OF_PAIRS:
        _by_host(found, rows, of_pairs)
    return {key: _reference(values, rows[key]) for key, values in found.items()}


def _by_host(found: dict[str, list[_Times]], rows: dict[str, Step], of_pairs: Sequence[str]) -> None:
    """Put one measurement a host (and rail) in the place of those of its pairs: of each repeat the medians of them."""
    every: dict[str, list[list[_Times]]] = {}
    for key in of_pairs:
        values, row = found.pop(key), rows.pop(key)
        own = row.get("own_hosts", row["hosts"])
        for host, own_host in zip(row["hosts"], own, strict=True):
            # The keys of pairs have their own names, too.
            single = {**row, "hosts": [host], "own_hosts": [own_host], "group": f"{host}{_on_rail(row)}"}
            name = " ".join(f"{each}={value}" for each, value in _identity(single).items())
            rows.setdefault(name, single)
            every.setdefault(name, []).append(values)
    for name, of_host in every.items():
        repeats = max(map(len, of_host))
        found[name] = [_Times.middle([values[at] for values in of_host if at < len(values)]) for at in range(repeats)]


def _hosts_of(row: Step) -> list[str]:
    hosts = row.get("hosts")
    return [*map(str, hosts)] if isinstance(hosts, list) else []


def _rows(step: Step) -> Iterator[Step]:
    """A step's measurements: those of its groups, or its own."""
    groups: Any = step.get("groups")
    for group in groups if isinstance(groups, list) else [step]:
        if isinstance(group, Mapping):
            yield {**step, **group}


def _identity(row: Step) -> dict[str, Any]:
    """The key of a measurement. A pair's has its hosts, but not its round or their order, which depend on others.

    Where messages go one way the order is the direction.
    """
    found = {name: row[name] for name in (*_KEY_FIELDS, *_CHOSEN_FIELDS) if name in row}
    hosts = row.get("own_hosts", row.get("hosts"))
    if row.get("pattern") in _PAIR_PATTERNS and isinstance(hosts, list):
        found.pop("round", None)
        ordered = [*map(str, hosts)] if row.get("collective") == "send_recv" else sorted(map(str, hosts))
        found["group"] = "-".join(ordered) + _on_rail(row)
    return found


def _on_rail(row: Step) -> str:
    return f" rail {row['rail']}" if isinstance(row.get("rail"), int) else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Times:
    """One repeat: of its iterations p50, minimum and p95 in microseconds, and busbw in GB/s."""

    p50: float
    low: float
    high: float
    busbw: float

    @classmethod
    def read(cls, time_us: Any, busbw: Any) -> Self:
        """The measurement in one value of STEP_END."""
        p50 = float(time_us["p50"])
        low, high, bandwidth = float(time_us.get("min", p50)), float(time_us.get("p95", p50)), float(busbw)
        if not all(_MIN_US <= time <= _MAX_US for time in (p50, low, high)) or not math.isfinite(bandwidth):
            raise ValueError(f"p50 {p50}, min {low}, p95 {high}; allowed: {_MIN_US:g} to {_MAX_US:g} us")
        if not low <= p50 <= high:
            raise ValueError(f"p50 {p50} does not lie between min {low} and p95 {high}")
        return cls(p50=p50, low=low, high=high, busbw=bandwidth)

    @classmethod
    def middle(cls, every: Sequence[Self]) -> Self:
        """The medians of several measurements."""
        p50, low, high, busbw = (
            median([getattr(each, name) for each in every]) for name in ("p50", "low", "high", "busbw")
        )
        return cls(p50=p50, low=low, high=high, busbw=busbw)


def _reference(values: Sequence[_Times], row: Step) -> Reference:
    time_us = median_of([each.p50 for each in values])
    single = len(values) == 1
    details: dict[str, JsonValue] = {
        "collective": str(row.get("variant") or row.get("collective", "")),
        "size_bytes": row.get("size_bytes", 0),
        "group": str(row.get("group", "")),
        "hosts": [*_hosts_of(row)],
        "busbw_GBps": median([each.busbw for each in values]),
    }
    return Reference(
        value=time_us.value,
        low=values[0].low if single else time_us.low,
        high=values[0].high if single else time_us.high,
        n=time_us.n,
        unit="us",
        better="lower",
        details=details,
    )


def what_of(found: Reference) -> str:
    """A reference's operation with the user's names of two hosts, as all_reduce node1-node2 at 16M, and rail."""
    hosts, group = _hosts(found), str(found.details.get("group", ""))
    _, rail, number = group.partition(" rail ")
    group = f"{'-'.join(hosts)}{rail}{number}" if len(hosts) == _PAIR else group
    where = f" {group}" if group not in ("", "all") else ""
    return f"{found.details.get('collective', '')}{where} at {_size(_bytes(found))}"


def _hosts(found: Reference) -> tuple[str, ...]:
    hosts = found.details.get("hosts")
    return tuple(map(str, hosts)) if isinstance(hosts, list) else ()


def _bytes(found: Reference) -> int:
    size = found.details.get("size_bytes")
    return size if isinstance(size, int) else 0


def _size(size_bytes: int) -> str:
    return format_size(size_bytes) if size_bytes else "no size"


def regressions_in_words(changes: Sequence[Change]) -> list[str]:
    """Sentences on what became slower: first hosts all of whose pairs did, while other pairs did not; then the rest."""
    of_host: dict[tuple[str, int], list[Change]] = {}
    fine: Counter[int] = Counter()
    for change in changes:
        hosts, size = set(_hosts(change.now)), _bytes(change.now)
        if len(hosts) == _PAIR:
            fine[size] += not change.is_regression
            for host in hosts:
                of_host.setdefault((host, size), []).append(change)
    sentences: list[str] = []
    told: set[int] = set()
    for (host, size), own in sorted(of_host.items()):
        # All its own are regressions: what is fine belongs to others.
        if len(own) < _PAIR or not all(change.is_regression for change in own) or not fine[size]:
            continue
        told.update(map(id, own))
        longer = median([change.percent for change in own])
        sentences.append(f"host {host}: all its {len(own)} pairs take {longer:.0f} % longer at {_size(size)}")
    slower = [change for change in changes if change.is_regression and id(change) not in told]
    return sentences + [f"{each.what} takes {each.percent:.0f} % longer" for each in slower]
