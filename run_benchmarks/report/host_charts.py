"""Charts the monitors of a round's hosts over time, from its curves: few hosts as lines, many as bands and outliers."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from operator import sub
from statistics import median

from common.charts.chart import Area, Axis, Curves, Number, Panel, Series
from run_benchmarks.console.language import ENGLISH, Words
from run_benchmarks.results.curves import NodeCurves, RoundCurves
from run_benchmarks.results.records import RoundRecord

# Metric (results.samples.timeline), its axis, and what a value is divided by.
PERCENT = "%"
PANELS = (
    ("cpu", "host CPU, %", 1.0),
    ("memory", "host memory, %", 1.0),
    ("utilization", "device utilization, %", 1.0),
    ("power", "power by meter, W", 1.0),
    ("device_power", "device power, W", 1.0),
    ("temperature", "device temperature, highest, °C", 1.0),
    ("clock", "device clock, lowest, MHz", 1.0),
    ("device_memory", "device memory, GB", 1e9),
    ("receive", "ports receive, MB/s", 1e6),
    ("send", "ports send, MB/s", 1e6),
)
MOST_LINES, MOST_OUTLIERS = 6, 3
LOW, HIGH = 0.05, 0.95
LEAST_FAR = 0.01  # of the median: what is nearer is no outlier
MOST_POINTS = 10_000  # a host's own curves have MOST_BUCKETS (results.samples.timeline)
SLACK_MS = 60_000  # by which the clock of a host may be wrong


@dataclass(frozen=True, kw_only=True)
class _Member:
    """One series on the common buckets: its name, whether its host is suspect, its values in the metric's unit."""

    name: str
    is_bad: bool
    values: list[Number]


def monitors_chart(
    found: RoundCurves, record: RoundRecord, suspects: Collection[str], words: Words = ENGLISH
) -> Curves | None:
    """All metrics over one time axis, in seconds since the round began; None without samples.

    `suspects`: the hosts that are drawn as lines of their own whatever they did. A host whose samples begin before the
    round or after it is left out: with them the axis would be as long as its clock is wrong. So is one that begins
    MOST_POINTS later, of a record that says that its round took decades.
    """
    started_ms, latest_ms = record.started_ms, record.finished_ms + SLACK_MS
    width = max((node.bucket_ms for node in found.nodes), default=1)
    last_ms = min(latest_ms, started_ms + MOST_POINTS * width)
    nodes = [node for node in found.nodes if started_ms - SLACK_MS <= node.started_ms <= last_ms]
    if not nodes:
        return None
    first = min(node.started_ms for node in nodes)
    shapes = {metric: _members(nodes, metric, width, first, suspects, divisor) for metric, _, divisor in PANELS}
    count = max((len(each.values) for members in shapes.values() for each in members), default=0)
    if not count:
        return None
    for members in shapes.values():
        for each in members:
            each.values.extend([None] * (count - len(each.values)))
    begin = (first - started_ms) / 1000
    return Curves(
        title=words("Monitors of the hosts"),
        sentence=_sentence(len(nodes), width, words) + _left_out(len(found.nodes) - len(nodes), words),
        x=Axis(name=words("since the round began"), format="seconds"),
        xs=[begin + (at + 0.5) * width / 1000 for at in range(count)],
        panels=[
            Panel(y=_axis(name, words), series=_drawn(shapes[metric], words))
            for metric, name, _ in PANELS
            if _is_seen(shapes[metric])
        ],
        areas=_areas(nodes, started_ms, words),
    )


def _is_seen(members: Sequence[_Member]) -> bool:
    """Whether there is more than nothing to draw: ports over which nothing goes have no panel."""
    return any(value is not None and value >= 1 for each in members for value in each.values)


def _axis(name: str, words: Words) -> Axis:
    """The axis of a metric; shares and rates begin at 0."""
    starts = name.endswith((PERCENT, "/s", "W"))
    return Axis(name=words(name), start=0.0 if starts else None, end=100.0 if name.endswith(PERCENT) else None)


def _sentence(hosts: int, width_ms: int, words: Words) -> str:
    seconds = f"{width_ms / 1000:g}"
    if hosts > 1:
        return words("{n} hosts, {s} s a point; the shaded time is the measured work.", n=hosts, s=seconds)
    return words("{s} s a point; shaded: the work.", s=seconds)


