"""Finds the host, device, link, rail, rack or batch that slows the others down, and its symptoms, as data.

Works on what rank 0 measured, in time that is nearly linear in the number of measurements. The largest size measures
bandwidth and the smallest latency, each by its median time; `symptoms` has the tests. A host or group with several
symptoms is one finding, with all symptoms and their probable cause.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import nlargest
from typing import Any

from common.bandwidth import COLLECTIVES, host_gbps
from common.garbage import without_collection
from common.statistics import Cell
from protocol.finding import PartFinding
from training.benchmarks.network.patterns.learning import combined, learn
from training.benchmarks.network.patterns.tiers import Tiers
from training.benchmarks.network.patterns.topology import UNKNOWN, Topology
from training.benchmarks.network.slow_parts.blame import blamed, doubtful_hosts, finding_of, told_links
from training.benchmarks.network.slow_parts.chance import ALPHA
from training.benchmarks.network.slow_parts.events import STALL_US
from training.benchmarks.network.slow_parts.figures import (
    LATENCY_BYTES,
    alike,
    figure,
    without_common,
)
from training.benchmarks.network.slow_parts.judge import Bounds
from training.benchmarks.network.slow_parts.noise import medians, plain_noise, settle
from training.benchmarks.network.slow_parts.peer_findings import peer_findings
from training.benchmarks.network.slow_parts.peers import PATTERN as PEERS
from training.benchmarks.network.slow_parts.racks import LEAST_BLOCK_HOSTS, LEAST_BLOCKS
from training.benchmarks.network.slow_parts.readings import STALLS_EVERYWHERE_PERCENT, Readings, Scan, scan_of
from training.benchmarks.network.slow_parts.symptoms import symptoms_of

MIN_REPEATS = 3
# Groups that are kept for tables: the pairs of 64 hosts; of more, the slowest.
MAX_CELLS = 64 * 63 // 2
_SLOWEST = 64
_NO_TOPOLOGY = "no topology was given"
PAIR_PATTERNS = ("pairs", "rail_pairs")


@dataclass(frozen=True, kw_only=True, slots=True)
class Analysis:
    """Result of a pattern: findings, groups at the largest size, noise in percent, and why no statement is possible.

    `groups` are all of them, or the slowest of very many. `bisection_gbps` is the sum over the pairs across the cut of
    the pattern halves, in GB/s for each direction. `remarks` say how the groups were compared.
    """

    pattern: str
    size_bytes: int
    findings: tuple[PartFinding, ...]
    groups: tuple[Cell, ...]
    noise_percent: float
    note: str
    bisection_gbps: float | None = None
    hosts: tuple[str, ...] = field(default=())
    remarks: tuple[str, ...] = ()

    @property
    def sentences(self) -> tuple[str, ...]:
        """The findings in words, or that there are none, or why none could be searched for; then the remarks."""
        return (tuple(finding.sentence for finding in self.findings) or (self.note,)) + self.remarks

    def pair(self, first: str, second: str) -> Cell | None:
        """The cell of two hosts in the host x host matrix."""
        return next((cell for cell in self.groups if set(cell.hosts) == {first, second} and first != second), None)


def analyse(
    steps: Sequence[Mapping[str, Any]],
    *,
    slow_percent: float,
    tiers: Tiers | None = None,
    kinds: Mapping[int, str] | None = None,
) -> Analysis | None:
    """Analyse the values of rank 0's STEP_END by the usual bound of latency, see analyse_scan."""
    return analyse_scan(scan_of(steps), Bounds(slow_percent=slow_percent), Topology(tiers=tiers, kinds=kinds or {}))


def analyse_scan(scan: Scan, bounds: Bounds, around: Topology = UNKNOWN) -> Analysis | None:
    """Analyse what rank 0 has measured; None without groups to compare (pattern all), or where a search
    has compared them (pattern adaptive).

    `around` has what is known of the hosts; tiers that it does not tell are learnt from the pairs.
    """
    if not _has_groups(scan):
        return None
    (pattern,) = scan.patterns
    with without_collection():
        search = _Search(scan, pattern, bounds, around)
        enough = max(each.repeats for each in scan.sizes.values()) >= MIN_REPEATS
        return shown_with(scan, search.findings() if enough else [], search.remarks)


