"""Which host, pair, rail or batch holds the others back: robust outliers of a cluster pattern, as sentences.

Pure functions over the steps of a PerfLog. A group is named only if it is slower than its peers by more than the user's
`slow_percent` and by more than noise explains, in the median over the repeats, and if even its fastest iteration is
slow: a wire that is slow is so always, while the traffic and the programs of others come and go.

Pairs are explained by what each host can do, its best pair: two healthy hosts reach min(best, best). A host all of
whose pairs are slow has a slow best pair and is compared with the other hosts; a pair that falls short of what both its
hosts reach elsewhere is a matter of the path between them. The noise is the larger of the scatter from repeat to repeat
and 1.4826 * MAD of what is left unexplained; the limit is Student's t for ALPHA over all comparisons.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist, median, median_high
from typing import Any

from training.benchmarks.network.samples import Cell, Sample, cells, read_samples, repeat_noise
from training.benchmarks.network.sizes import format_size

ALPHA = 0.001
MIN_REPEATS = 3
# Scales a median absolute deviation to the standard deviation of a normal distribution.
_MAD_SCALE = 1.4826

_MEANING = {
    "each": "alone, so memory, NVLink or PCIe of the host, not the network",
    "rail": "on all hosts, so the rail's NICs or its leaf switch",
    "k_batch": "a host or a link among them",
    "halves": "search on in this half",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """What stands out: `kind` host, pair, rail, batch or half, the hosts meant, by how much, and the sentence."""

    kind: str
    hosts: tuple[str, ...]
    size_bytes: int
    slow_percent: float
    sentence: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Analysis:
    """A pattern's result: findings, the groups at the largest size, noise in percent, and why nothing could be said.

    `bisection_gbps` is the sum over the pairs across the cut of the pattern halves, GB/s in each direction.
    """

    pattern: str
    size_bytes: int
    findings: tuple[Finding, ...]
    groups: tuple[Cell, ...]
    noise_percent: float
    note: str
    bisection_gbps: float | None = None
    hosts: tuple[str, ...] = field(default=())

    @property
    def sentences(self) -> tuple[str, ...]:
        """The findings in words, or that there is none, or why none could be looked for."""
        return tuple(finding.sentence for finding in self.findings) or (self.note,)

    def pair(self, first: str, second: str) -> Cell | None:
        """The cell of two hosts in the host x host matrix."""
        return next((cell for cell in self.groups if set(cell.hosts) == {first, second} and first != second), None)


def analyse(
    steps: Sequence[Mapping[str, Any]], *, slow_percent: float, names: Mapping[int, str] | None = None
) -> Analysis | None:
    """Analyse the values of rank 0's STEP_END; None for a run without groups to compare (pattern all)."""
    samples = read_samples(steps, names)
    patterns = {sample.pattern for sample in samples}
    if len(patterns) != 1 or patterns == {"all"}:
        return None
    pattern = patterns.pop()
    sizes = sorted({sample.size_bytes for sample in samples})
    findings: dict[tuple[str, ...], Finding] = {}
    for size in dict.fromkeys((sizes[-1], sizes[0])):  # what bandwidth shows, then what latency shows besides
        for finding in _look(pattern, samples, size, slow_percent):
            findings.setdefault((finding.kind, *finding.hosts), finding)
    shown = cells(samples, sizes[-1], rounds="across" if pattern == "halves" else "")
    noise = 100 * repeat_noise(cells(samples, sizes[-1]))
    across = [cell.busbw_gbps.value for cell in shown] if pattern == "halves" else []
    return Analysis(
        pattern=pattern,
        size_bytes=sizes[-1],
        findings=tuple(findings.values()),
        groups=tuple(shown),
        noise_percent=noise,
        note=_note(pattern, samples, shown, noise),
        bisection_gbps=sum(across) if across else None,
        hosts=_by_node_rank(samples),
    )


def _by_node_rank(samples: Sequence[Sample]) -> tuple[str, ...]:
    pairs = {pair for sample in samples for pair in zip(sample.node_ranks, sample.hosts, strict=True)}
    return tuple(host for _, host in sorted(pairs))


def _look(pattern: str, samples: Sequence[Sample], size: int, slow_percent: float) -> list[Finding]:
    if max(sample.repeat for sample in samples) < MIN_REPEATS:
        return []
    if pattern == "pairs":
        return pair_findings(cells(samples, size), size, slow_percent)
    if pattern == "halves":
        within = group_findings("halves", cells(samples, size, rounds="within"), size, slow_percent)
        return within + group_findings("across", cells(samples, size, rounds="across"), size, slow_percent)
    return group_findings(pattern, cells(samples, size), size, slow_percent)


