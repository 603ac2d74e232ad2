"""Finds the host, pair, rail or batch that slows the others down, and its symptom: stalls, latency or bandwidth.

Pure functions over the steps of a PerfLog. The largest size measures bandwidth and the smallest latency, each by its
median time. `outliers` finds the outliers, `stalls` the stalled operations. A host, pair or group with several symptoms
is named once, with all symptoms and their probable cause.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from training.benchmarks.network.outliers import repeat_noise
from training.benchmarks.network.samples import Cell, Sample, cells, read_samples
from training.benchmarks.network.stalls import MIN_REPEATS_WITH_STALLS, STALL_US, tally
from training.benchmarks.network.symptoms import LATE_PERCENT, Symptom, find_symptoms

MIN_REPEATS = 3
# Stalled operations, in percent, above which a network is called lossy although there is no outlier.
_STALLS_EVERYWHERE_PERCENT = 1.0

_CAUSES = {
    "stalls": "packet loss",
    "latency": "a late link: cable, port, or interrupts and power saving of the host",
    "bandwidth": "NIC, cable or PCIe",
}
_PATH_CAUSES = {"stalls": "packet loss on the path between them"}
_PATH_CAUSE = "the path between them"
_MEANING = {
    "each": "alone, so memory, NVLink or PCIe of the host, not the network",
    "rail": "on all hosts, so the rail's NICs or its leaf switch",
    "k_batch": "a host or a link among them",
    "halves": "search on in this half",
}
_ACROSS_THE_CUT = "one of the two hosts or the path across the cut"


@dataclass(frozen=True, kw_only=True, slots=True)
class NetworkFinding:
    """An outlier: `kind` is host, pair, rail, batch or half; then its hosts, its symptoms, and the sentence.

    `symptoms` names those of stalls, latency and bandwidth that are bad; `slow_percent` is how much slower the largest
    size is, 0 if its bandwidth is normal.
    """

    kind: str
    hosts: tuple[str, ...]
    symptoms: tuple[str, ...]
    slow_percent: float
    sentence: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Analysis:
    """Result of a pattern: findings, groups at the largest size, noise in percent, and why no statement is possible.

    `bisection_gbps` is the sum over the pairs across the cut of the pattern halves, in GB/s for each direction.
    """

    pattern: str
    size_bytes: int
    findings: tuple[NetworkFinding, ...]
    groups: tuple[Cell, ...]
    noise_percent: float
    note: str
    bisection_gbps: float | None = None
    hosts: tuple[str, ...] = field(default=())

    @property
    def sentences(self) -> tuple[str, ...]:
        """The findings in words, or that there are none, or why none could be searched for."""
        return tuple(finding.sentence for finding in self.findings) or (self.note,)

    def pair(self, first: str, second: str) -> Cell | None:
        """The cell of two hosts in the host x host matrix."""
        return next((cell for cell in self.groups if set(cell.hosts) == {first, second} and first != second), None)


def analyse(
    steps: Sequence[Mapping[str, Any]],
    *,
    slow_percent: float,
    late_percent: float = LATE_PERCENT,
    names: Mapping[int, str] | None = None,
) -> Analysis | None:
    """Analyse the values of rank 0's STEP_END; None for a run without groups to compare (pattern all).

    `slow_percent` and `late_percent` are bounds for bandwidth and latency, in percent of the peers' time.
    """
    samples = read_samples(steps, names)
    patterns = {sample.pattern for sample in samples}
    if len(patterns) != 1 or patterns == {"all"}:
        return None
    pattern = patterns.pop()
    largest = max(sample.size_bytes for sample in samples)
    shown = cells(samples, largest, rounds="across" if pattern == "halves" else "")
    noise = 100 * repeat_noise([cell.scatter for cell in cells(samples, largest)])
    across = [cell.busbw_gbps.value for cell in shown] if pattern == "halves" else []
    return Analysis(
        pattern=pattern,
        size_bytes=largest,
        findings=tuple(_findings(pattern, samples, slow_percent, late_percent)),
        groups=tuple(shown),
        noise_percent=noise,
        note=_note(pattern, samples, shown, noise),
        bisection_gbps=sum(across) if across else None,
        hosts=_by_node_rank(samples),
    )


def _by_node_rank(samples: Sequence[Sample]) -> tuple[str, ...]:
    pairs = {pair for sample in samples for pair in zip(sample.node_ranks, sample.hosts, strict=True)}
    return tuple(host for _, host in sorted(pairs))


def _findings(
    pattern: str, samples: Sequence[Sample], slow_percent: float, late_percent: float
) -> list[NetworkFinding]:
    if max(sample.repeat for sample in samples) < MIN_REPEATS:
        return []
    if pattern == "halves":
        within = [sample for sample in samples if sample.round.startswith("within")]
        across = [sample for sample in samples if sample.round.startswith("across")]
        parts = [("halves", within), ("across", across)]
    else:
        parts = [(pattern, list(samples))]
    found: list[NetworkFinding] = []
    for part, chosen in parts:
        symptoms = _without_echoes(find_symptoms(part, chosen, slow_percent, late_percent))
        subjects = list(dict.fromkeys((each.kind, each.group) for each in symptoms))
        subjects.sort(key=lambda subject: subject[0] != "host")
        found += [_finding(part, [each for each in symptoms if (each.kind, each.group) == one]) for one in subjects]
    return found


def _without_echoes(symptoms: Sequence[Symptom]) -> list[Symptom]:
    """Leave out what a named host explains: a pair of that host with another symptom than the host itself."""
    hosts = [each for each in symptoms if each.kind == "host"]
    result = []
    for each in symptoms:
        ways = {other.name for other in hosts if set(other.hosts) & set(each.hosts)}
        if each.kind != "pair" or not ways or each.name in ways:
            result.append(each)
    return result


def _finding(pattern: str, symptoms: Sequence[Symptom]) -> NetworkFinding:
    """One finding for all symptoms of one host, pair or group."""
    first = symptoms[0]
    if first.kind == "pair" and pattern == "pairs":
        cause = _PATH_CAUSES.get(first.name, _PATH_CAUSE)
        subject = f"pair {first.group} alone"
    elif first.kind in ("host", "pair"):
        cause = _CAUSES[first.name] if pattern == "pairs" else _MEANING.get(pattern, _ACROSS_THE_CUT)
        subject = f"{first.kind} {first.group}"
    else:
        cause, subject = _MEANING[pattern], f"{first.group} ({', '.join(first.hosts)})"
    return NetworkFinding(
        kind=first.kind,
        hosts=first.hosts,
        symptoms=tuple(each.name for each in symptoms),
        slow_percent=next((each.percent for each in symptoms if each.name == "bandwidth"), 0.0),
        sentence=f"{subject}: {'; '.join(each.text for each in symptoms)}: {cause}",
    )


def _note(pattern: str, samples: Sequence[Sample], shown: Sequence[Cell], noise: float) -> str:
    repeats = max(sample.repeat for sample in samples)
    if repeats < MIN_REPEATS:
        return f"{repeats} repeats cannot tell a fault from noise: set repeats = {MIN_REPEATS} or more"
    every = tally(samples)
    if every.repeats >= MIN_REPEATS_WITH_STALLS and every.percent > _STALLS_EVERYWHERE_PERCENT:
        return (
            f"{every.percent:.0f} % of all operations stall ({STALL_US / 1000:.0f} ms and more), and nobody stands out:"
            " packet loss or overloaded hosts; more repeats may tell whose"
        )
    if len(shown) < (3 if pattern == "pairs" else 2):
        return "too few groups to compare: nothing can be said of a host or a path"
    return f"no host or path stands out (noise from repeat to repeat {noise:.1f} %)"