def _across_the_cut(scan: Scan, shown: Readings) -> list[float]:
    """GB/s between the two hosts of each pair, in one direction: all messages that cross at once."""
    cells = [shown.cell(place, scan.names) for place in range(len(shown))]
    if scan.collective not in COLLECTIVES:
        return [cell.busbw_gbps.value for cell in cells]
    return [host_gbps(scan.collective, cell.busbw_gbps.value, cell.world_size, len(cell.hosts)) for cell in cells]


def _has_groups(scan: Scan) -> bool:
    return len(scan.patterns) == 1 and not scan.patterns & {"all", "adaptive"} and any(map(len, scan.sizes.values()))


def shown_with(scan: Scan, findings: Sequence[PartFinding], remarks: Sequence[str]) -> Analysis | None:
    """The analysis of a scan whose findings are known, as from FINISHED; None without groups to compare."""
    if not _has_groups(scan):
        return None
    (pattern,) = scan.patterns
    size = scan.largest_and_smallest()[0]
    every = scan.of_size(size)
    shown = scan.of_size(size, "across") if pattern == "halves" else every
    names = scan.names
    across = _across_the_cut(scan, shown) if pattern == "halves" else []
    noise = 100 * plain_noise(every.columns["middle"])
    return Analysis(
        pattern=pattern,
        size_bytes=size,
        findings=tuple(findings),
        groups=tuple(shown.cell(place, names) for place in _places_to_show(shown)) if pattern != PEERS else (),
        noise_percent=noise,
        note=_note(pattern, scan, len(shown), noise),
        bisection_gbps=sum(across) if across else None,
        hosts=tuple(names.values()),
        remarks=tuple(remarks),
    )


def _places_to_show(readings: Readings) -> Sequence[int]:
    """All groups, or the slowest of very many."""
    if len(readings) <= MAX_CELLS * (1 + readings.is_one_way):
        return range(len(readings))
    times = medians(readings.columns["middle"])
    return nlargest(_SLOWEST, range(len(times)), key=times.__getitem__)


