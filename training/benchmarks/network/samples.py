"""Reads measurements of groups of hosts from the steps of a PerfLog, and takes their medians over the repeats."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One group's result for one size in one repeat.

    `size_bytes` is the requested size: chunks round it to the number of ranks. `rate` is 1 / p50, per second, and also
    orders barriers. `peak` is the rate of the fastest iteration; `stalled` of the `iterations` stalled.
    """

    pattern: str
    round: str
    group: str
    hosts: tuple[str, ...]
    node_ranks: tuple[int, ...]
    world_size: int
    size_bytes: int
    repeat: int
    rate: float
    peak: float
    busbw_gbps: float
    stalled: int
    iterations: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Median:
    """The median of repeated values, and the interval of order statistics that holds the true median.

    `confidence` is the interval's coverage for any distribution: 0.95 where the repeats suffice (6), else that of
    minimum and maximum, 1 - 2**(1 - n) for n values.
    """

    value: float
    low: float
    high: float
    confidence: float
    n: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One group at one size over the repeats: its rate (1/s) and busbw (GB/s), and the rate and the peak of each
    repeat.
    """

    group: str
    hosts: tuple[str, ...]
    world_size: int
    rate: Median
    busbw_gbps: Median
    rates: tuple[float, ...]
    peaks: tuple[float, ...]

    @property
    def scatter(self) -> tuple[float, ...]:
        """Distances of the rates' logarithms from their median."""
        return tuple(math.log(rate / self.rate.value) for rate in self.rates)


def read_samples(steps: Sequence[Mapping[str, Any]], names: Mapping[int, str] | None = None) -> list[Sample]:
    """The samples in values of STEP_END; steps of another form (another workload's) are skipped.

    `names` replaces the hosts' own names by node rank with those in the user's cluster config.
    """
    found = []
    for step in steps:
        groups = step.get("groups")
        for group in groups if isinstance(groups, list) else [step] if "node_ranks" in step else []:
            try:
                found.append(_sample(step, group, names or {}))
            except (KeyError, TypeError, ValueError, ZeroDivisionError):  # a host may send anything
                continue
    return found


def _sample(step: Mapping[str, Any], group: Mapping[str, Any], names: Mapping[int, str]) -> Sample:
    own_names = dict(zip(group["node_ranks"], group["hosts"], strict=True))
    hosts = tuple(str(names.get(node_rank, own_names[node_rank])) for node_rank in group["node_ranks"])
    label, plain = str(group["group"]), "-".join(map(str, group["hosts"]))
    time_us = group["time_us"]
    return Sample(
        pattern=str(step["pattern"]),
        round=str(step["round"]),
        group="-".join(hosts) if label == plain else label,
        hosts=hosts,
        node_ranks=tuple(int(node_rank) for node_rank in group["node_ranks"]),
        world_size=int(group["world_size"]),
        size_bytes=int(step.get("size_bytes", group["size_bytes"])),
        repeat=int(step["repeat"]),
        rate=1e6 / float(time_us["p50"]),
        peak=1e6 / float(time_us["min"]),
        busbw_gbps=float(group["busbw_GBps"]),
        stalled=int(group.get("stalled_iterations", 0)),
        iterations=int(group.get("iterations", 0)),
    )


def median_of(values: Sequence[float]) -> Median:
    """Median and distribution-free confidence interval, in the unit of `values`.

    Source: binomial order statistics, as in David and Nagaraja, "Order Statistics" (2003), section 7.1.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("values: none given; a median needs 1 or more")
    ordered, n = sorted(values), len(values)
    # Number of the 2**n equally likely outcomes beyond one end. Integers: 0.5**n is 0 from 1075 values on.
    place, below, term = 1, 1, n
    while place < n // 2 and 1 - (below + term) / 2 ** (n - 1) >= CONFIDENCE:
        below += term
        place, term = place + 1, term * (n - place) // (place + 1)
    coverage = 1 - below / 2 ** (n - 1)
    return Median(
        value=median(ordered), low=ordered[place - 1], high=ordered[n - place], confidence=max(0.0, coverage), n=n
    )


def cells(samples: Sequence[Sample], size_bytes: int, *, rounds: str = "") -> list[Cell]:
    """The groups at one size, of the rounds whose name begins with `rounds`, in the order of measurement."""
    chosen: dict[str, list[Sample]] = {}
    for sample in samples:
        if sample.size_bytes == size_bytes and sample.round.startswith(rounds):
            chosen.setdefault(sample.group, []).append(sample)
    return [_cell(group, each) for group, each in chosen.items()]


def _cell(group: str, samples: Sequence[Sample]) -> Cell:
    return Cell(
        group=group,
        hosts=samples[0].hosts,
        world_size=samples[0].world_size,
        rate=median_of([sample.rate for sample in samples]),
        busbw_gbps=median_of([sample.busbw_gbps for sample in samples]),
        rates=tuple(sample.rate for sample in samples),
        peaks=tuple(sample.peak for sample in samples),
    )