def _note(pattern: str, samples: Sequence[Sample], shown: Sequence[Cell], noise: float) -> str:
    repeats = max(sample.repeat for sample in samples)
    if repeats < MIN_REPEATS:
        return f"{repeats} repeats cannot tell a fault from noise: set repeats = {MIN_REPEATS} or more"
    if len(shown) < (3 if pattern == "pairs" else 2):
        return "too few groups to compare: nothing can be said of a host or a path"
    return f"no host or path stands out (noise from repeat to repeat {noise:.1f} %)"


def pair_findings(found: Sequence[Cell], size: int, slow_percent: float) -> list[Finding]:
    """Slow hosts and slow pairs among cells of two hosts each; with one pair or two there is nothing to compare."""
    if len(found) < 3:
        return []
    hosts = sorted({host for cell in found for host in cell.hosts})
    of_host = {host: [cell for cell in found if host in cell.hosts] for host in hosts}
    best = {host: max(cell.rate.value for cell in own) for host, own in of_host.items()}
    able = {cell.group: min(best[host] for host in cell.hosts) for cell in found}
    left = [math.log(cell.rate.value / able[cell.group]) for cell in found]
    noise = _noise_limit(found, left, comparisons=len(found) + len(hosts))
    reference = median_high(best.values())
    result = []
    for host in hosts:
        own = of_host[host]
        lag = _lag(best[host], max(cell.peak for cell in own), reference, slow_percent)
        if lag > noise:
            slow = _percent(median([cell.rate.value for cell in own]), reference)
            sentence = f"host {host}: all its pairs are {slow:.0f} % slow at {format_size(size)}: NIC, cable or PCIe"
            result.append(Finding(kind="host", hosts=(host,), size_bytes=size, slow_percent=slow, sentence=sentence))
    for cell in found:
        lag = _lag(cell.rate.value, cell.peak, able[cell.group], slow_percent)
        if lag > noise:
            slow = _percent(cell.rate.value, able[cell.group])
            sentence = f"pair {cell.group} alone is {slow:.0f} % slow at {format_size(size)}: the path between them"
            result.append(Finding(kind="pair", hosts=cell.hosts, size_bytes=size, slow_percent=slow, sentence=sentence))
    return result


def group_findings(pattern: str, found: Sequence[Cell], size: int, slow_percent: float) -> list[Finding]:
    """Slow ones among groups of the same number of ranks; two are compared with the better, more with their median."""
    widths = [cell.world_size for cell in found]
    peers = [cell for cell in found if cell.world_size == max(widths, key=widths.count)]
    if len(peers) < 2:
        return []
    rates = [cell.rate.value for cell in peers]
    reference = max(rates) if len(peers) == 2 else median_high(rates)
    left = [math.log(rate / reference) if len(peers) > 2 else 0.0 for rate in rates]
    noise = _noise_limit(peers, left, comparisons=len(peers))
    kind = {"each": "host", "rail": "rail", "k_batch": "batch", "halves": "half", "across": "pair"}[pattern]
    result = []
    for cell in peers:
        lag = _lag(cell.rate.value, cell.peak, reference, slow_percent)
        if lag > noise:
            slow = _percent(cell.rate.value, reference)
            name = f"{kind} {cell.group}" if kind in ("host", "pair") else f"{cell.group} ({', '.join(cell.hosts)})"
            meaning = _MEANING.get(pattern, "one of the two hosts or the path across the cut")
            sentence = f"{name}: {slow:.0f} % slow at {format_size(size)}: {meaning}"
            result.append(Finding(kind=kind, hosts=cell.hosts, size_bytes=size, slow_percent=slow, sentence=sentence))
    return result


def _lag(rate: float, peak: float, reference: float, slow_percent: float) -> float:
    """How far the logarithm of `rate` lies below the reference's; 0 unless the fastest iteration is slow, too."""
    bound = reference * (1 - slow_percent / 100)
    return math.log(reference / rate) if rate < bound and peak < bound else 0.0


def _noise_limit(found: Sequence[Cell], left: Sequence[float], *, comparisons: int) -> float:
    """How far below its reference the logarithm of a rate must lie for noise not to explain it."""
    degrees = sum(len(cell.scatter) - 1 for cell in found)
    if degrees < 1:
        return math.inf
    middle = median(left)
    spread = _MAD_SCALE * median([abs(value - middle) for value in left])
    return _student_quantile(1 - ALPHA / comparisons, degrees) * max(spread, repeat_noise(found))


def _student_quantile(probability: float, degrees: int) -> float:
    """Quantile of Student's t by its expansion from the normal one (Abramowitz and Stegun, 26.7.5).

    A noise that was itself estimated from few repeats may be far too small by chance; this allows for it.
    """
    z = NormalDist().inv_cdf(probability)
    return (
        z
        + (z**3 + z) / (4 * degrees)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * degrees**3)
    )


def _percent(rate: float, reference: float) -> float:
    return 100 * (1 - rate / reference)
