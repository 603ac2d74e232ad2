"""Describes the fault of a host, a pair or a group of hosts: stalls, latency or bandwidth, and its degree.

Each symptom is tested separately: high latency of small messages and low bandwidth of large ones have different causes,
and lost packets leave the fastest operation unchanged.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from training.benchmarks.network.outliers import Level, Outlier, group_outliers, pair_outliers
from training.benchmarks.network.samples import Cell, Median, Sample, cells, median_of
from training.benchmarks.network.sizes import format_size
from training.benchmarks.network.stalls import STALL_US, Stalling, stalling_groups, stalling_pairs

# Messages up to this size show latency, larger ones bandwidth: 64 KiB take 5 us at 100 Gbit/s.
LATENCY_BYTES = 64 << 10
LATE_PERCENT = 50.0
KINDS = {"pairs": "pair", "each": "host", "rail": "rail", "k_batch": "batch", "halves": "half", "across": "pair"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Symptom:
    """One symptom of a host, pair or group: `name` is stalls, latency or bandwidth; `percent` the increase of time, if
    any.
    """

    name: str
    kind: str
    group: str
    hosts: tuple[str, ...]
    percent: float
    text: str


def find_symptoms(pattern: str, samples: Sequence[Sample], slow_percent: float, late_percent: float) -> list[Symptom]:
    """Every symptom of one pattern's groups, the most telling first. `across` is a pattern here.

    `slow_percent` and `late_percent` are bounds for bandwidth and latency, in percent of the peers' time.
    """
    stalling = stalling_pairs(samples) if pattern == "pairs" else stalling_groups(KINDS[pattern], samples)
    found = [_stalls(pattern, each) for each in stalling]
    sizes = sorted({sample.size_bytes for sample in samples})
    small, large = (_alike(cells(samples, size)) for size in (sizes[0], sizes[-1]))
    if sizes[0] <= LATENCY_BYTES:
        outliers = _outliers(pattern, _times(small), math.log1p(late_percent / 100), adds_up=True)
        found += [_latency(pattern, each, small, sizes[0]) for each in outliers]
    if sizes[-1] > LATENCY_BYTES:
        outliers = _outliers(pattern, _times(large), -math.log1p(-slow_percent / 100))
        found += [_bandwidth(pattern, each, large, sizes[-1]) for each in outliers]
    return found


def _outliers(pattern: str, levels: Sequence[Level], bound: float, *, adds_up: bool = False) -> list[Outlier]:
    if pattern == "pairs":
        return pair_outliers(levels, bound, adds_up=adds_up)
    return group_outliers(KINDS[pattern], levels, bound)


def _alike(found: Sequence[Cell]) -> list[Cell]:
    """The groups with the most frequent number of ranks: only those can be compared."""
    widths = [cell.world_size for cell in found]
    return [cell for cell in found if cell.world_size == max(widths, key=widths.count)]


def _times(found: Sequence[Cell]) -> list[Level]:
    return [
        Level(
            group=cell.group,
            hosts=cell.hosts,
            values=tuple(-math.log(rate) for rate in cell.rates),
            fastest=tuple(-math.log(peak) for peak in cell.peaks),
        )
        for cell in found
    ]


def _own(outlier: Outlier, found: Sequence[Cell]) -> list[Cell]:
    """The pairs of a host, or the one group of the outlier."""
    own = [cell for cell in found if cell.group == outlier.group]
    return own or [cell for cell in found if outlier.hosts[0] in cell.hosts]


def _where(pattern: str, kind: str) -> str:
    return " on all its pairs" if kind == "host" and pattern == "pairs" else ""


def _stalls(pattern: str, found: Stalling) -> Symptom:
    share = found.tally.percent
    text = (
        f"{share:.{0 if share >= 1 else 2}f} % of the operations{_where(pattern, found.kind)} stall"
        f" ({STALL_US / 1000:.0f} ms and more)"
    )
    return Symptom(name="stalls", kind=found.kind, group=found.group, hosts=found.hosts, percent=share, text=text)


def _latency(pattern: str, outlier: Outlier, found: Sequence[Cell], size: int) -> Symptom:
    usual = math.exp(outlier.reference) * 1e6
    time = median([1e6 / cell.rate.value for cell in _own(outlier, found)])
    what = f"small messages ({format_size(size)})" if size else "barriers"
    text = f"{what}{_where(pattern, outlier.kind)} take {_duration(time - usual)} longer than {_duration(usual)}"
    return _symptom("latency", outlier, 100 * (time / usual - 1), text)


def _bandwidth(pattern: str, outlier: Outlier, found: Sequence[Cell], size: int) -> Symptom:
    own, usual = _own(outlier, found), math.exp(-outlier.reference)
    slow = _percent(median([cell.rate.value for cell in own]), usual)
    every = median_of([rate for cell in own for rate in cell.rates])
    subject = "all its pairs are " if _where(pattern, outlier.kind) else ""
    text = f"{subject}{slow:.0f} %{_interval(every, usual)} slow at {format_size(size)}"
    return _symptom("bandwidth", outlier, slow, text)


def _symptom(name: str, outlier: Outlier, percent: float, text: str) -> Symptom:
    return Symptom(name=name, kind=outlier.kind, group=outlier.group, hosts=outlier.hosts, percent=percent, text=text)


def _percent(rate: float, reference: float) -> float:
    return 100 * (1 - rate / reference)


def _interval(every: Median, usual: float) -> str:
    low, high = (f"{_percent(rate, usual):.0f}" for rate in (every.high, every.low))
    return f" ({low} to {high} %)" if low != high else ""


def _duration(microseconds: float) -> str:
    return f"{microseconds / 1000:.2g} ms" if microseconds >= 1000 else f"{microseconds:.3g} us"