class _Search:
    """The search for findings in a scan; `remarks` collects how groups were compared."""

    def __init__(self, scan: Scan, pattern: str, bounds: Bounds, around: Topology) -> None:
        self._scan, self._pattern, self._bounds, self._around = scan, pattern, bounds, around
        self._names = scan.names
        kinds = {rank: around.kinds.get(rank, "") for rank in self._names}
        self._kinds = kinds if len(set(kinds.values())) > 1 else {}
        self._hides_racks = around.tiers is None and bool(self._kinds)
        self.remarks: list[str] = []

    def findings(self) -> list[PartFinding]:
        """Hosts first, then the rest in the order of their symptoms."""
        if self._kinds:
            counts = Counter(self._kinds.values())
            told = ", ".join(f"{count} x {kind or 'unknown'}" for kind, count in counts.most_common())
            single = f"; {', '.join(k or 'unknown' for k, n in counts.items() if n == 1)}: with no host of its own kind"
            self.remarks.append(f"hosts are compared with hosts of their kind: {told}{single * (1 in counts.values())}")
        if self._pattern == PEERS:
            sizes = [self._scan.of_size(size) for size in sorted(self._scan.sizes)]
            return peer_findings(sizes, self._names, self._kinds, self._bounds)
        if self._pattern != "halves":
            found = self._of_part(self._pattern, "")
        else:
            parts = [("halves", "within"), ("across", "across")]
            found = [each for part, begin in parts for each in self._of_part(part, begin)]
        return sorted(found, key=lambda each: each.part not in ("host", "device"))

    def _of_part(self, part: str, begin: str) -> list[PartFinding]:
        same = self._comparable(part, begin)
        if not same:
            return []
        tiers = self._tiers_of(part, same)
        # The groups of all sizes are the same, and so are the ends of pairs.
        pairs = same[-1].ends() if part in PAIR_PATTERNS else None
        figures = [figure(each, pairs, tiers, self._bounds) for each in same]
        names = self._names
        subjects = blamed(part, symptoms_of(figures), figures[-1], names, tiers)
        links, remark = told_links(subjects, same[-1], names)
        self.remarks += [remark] if remark else []
        kept = {subject: own for subject, own in subjects.items() if subject.part != "link" or subject in links}
        if remark and not links and self._hides_racks:
            doubtful, why = doubtful_hosts(kept, names)
            self.remarks += [why] if why else []
            kept = {subject: own for subject, own in kept.items() if subject not in doubtful}
        return [finding_of(part, subject, own, names, self._around.devices) for subject, own in kept.items()]

    def _comparable(self, part: str, begin: str) -> list[Readings]:
        """The readings of the groups of a part, by size: of those sizes that have the largest one's groups."""
        readings = [alike(self._scan.of_size(size, begin)) for size in sorted(self._scan.sizes)]
        if part in PAIR_PATTERNS:
            readings = [each.choose([p for p, own in enumerate(each.members) if len(own) == 2]) for each in readings]
        elif self._kinds:
            readings = [without_common(each, [self._kind(own) for own in each.members]) for each in readings]
        readings = [each for each in readings if len(each)]
        return [each for each in readings if (each.members, each.rails) == (readings[-1].members, readings[-1].rails)]

    def _kind(self, members: Sequence[int]) -> tuple[str, ...]:
        """The kinds of a group's hosts."""
        return tuple(sorted(self._kinds[rank] for rank in members))

    def _tiers_of(self, part: str, readings: Sequence[Readings]) -> Tiers:
        """The topology's tiers, else those that latency shows, which other pairs do not change, and bandwidth."""
        if part not in PAIR_PATTERNS:
            return Tiers()
        tiers = self._around.tiers
        if tiers is None:
            ends = (readings[0], readings[-1])
            settled = [settle(each.columns["middle"], ALPHA) for each in ends]
            learnt = [learn(ends[0].members, each.values, each.noise, self._kinds) for each in settled]
            late = learnt[0] if readings[0].size_bytes <= LATENCY_BYTES else Tiers()
            tiers = combined(late, learnt[-1])
        if tiers.blocks:
            outside = [name for rank, name in self._names.items() if rank not in tiers.blocks[0]]
            self.remarks.append(tiers.summary() + (f"; in no block: {', '.join(outside)}" if outside else ""))
        if self._around.tiers is None and len(self._names) >= LEAST_BLOCKS * LEAST_BLOCK_HOSTS:
            self.remarks.append(_unseen(tiers, has_kinds=bool(self._kinds)))
        return replace(tiers, kinds=self._kinds)


def _unseen(tiers: Tiers, *, has_kinds: bool) -> str:
    """The faults that an analysis does not see where no topology tells the racks, in words."""
    if not tiers.blocks:
        return f"{_NO_TOPOLOGY} and no racks show: bad uplinks of a rack are not told from its hosts and paths"
    if has_kinds:
        return f"{_NO_TOPOLOGY}: racks are learnt for each kind of host by itself, bad uplinks of a mixed rack in parts"
    return f"{_NO_TOPOLOGY}: bad uplinks of a rack that does not show in these times are not seen"


def _note(pattern: str, scan: Scan, groups: int, noise: float) -> str:
    repeats = max(each.repeats for each in scan.sizes.values())
    if repeats < MIN_REPEATS:
        return f"{repeats} repeats cannot tell a fault from noise: set repeats = {MIN_REPEATS} or more"
    if (percent := scan.stalled_percent) > STALLS_EVERYWHERE_PERCENT:
        return (
            f"{percent:.0f} % of all operations stall ({STALL_US / 1000:.0f} ms and more), and nobody stands out:"
            " packet loss or overloaded hosts; more repeats may tell whose"
        )
    if groups < (3 if pattern in PAIR_PATTERNS else 2):
        return "too few groups to compare: nothing can be said of a host or a path"
    what = "rank of a host" if pattern == PEERS else "host or path"
    return f"no {what} stands out (noise from repeat to repeat {noise:.1f} %)"