def _left_out(hosts: int, words: Words) -> str:
    return f" {words('Left out, their times are not those of the round: {n} of the hosts.', n=hosts)}" if hosts else ""


def _areas(nodes: Sequence[NodeCurves], started_ms: int, words: Words) -> list[Area]:
    works = [node.work_ms for node in nodes if node.work_ms is not None]
    if not works:
        return []
    begin, end = min(work[0] for work in works), max(work[1] for work in works)
    return [Area(name=words("measured work"), start=(begin - started_ms) / 1000, end=(end - started_ms) / 1000)]


def _members(
    nodes: Sequence[NodeCurves], metric: str, width_ms: int, first_ms: int, suspects: Collection[str], divisor: float
) -> list[_Member]:
    """The series of a metric on buckets of `width_ms`; a host's own buckets are a power of two narrower."""
    several = len(nodes) > 1
    members = []
    for node in nodes:
        for curve in node.curves:
            if curve.metric != metric:
                continue
            what = f"device {curve.member}" if curve.member.isdigit() else curve.member
            name = " ".join(filter(None, (node.host if several or not what else "", what)))
            begin = (node.started_ms - first_ms) // width_ms
            values: list[Number] = [None] * begin
            values.extend(_wider(curve.numbers(), max(1, width_ms // node.bucket_ms), divisor))
            members.append(_Member(name=name, is_bad=node.host in suspects, values=values))
    return members


def _wider(numbers: Sequence[Number], merge: int, divisor: float) -> Sequence[Number]:
    """The means of every `merge` neighbours, divided by `divisor`."""
    if merge == 1:  # usual, and a run of 512 hosts has 20,000 series a round
        return numbers if divisor == 1 else [None if value is None else value / divisor for value in numbers]
    means: list[Number] = []
    for at in range(0, len(numbers), merge):
        there = [value / divisor for value in numbers[at : at + merge] if value is not None]
        means.append(sum(there) / len(there) if there else None)
    return means


def _drawn(members: Sequence[_Member], words: Words) -> list[Series]:
    """Lines of a few; of many the median, the band of 90 % and those that are suspect or farthest from the median."""
    if len(members) <= MOST_LINES:
        return [Series(name=each.name, y=each.values, tone="bad" if each.is_bad else "") for each in members]
    middle: list[Number] = []
    low: list[Number] = []
    high: list[Number] = []
    for column in zip(*(each.values for each in members), strict=True):
        there = sorted([value for value in column if value is not None])
        last = len(there) - 1
        middle.append(there[last // 2] if there else None)
        low.append(there[round(last * LOW)] if there else None)
        high.append(there[round(last * HIGH)] if there else None)
    chosen = _outliers(members, middle)[:MOST_OUTLIERS]
    return [
        Series(name=words("median"), y=middle),
        Series(name=words("5 to 95 %"), style="band", low=low, high=high),
        *(Series(name=each.name, y=each.values, tone="bad") for each in chosen),
    ]


def _outliers(members: Sequence[_Member], middle: Sequence[Number]) -> list[_Member]:
    """Those whose distance from the median of all is more than three times the usual one, and the suspect one
    that is farthest in any case; suspects first, the farthest first.
    """
    far = [_distance(each.values, middle) for each in members]
    level = median([abs(value) for value in middle if value is not None] or [0.0])
    least = max(LEAST_FAR * level, 3 * median(far))
    suspects = [number for number, each in enumerate(members) if each.is_bad]
    farthest = max(suspects, key=far.__getitem__, default=None)
    chosen = [number for number, distance in enumerate(far) if distance > least or number == farthest]
    return [members[number] for number in sorted(chosen, key=lambda at: (not members[at].is_bad, -far[at]))]


def _distance(values: Sequence[Number], middle: Sequence[Number]) -> float:
    """Mean distance of a series from the middle, in its unit: a device that is slow half of the time is far."""
    try:
        found = list(map(abs, map(sub, values, middle)))
    except TypeError:  # a gap in one of them
        found = [abs(a - b) for a, b in zip(values, middle, strict=True) if a is not None and b is not None]
    return sum(found) / len(found) if found else 0.0
