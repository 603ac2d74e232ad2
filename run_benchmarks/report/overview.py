"""Makes the first screen of a report: the verdict with its action, the hosts, the drain list, a line for each case."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from common.shortening import shortened
from run_benchmarks.console.language import ENGLISH, Words
from run_benchmarks.results.loading import LoadedRun
from run_benchmarks.results.records import CaseRecord, HostRecord, RoundRecord, Verdict, worst

STATES = ("healthy", "degraded", "lost")
SYMBOLS = {"healthy": "", "degraded": "▲", "lost": "✕"}
BADGES = {
    Verdict.PASS: ("good", "✓ pass"),
    Verdict.DEGRADED: ("warn", "▲ degraded"),
    Verdict.SKIPPED: ("warn", "– skipped"),
    Verdict.FAIL: ("bad", "✕ failed"),
    Verdict.TIMEOUT: ("bad", "✕ timeout"),
    Verdict.ABORTED: ("bad", "✕ aborted"),
}
REASON_CHARACTERS = 160
HALF_PERCENT, BAR_WIDTH = 15.0, 110  # of the deviation from what is expected; pixels
# Meters of a whole host first: the others measure parts of it.
WHOLE_METERS = ("ipmi", "redfish")


@dataclass(frozen=True, kw_only=True)
class Drained:
    """A line of the drain list: the host, its part, the evidence and the action, and further evidence."""

    host: str
    state: str
    part: str
    evidence: str
    action: str
    more: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CaseLine:
    """A case on the first screen; `deviation` in percent of the expected, left and wide of its bar in pixels."""

    anchor: str
    run: LoadedRun
    case: CaseRecord
    reason: str
    spread: str
    percent: float | None
    tone: str
    energy: str
    energy_of: str

    @property
    def badge(self) -> tuple[str, str]:
        """Tone and words of its verdict."""
        return BADGES[self.case.verdict]

    @property
    def bar(self) -> tuple[float, float]:
        """Left end and width of the bar from the centre tick, in pixels of BAR_WIDTH."""
        apart = 0.0 if self.percent is None else self.percent - 100
        off = max(-HALF_PERCENT, min(HALF_PERCENT, apart)) / HALF_PERCENT * BAR_WIDTH / 2
        return (BAR_WIDTH / 2 + min(0.0, off), max(abs(off), 1.0))


@dataclass(frozen=True, kw_only=True)
class Overview:
    """The first screen. `hosts` has name, state and reason of each; `notes` the remarks, `unmeasured` what lacks."""

    verdict: Verdict
    headline: str
    about: str
    hosts: tuple[tuple[str, str, str], ...]
    drained: tuple[Drained, ...]
    lines: tuple[CaseLine, ...]
    notes: tuple[str, ...]
    unmeasured: tuple[str, ...]

    def count(self, state: str) -> int:
        """How many hosts are in a state."""
        return sum(each == state for _, each, _ in self.hosts)

    @property
    def badge(self) -> tuple[str, str]:
        """Tone and words of the verdict."""
        return BADGES[self.verdict]


def overview(runs: Sequence[LoadedRun], words: Words = ENGLISH) -> Overview:
    """The first screen of these runs together."""
    hosts = _hosts(runs)
    drained = tuple(_drained(runs, hosts, words))
    lines = [
        _line(run, case, f"run{at}-case{number}", words)
        for at, run in enumerate(runs, 1)
        for number, case in enumerate(run.record.cases, 1)
    ]
    order = list(Verdict)
    lines.sort(key=lambda line: -order.index(line.case.verdict))
    verdict = worst(run.record.verdict for run in runs)
    return Overview(
        verdict=verdict,
        headline=_headline(verdict, lines, (len({each.host for each in drained}), len(hosts)), words),
        about=_about(runs, len(hosts), words),
        hosts=tuple((name, *state) for name, state in hosts.items()),
        drained=drained,
        lines=tuple(lines),
        notes=tuple(_notes(runs)),
        unmeasured=tuple(_unmeasured(runs, words)),
    )


def _hosts(runs: Sequence[LoadedRun]) -> dict[str, tuple[str, str]]:
    """The worst state of each host over the runs, and its reason; hosts that were left out are lost."""
    found: dict[str, tuple[str, str]] = {}
    for run in runs:
        named: dict[str, HostRecord | None] = {host.name: host for host in run.record.hosts}
        for name, host in {**named, **dict.fromkeys(run.record.left_out.keys() - named)}.items():
            state = (host.state or "healthy", host.state_reason) if host else ("lost", run.record.left_out[name])
            if name not in found or STATES.index(state[0]) > STATES.index(found[name][0]):
                found[name] = state
    return found


def _drained(runs: Sequence[LoadedRun], hosts: Mapping[str, tuple[str, str]], words: Words) -> Iterator[Drained]:
    """The drain lists of the runs, then the lost hosts that none of them names."""
    seen = set()
    for run in runs:
        for each in run.record.drain:
            seen.add(each.host)
            state = hosts.get(each.host, ("degraded", ""))[0]
            first = each.evidence[0] if each.evidence else None
            yield Drained(
                host=each.host,
                state="lost" if state == "lost" else "degraded",
                part="" if first is None else first.device or first.part,
                evidence=words.reason(first.evidence if first is not None else (each.reasons or [""])[0]),
                action=words.reason(first.action) if first is not None else "",
                more=tuple(map(words.reason, each.reasons[1:])),
            )
    for name, (state, reason) in hosts.items():
        if state == "lost" and name not in seen:
            action = words("keep it out until it passes run.py check")
            yield Drained(host=name, state=state, part=words("host"), evidence=words.reason(reason), action=action)


def _headline(verdict: Verdict, lines: Sequence[CaseLine], out_of: tuple[int, int], words: Words) -> str:
    """The verdict as a sentence that begins with what to do; `out_of`: hosts to drain, and all hosts."""
    count = len(lines)
    failed = [line for line in lines if not line.case.verdict.is_measured]
    degraded = [line for line in lines if line.case.verdict is Verdict.DEGRADED]
    cases = words("{n} case", n=1) if count == 1 else words("{n} cases", n=count)
    passed = count - len(failed) - len(degraded)
    parts = [
        words("{n} of {cases} failed", n=len(failed), cases=cases) if failed else "",
        words("{n} of {cases} met a bad part of the cluster", n=len(degraded), cases=cases) if degraded else "",
        words("{n} of {total} passed", n=passed, total=count) if 0 < passed < count else "",
        words("all cases passed") if 0 < count == passed else "",
        "" if count else words("nothing was run"),
    ]
    what = _what_to_do(verdict, failed, degraded, out_of, words)
    if not what:
        return words("Nothing to do: {rest}.", rest=words("all cases passed")) if count else words("Nothing was run.")
    return words("{what}: {rest}.", what=what, rest=", ".join(filter(None, parts)))


def _what_to_do(
    verdict: Verdict, failed: Sequence[CaseLine], degraded: Sequence[CaseLine], out_of: tuple[int, int], words: Words
) -> str:
    """The first part of the sentence; "" if there is nothing to do."""
    drained, hosts = out_of
    if drained and hosts == 1:
        what = words("Take {n} of {total} host out of service", n=drained, total=hosts)
    elif drained:
        what = words("Take {n} of {total} hosts out of service", n=drained, total=hosts)
    elif len(failed) > 1:
        what = words("Look into {case} and {n} more", case=failed[0].case.name, n=len(failed) - 1)
    elif failed:
        what = words("Look into {case}", case=failed[0].case.name)
    elif degraded:
        what = words("Look at {case}: no host is to blame alone", case=degraded[0].case.name)
    elif verdict is not Verdict.PASS:
        what = words("Run it again, it was not finished")
    else:
        what = ""
    return what


def _about(runs: Sequence[LoadedRun], hosts: int, words: Words) -> str:
    began_ms = min(run.record.started_ms for run in runs)
    return " · ".join(
        [
            _few([run.record.run_id for run in runs], words),
            time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(began_ms / 1000)),
            _machines(runs, hosts, words),
            _amount(runs, words),
            _time_taken(runs, words),
            words("vendor {names}", names=", ".join(sorted({run.record.vendor for run in runs}))),
        ]
    )


def _machines(runs: Sequence[LoadedRun], hosts: int, words: Words) -> str:
    of_hosts: dict[str, int] = {}
    for host in (each for run in runs for each in run.record.hosts):  # one that was lost says nothing of its devices
        of_hosts[host.name] = max(len(host.devices), of_hosts.get(host.name, 0))
    devices = sum(of_hosts.values())
    found = words("{n} host", n=1) if hosts == 1 else words("{n} hosts", n=hosts)
    return f"{found}, {words('{n} devices', n=devices)}" if devices else found


def _amount(runs: Sequence[LoadedRun], words: Words) -> str:
    """How many cases and rounds there are."""
    every = [case for run in runs for case in run.record.cases]
    cases, rounds = len(every), sum(len(case.rounds) for case in every)
    told = words("{n} case", n=1) if cases == 1 else words("{n} cases", n=cases)
    return f"{told}, {words('{n} round', n=1) if rounds == 1 else words('{n} rounds', n=rounds)}"


def _time_taken(runs: Sequence[LoadedRun], words: Words) -> str:
    """The time of all runs together, without that between them."""
    taken_ms = sum(run.record.finished_ms - run.record.started_ms for run in runs)
    waits = [job.queue_seconds for run in runs for job in run.record.jobs if job.queue_seconds is not None]
    queued = f" {words('after {time} in the queue', time=duration(sum(waits)))}" if waits else ""
    return f"{duration(taken_ms / 1000)}{queued}"


def _few(names: Sequence[str], words: Words) -> str:
    """The first three names, and how many more."""
    more = len(names) - 3
    return ", ".join(names[:3]) + (f" {words('and {n} more', n=more)}" if more > 0 else "")


def duration(seconds: float) -> str:
    """Seconds as s, min or h and min, for people."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def joules_text(joules: float) -> str:
    """Joules as J, kJ, MJ or GJ, for people."""
    for unit in ("J", "kJ", "MJ"):
        if joules < 1000:
            return f"{joules:.3g} {unit}"
        joules /= 1000
    return f"{joules:.4g} GJ"


def energy_of(case: CaseRecord) -> tuple[float, str] | None:
    """Joules of a round's measured work and by which meters: that of whole hosts, else all parts together."""
    whole = next((meter for meter in WHOLE_METERS if meter in case.joules), None)
    if whole is not None:
        return case.joules[whole], whole
    return (sum(case.joules.values()), " + ".join(case.joules)) if case.joules else None


def _line(run: LoadedRun, case: CaseRecord, anchor: str, words: Words) -> CaseLine:
    energy = energy_of(case)
    percent = None if case.key is None else case.key.percent_of_expected
    is_below = any(not each.met for each in case.expectations) or (case.baseline is not None and case.baseline.is_below)
    return CaseLine(
        anchor=anchor,
        run=run,
        case=case,
        reason="" if case.verdict is Verdict.PASS else shortened(words.reason(case.reason), REASON_CHARACTERS),
        spread=_spread([] if case.key is None else case.key.of_rounds, words),
        percent=percent,
        tone="bad" if is_below else "warn" if case.verdict is not Verdict.PASS else "good",
        energy="–" if energy is None else joules_text(energy[0]),
        energy_of=words("no power meter of all hosts")
        if energy is None
        else words("a round, by {meters}", meters=energy[1]),
    )


def _spread(values: Sequence[float], words: Words) -> str:
    """Half the range of the rounds in percent of their median."""
    middle = median(values) if values else 0.0
    if len(values) < 2 or not middle:
        return words("{n} round", n=1) if values else ""
    return f"± {50 * (max(values) - min(values)) / abs(middle):.2g} %"


def _notes(runs: Sequence[LoadedRun]) -> Iterator[str]:
    for run in runs:
        for case in run.record.cases:
            yield from (f"{case.name}: {text}" for text in (*case.warnings, *case.remarks))


def _unmeasured(runs: Sequence[LoadedRun], words: Words) -> Iterator[str]:
    """The observations and measurements that failed, each once with the hosts that lack it."""
    found: dict[str, set[str]] = {}
    for record in (each for run in runs for rounds in run.rounds.values() for each in rounds):
        for text in record.integrity.unwatched if record.integrity else ():
            found.setdefault(text, set())
        for host, text in _lacking(record, words):
            found.setdefault(text, set()).add(host)
    for text, hosts in found.items():
        yield f"{text} ({_few(sorted(hosts), words)})" if hosts else text


def _lacking(record: RoundRecord, words: Words) -> Iterator[tuple[str, str]]:
    for node in record.nodes:
        lacks = node.monitor.get("unavailable") if node.monitor else None
        if node.monitor is None:
            yield node.host, words("no monitor record")
        for source, why in lacks.items() if isinstance(lacks, dict) else ():
            yield node.host, f"{source}: {why}"
