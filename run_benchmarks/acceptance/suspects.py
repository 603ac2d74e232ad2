"""Finds the suspects of a rung's run: hosts to drain by its findings, hosts that failed, devices behind their peers.

Devices are compared with the median of all devices of the run in the same test (`common.statistics.behind`). Where its
datasheet is known, one is a suspect below FLOORS, too, which every sound device exceeds.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat
from statistics import median
from types import MappingProxyType
from typing import Literal

from common.shortening import few
from common.statistics import FEWEST_PEERS, behind, scatter
from protocol.finding import PartFinding
from run_benchmarks.acceptance.kinds import identities_of, kinds_of
from run_benchmarks.acceptance.records import Levels, Usual, is_figure, shortfall
from run_benchmarks.acceptance.rungs import DATA_TESTS
from run_benchmarks.acceptance.stalls import stalls_of_nobody
from run_benchmarks.results.loading import LoadedRun
from run_benchmarks.results.records import RoundRecord
from training.benchmarks.tools.table import TOOLS

FLOORS: Mapping[str, float] = {"matmul_bf16": 50.0, "memory": 70.0, "memory_capacity": 85.0}
"""Percent of the datasheet; docs/reference/training-benchmarks.md gives the reasons."""
CEILING = 105.0
"""Percent of the datasheet that no sound device exceeds."""
DISK_LIMIT = 30.0
"""Percent that a disk may be behind: the same model differs more than devices do, as it fills and ages."""
OWN_LIMIT = 70.0
"""Percent that a pair of devices may be behind others of its host: links of other kinds differ less."""
OF_HOST = {
    "host_matmul": "look for other programs, power limits and a CPU that is held at a low clock",
    "host_memory": "look for a missing memory module and other programs",
    "disk_write": "look at the disk of the results' folder: SMART, controller, free space, mount options",
    "disk_read": "look at the disk of the results' folder: SMART, controller, mount options",
    "data_write": "look at the disk or mount of the data: SMART, network, mount options",
    "data_read": "look at the disk or mount of the data: SMART, network, read-ahead",
}
"""Tests whose figure is the host's and no device's, each with what to do about a slow one."""
OF_DISKS = ("disk_", "data_")
"""How the names of those of disks and of data begin."""
MOST_TIMES = 10
"""How many times the median of its peers the figure of a device may be, of those that are alike."""
FEWEST_OF_PAIRS = 3
"""Hosts of a tool between two of them, from which on a figure is a host's own: the best of its two neighbours."""
SHOWN_PAIRS = 4
"""Of devices, of one sentence."""
UNLIKE = "different_results"
NOT_RUN = "not run: "
"""Before the evidence of a tool that was not run, which names its hosts."""
PROOFS = {UNLIKE, "lost", "memory_errors"}
"""Kinds of findings that are no matter of chance: to see one once suffices."""
NO_LEVELS: Levels = MappingProxyType({})
Suspects = dict[str, list[str]]
_DEVICE = re.compile(r"(?:\w+: )?(device|accelerator) (\d{1,4})(?: to (\d{1,4}))?(?:: |$)")
"""The beginning of a sentence on one device of a host, or on two; or the name of one."""


class OfDevice(str):
    """Evidence that is of one device of a host, or of a pair. devices: what these keep when they get other numbers."""

    __slots__ = ("devices",)
    devices: frozenset[str]


def suspects_of(run: LoadedRun, limit: float, usual: Levels = NO_LEVELS) -> Suspects:
    """Hosts with the evidence against each, in words; `limit` in percent; `usual`: recorded figures."""
    found: Suspects = {}
    for entry in run.record.drain:
        own = found.setdefault(entry.host, [])
        for said, proof in zip(entry.reasons, chain(entry.evidence, repeat(None)), strict=False):
            own.append(_of_device(run, proof.case, entry.host, said, proof.device) if proof else said)
    for host, reason in run.record.left_out.items():
        found.setdefault(host, []).append(reason)
    for case, rounds in run.rounds.items():
        kinds = kinds_of(run, case)
        for record in rounds:
            for host, said in [*_failed(case, record), *slow_devices(record, limit, usual, kinds)]:
                if (whole := _of_device(run, case, host, said, said)) not in found.setdefault(host, []):
                    found[host].append(whole)
    return {host: said for host, said in found.items() if said}


def _of_device(run: LoadedRun, case: str, host: str, said: str, name: str) -> str:
    """Evidence with the identity of the devices that `name` begins with, where they are known."""
    kind, *numbers = match.groups() if (match := _DEVICE.match(name)) else ("",)
    named = identities_of(run, case).get(host, {})
    known = [named.get(f"{kind} {int(number)}", "") for number in numbers if number]
    if not known or not all(known):
        return said
    found = OfDevice(f"{said} ({' to '.join(known)})")
    found.devices = frozenset(known)
    return found


def proven(run: LoadedRun) -> set[str]:
    """Hosts with a finding that needs no second occasion: a wrong bit may not come again for days."""
    return {entry.host for entry in run.record.drain if any(each.kind in PROOFS for each in entry.evidence)}


def unattributed(run: LoadedRun) -> list[PartFinding]:
    """The faults of which no host is known to be guilty, such as a bad link or rack, and that may not come again; and
    stalls of which it is not known whose they are: many are a fault, few a warning.
    """
    faults = [each for each in _of_nobody(run) if each.severity == "fault" and each.kind != UNLIKE]
    return [*faults, *stalls_of_nobody(run)]


def unlike(run: LoadedRun) -> list[str]:
    """A sentence on each group of devices whose bits differ, where nobody knows which of them are wrong."""
    return [each.sentence for each in _of_nobody(run) if each.kind == UNLIKE]


def _of_nobody(run: LoadedRun) -> list[PartFinding]:
    found = (each for records in run.rounds.values() for record in records for each in record.findings)
    nobodys = (each for each in found if not each.drained_hosts and each.kind != "not_run")
    return list({each.sentence: each for each in nobodys}.values())


def _failed(case: str, record: RoundRecord) -> Iterator[tuple[str, str]]:
    first = record.first_failure
    bad = [(step, step["bad_ranks"]) for step in record.steps if isinstance(step.get("bad_ranks"), dict)]
    if any(ranks for _, ranks in bad):  # all ranks end with an error, and any of them may be the first
        for step, rank, why in ((step, rank, why) for step, ranks in bad for rank, why in ranks.items()):
            for node in record.nodes:
                if str(rank).isdecimal() and int(rank) in node.ranks:
                    yield node.host, f"{case}: {_wrong(record, step, int(rank), str(why)[:300])}"
    elif record.verdict.is_failure and first is not None and first.host:
        yield first.host, f"{case}: {record.verdict}: {record.reason[:300]}"


def _wrong(record: RoundRecord, step: Mapping[str, object], rank: int, why: str) -> str:
    """A sentence on a rank's device; in a test of hosts on the host, or its disk, in the same words for each rank."""
    test = str(step.get("test"))
    if test not in OF_HOST:
        return f"device {_local(record, rank)}: {why}"
    model = _disk_of(step, rank)
    action = OF_HOST[test] if why != "wrong result" or test.startswith(OF_DISKS) else ""
    return ": ".join(filter(None, [f"{test}{f' on {model}' if model else ''}", why, action]))


def _disk_of(step: Mapping[str, object], rank: int) -> str:
    """The model of the disk that a rank tested; empty where the host did not tell it."""
    models, places = step.get("disk_models"), step.get("disk_model_of_ranks")
    if not isinstance(models, list):
        return ""
    of_ranks = places if isinstance(places, list) else [0] * (rank + 1) if places is None else []
    place = of_ranks[rank] if rank < len(of_ranks) else None
    return str(models[place])[:80] if isinstance(place, int) and 0 <= place < len(models) else ""


def usual_of(run: LoadedRun, without: Container[str], usual: Levels = NO_LEVELS) -> dict[str, dict[str, Usual]]:
    """The results of the devices of a run by kind of hosts and test, without those of some hosts, and without tests in
    which datasheet and peers disagree and `usual` does not judge instead: they are to be expected of nobody.
    """
    found: dict[str, dict[str, Usual]] = {}
    for case, records in run.rounds.items():
        kinds = kinds_of(run, case)
        for record in records:
            for kind, test, unit, values in _good_values(record, kinds, without, usual):
                _learn(found, kind, test, unit, values)
    return found


def _good_values(
    record: RoundRecord, kinds: Mapping[str, str], without: Container[str], usual: Levels
) -> Iterator[tuple[str, str, str, list[float]]]:
    """Kind of hosts, test, unit, and the results in a round without those of some hosts."""
    good = {rank for node in record.nodes if node.host not in without for rank in node.ranks}
    for figure in (each for each in _figures(record) if each.count >= each.fewest):
        for kind, part in _by_kind(figure, record, kinds).items():
            if _known(usual, kind, part, figure.count) is not None or not _is_contradicted(part, record):
                yield kind, figure.key, figure.unit, _present(part, good)
    for step in record.steps:
        for (kind, pair), measured in _pairs(record, step, kinds).items():
            own = [value for host, value in measured if host not in without]
            yield kind, _of_pair(step, pair), str(step.get("unit")), own


def _present(figure: _Figure, ranks: Container[int]) -> list[float]:
    return [value for rank, value in enumerate(figure.values) if rank in ranks and value is not None]


def _learn(levels: dict[str, dict[str, Usual]], kind: str, test: str, unit: str, values: list[float]) -> None:
    if values:
        level = Usual(unit=unit, median=median(values), scatter=scatter(values), devices=len(values))
        levels.setdefault(kind, {})[test] = level


@dataclass(frozen=True, kw_only=True)
class _Figure:
    """A test's results by rank, None where one has none. is_judged: the benchmark compared the peers by itself.
    nonsense: by rank, what was sent instead of a result. key: the test, of data with its file system. fewest: results
    from which on it tells of each host by itself, so that those of other runs are like it. is_vain: most results of the
    whole test are none: then it proves nothing, and nobody is to blame.
    """

    test: str
    key: str
    unit: str
    better: Literal["higher", "lower"]
    values: list[float | None]
    promised: float | None
    is_judged: bool
    nonsense: dict[int, str]
    fewest: float
    is_vain: bool = False

    @property
    def count(self) -> int:
        """How many results there are."""
        return sum(value is not None for value in self.values)


def _figures(record: RoundRecord) -> Iterator[_Figure]:
    """Of each step, or of its `figures`; a host may have sent anything."""
    for step in record.steps:
        parts = step.get("figures")
        for part in parts if isinstance(parts, list) else [step]:
            values = part.get("values_of_ranks") if isinstance(part, dict) else None
            if isinstance(values, list):
                promised, test = part.get("datasheet"), str(part.get("test"))
                figure = _Figure(
                    test=test,
                    key=f"{test} of {str(part.get('file_system'))[:200]}" if test in DATA_TESTS else test,
                    unit=str(part.get("unit")),
                    better="lower" if part.get("better") == "lower" else "higher",
                    values=[float(value) if is_figure(value) else None for value in values],
                    promised=float(promised) if is_figure(promised) else None,
                    is_judged=part is not step,
                    nonsense={
                        rank: repr(value)[:40]
                        for rank, value in enumerate(values)
                        if value is not None and not is_figure(value)
                    },
                    fewest=1 if part is step else _fewest(str(step.get("tool"))),
                )
                yield from _by_disk(figure, part)


def _by_disk(figure: _Figure, part: Mapping[str, object]) -> Iterator[_Figure]:
    """Of a test of disks the figure of each model by itself: two models are of two speeds; of others the figure."""
    is_vain = 2 * len(figure.nonsense) >= figure.count + len(figure.nonsense) > 0
    figure = replace(figure, is_vain=is_vain)
    told, of_ranks = part.get("disk_models"), part.get("disk_model_of_ranks")
    models = [str(model)[:80] for model in told] if isinstance(told, list) else [""]
    places = of_ranks if isinstance(of_ranks, list) and len(models) > 1 else [0] * len(figure.values)
    if len(places) != len(figure.values) or not all(at in range(len(models)) for at in places):
        yield figure
        return
    for place, model in enumerate(models):
        own = [value if at == place else None for value, at in zip(figure.values, places, strict=True)]
        nonsense = {rank: sent for rank, sent in figure.nonsense.items() if places[rank] == place}
        key = f"{figure.key} on {model}" if model else figure.key
        yield replace(figure, key=key, values=own, nonsense=nonsense)


def _fewest(tool: str) -> float:
    """`fewest` of a _Figure: infinite for NCCL Inspector, whose times depend on how many hosts take part."""
    if tool not in TOOLS:
        return math.inf
    return FEWEST_OF_PAIRS if TOOLS[tool].scope in ("pairs", "ring") else 1


def slow_devices(
    record: RoundRecord,
    limit: float,
    usual: Levels = NO_LEVELS,
    kinds: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[tuple[str, str]]:
    """Host and evidence of each device that is behind its peers, or what was `usual`, by more than `limit` percent, or
    below FLOORS. kinds: of hosts, each compared by itself.
    """
    for figure in _figures(record):
        if not figure.is_vain:
            parts = _by_kind(figure, record, kinds)
            found: dict[int, str] = {}
            for kind, part in parts.items():
                found |= _slow_ranks(part, record, limit, _known(usual, kind, part, figure.count))
            yield from _accused(figure, record, found)
    for step in record.steps:
        yield from _slow_pairs(record, step, limit, usual, kinds)


def _accused(figure: _Figure, record: RoundRecord, found: Mapping[int, str]) -> Iterator[tuple[str, str]]:
    """Host and evidence of the ranks that sent no result, and of those `found`: of a test of hosts once for each."""
    hosts = {rank: node.host for node in record.nodes for rank in node.ranks}
    for rank, sent in figure.nonsense.items():
        if rank in hosts:
            part = "" if figure.is_judged or figure.test in OF_HOST else f"device {_local(record, rank)}: "
            yield hosts[rank], f"{part}{figure.test}: sent {sent}, which is no result"
    values = {rank: figure.values[rank] or 0.0 for rank in found if rank in hosts}
    slowest = {hosts[rank]: rank for rank in sorted(values, key=lambda rank: -values[rank])}
    for rank, value in values.items():
        said = f"{figure.test} {value:.4g} {figure.unit}, {found[rank]}"
        if figure.is_judged:
            yield hosts[rank], said
        elif figure.test not in OF_HOST:
            yield hosts[rank], f"device {_local(record, rank)}: {said}"
        elif slowest[hosts[rank]] == rank:
            yield hosts[rank], f"{said}: {OF_HOST[figure.test]}"


def _by_kind(figure: _Figure, record: RoundRecord, kinds: Mapping[str, str]) -> dict[str, _Figure]:
    """By kind of host the figure with the results of that kind alone; the datasheet is that of rank 0's kind."""
    kind_of = {rank: kinds.get(node.host, "") for node in record.nodes for rank in node.ranks}
    if len({*kind_of.values()}) <= 1:
        return {next(iter(kind_of.values()), ""): figure}
    first = kind_of.get(0)
    found = {}
    for kind in dict.fromkeys(kind_of.values()):
        own = [value if kind_of.get(rank) == kind else None for rank, value in enumerate(figure.values)]
        found[kind] = replace(figure, values=own, promised=figure.promised if kind == first else None)
    return found


def _known(usual: Levels, kind: str, figure: _Figure, count: int) -> Usual | None:
    """The recorded level of a test on hosts of a kind; of data that hosts share not, if fewer of them read it then.
    count: results of the hosts of all kinds.
    """
    then = usual.get(kind, {}).get(figure.key)
    if then is None or then.unit != figure.unit or count < figure.fewest:
        return None
    return None if figure.test in DATA_TESTS and count > then.devices else then


def unjudged(run: LoadedRun, usual: Levels) -> list[str]:
    """A sentence on each kind of host of which too few devices were tested to compare them with each other, or too few
    hosts to compare their pairs of devices, and no datasheet and no earlier acceptance says what to expect.
    """
    tests: dict[tuple[str, int, str], dict[str, None]] = {}
    for kind, count, what, test in [*_few_devices(run, usual), *_few_pairs(run, usual)]:
        tests.setdefault((kind, count, what), {})[test] = None
    return [
        f"{', '.join(found)}: measured, not judged: {FEWEST_PEERS} {what} alike are compared, there are {count}"
        + (f" of {kind}" if kind else "")
        for (kind, count, what), found in tests.items()
    ]


def _few_devices(run: LoadedRun, usual: Levels) -> Iterator[tuple[str, int, str, str]]:
    for figure, record, kinds in _figures_of(run):
        for kind, part in _by_kind(figure, record, kinds).items():
            is_known = _known(usual, kind, part, figure.count) or (figure.test in FLOORS and part.promised)
            if 0 < part.count < FEWEST_PEERS and not is_known:
                yield kind, part.count, "devices", figure.key


def _few_pairs(run: LoadedRun, usual: Levels) -> Iterator[tuple[str, int, str, str]]:
    for case, records in run.rounds.items():
        for record, step in ((each, step) for each in records for step in each.steps):
            pairs = _pairs(record, step, kinds_of(run, case))
            of_hosts, test = _by_host(pairs), str(step.get("test"))[:100]
            by_count: dict[tuple[str, int], list[tuple[str, bool]]] = {}
            for (kind, pair), measured in pairs.items():
                if len(measured) < FEWEST_PEERS and _of_pair(step, pair) not in usual.get(kind, {}):
                    is_accused = any(_beside_others(of_hosts[host], pair) for host, _ in measured)
                    by_count.setdefault((kind, len(measured)), []).append((_between(pair), is_accused))
            for (kind, count), told in by_count.items():
                accused = [pair for pair, is_accused in told if is_accused]
                if len(accused) < len(told):
                    said = f"{test} of each pair"
                    if accused:
                        said = f"{test} of each pair but {few(accused, SHOWN_PAIRS)} of devices"
                    yield kind, count, "hosts", said


def not_against(run: LoadedRun, usual: Levels) -> list[str]:
    """A sentence on the tests, with the kind of hosts, of which an earlier acceptance has no figures that count."""
    lacking: dict[str, dict[str, None]] = {}
    for figure, record, kinds in _figures_of(run):
        for kind, part in _by_kind(figure, record, kinds).items():
            if usual and part.count and _known(usual, kind, part, figure.count) is None:
                lacking.setdefault(kind, {})[figure.key] = None
    said = (f"{', '.join(tests)}{f' of {kind}' if kind else ''}" for kind, tests in lacking.items())
    return [f"--against: not compared, it has no figures that count of {told}"[:300] for told in said]


def _slow_ranks(figure: _Figure, record: RoundRecord, limit: float, usual: Usual | None) -> dict[int, str]:
    """By rank, how far its figure is behind its peers, what was usual, and the datasheet."""
    most = max(limit, DISK_LIMIT) if figure.test.startswith(OF_DISKS) else limit
    slower = {} if figure.is_judged else behind(figure.values, most, figure.better)
    found = {rank: f"{percent:.0f} % below its peers' median" for rank, percent in slower.items()}
    if not figure.is_judged and figure.test not in OF_HOST:
        found |= _unbelievable(figure)
    if usual is not None:
        found |= _unusual(figure.values, figure.better, most, usual)
    return found if _is_contradicted(figure, record) else found | _below_datasheet(figure)


def _unbelievable(figure: _Figure) -> dict[int, str]:
    """By rank, how many times as good as its peers one is that no device can be."""
    present = [value for value in figure.values if value is not None]
    if len(present) < FEWEST_PEERS:
        return {}
    middle = median(present)
    times = {rank: value / middle for rank, value in enumerate(figure.values) if value is not None}
    return {rank: f"{by:.3g} times its peers' median" for rank, by in times.items() if by > MOST_TIMES}


def _pairs(
    record: RoundRecord, step: Mapping[str, object], kinds: Mapping[str, str]
) -> dict[tuple[str, tuple[int, int]], list[tuple[str, float]]]:
    """By kind of host and pair of its devices, host and result."""
    found, pairs = step.get("peers_of_ranks"), dict[tuple[str, tuple[int, int]], list[tuple[str, float]]]()
    rows = found if isinstance(found, list) else []
    for node in record.nodes:
        for place, rank in enumerate(node.ranks):
            row = rows[rank] if rank < len(rows) else None
            for peer, value in enumerate(row) if isinstance(row, list) else ():
                if is_figure(value):
                    own = kinds.get(node.host, ""), (place, peer)
                    pairs.setdefault(own, []).append((node.host, float(value)))
    return pairs


def _of_pair(step: Mapping[str, object], pair: tuple[int, int]) -> str:
    return f"{step.get('test')} {_between(pair)}"


def _between(pair: tuple[int, int]) -> str:
    return " ".join((str(pair[0]), "to", str(pair[1])))


def _slow_pairs(
    record: RoundRecord, step: Mapping[str, object], limit: float, usual: Levels, kinds: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Pairs of devices of a host that copy more slowly than the same pair of other hosts, of which there are enough, or
    of accepted ones, or, beside few hosts, far more slowly than over other devices of the host.

    Two pairs of one host may differ by its topology; the same pair of two hosts of a kind does not.
    """
    unit, pairs = str(step.get("unit")), _pairs(record, step, kinds)
    of_hosts = _by_host(pairs)
    for (kind, pair), measured in pairs.items():
        values, then = [value for _, value in measured], usual.get(kind, {}).get(_of_pair(step, pair))
        slower = behind(values, limit)
        alone = measured if len(measured) < FEWEST_PEERS else []
        found = {place: why for place, (host, _) in enumerate(alone) if (why := _beside_others(of_hosts[host], pair))}
        found |= {place: f"{percent:.0f} % below the same pair of its peers" for place, percent in slower.items()}
        if then is not None and then.unit == unit:
            found |= _unusual(values, "higher", limit, then)
        for place, why in found.items():
            host, value = measured[place]
            yield host, f"device {pair[0]} to {pair[1]}: {value:.4g} {unit}, {why}: look at their link"


def _by_host(
    pairs: Mapping[tuple[str, tuple[int, int]], list[tuple[str, float]]],
) -> dict[str, dict[tuple[int, int], float]]:
    """By host the results of its pairs of devices."""
    found: dict[str, dict[tuple[int, int], float]] = {}
    for (_, pair), measured in pairs.items():
        for host, value in measured:
            found.setdefault(host, {})[pair] = value
    return found


def _beside_others(pairs: Mapping[tuple[int, int], float], pair: tuple[int, int]) -> str:
    """How far a pair is below what most other devices of the host would pass on from one to the other, if that is more
    than OWN_LIMIT: of a tree of links and a switch none is, nor one of many pairs without a link.
    """
    first, last = pair
    over = [
        min(rate, pairs[middle, last])
        for (one, middle), rate in pairs.items()
        if one == first and (middle, last) in pairs
    ]
    if len(over) < FEWEST_PEERS - 1 or 100 * (1 - pairs[pair] / median(over)) <= OWN_LIMIT:
        return ""
    return f"{100 * (1 - pairs[pair] / median(over)):.0f} % below most others of its devices"


def not_run_in(run: LoadedRun) -> list[str]:
    """The tests of a run that no host made, with the reason, the tools that a host lacks, and what devices do not tell,
    each once.
    """
    records = [record for records in run.rounds.values() for record in records]
    steps = [step for record in records for step in record.steps]
    said = [f"{step.get('test')}: {step['not_run']}"[:300] for step in steps if isinstance(step.get("not_run"), str)]
    said += _alone(steps)
    said += [sentence for record in records for sentence in _not_judged(record)]
    unseen = [each for record in records for each in record.findings if each.kind == "not_run"]
    told = (each.evidence if each.evidence.startswith(NOT_RUN) else each.sentence for each in unseen)
    said += [sentence.removeprefix(NOT_RUN)[:300] for sentence in told]
    return list(dict.fromkeys(said))


def _not_judged(record: RoundRecord) -> list[str]:
    """Sentences on the hosts and pairs that a search of slow parts does not judge."""
    found = record.metrics.get("not_judged")
    return [str(each)[:300] for each in found] if isinstance(found, list) else []


def _alone(steps: Iterable[Mapping[str, object]]) -> Iterator[str]:
    """A sentence on the tests whose bits devices alone of their kind compared with nobody's."""
    alone: dict[int, dict[str, None]] = {}
    for step in steps:
        count = step.get("not_compared")
        if isinstance(count, int) and count > 0:
            alone.setdefault(count, {})[str(step.get("test"))[:100]] = None
    for count, tests in alone.items():
        yield f"{', '.join(tests)}: the bits of {_devices(count)} of its kind"[:300]


def _devices(count: int) -> str:
    if count == 1:
        return "one device were compared with none: it is alone"
    return f"{count} devices were compared with none: each is alone"


def without_result(run: LoadedRun) -> list[str]:
    """The tools of others that are there and gave no result, of all or of one device, and no host is to blame: nothing
    was tested by them.
    """
    steps = [(record, step) for records in run.rounds.values() for record in records for step in record.steps]
    return [
        f"{str(step.get('tool'))[:100]}{device} gave no result on {silent} of {len(record.nodes)} hosts"
        for record, step in steps
        for device, silent in [("", _silent_hosts(record, step)), *_silent_devices(record, step).items()]
        if silent
    ]


def _silent_devices(record: RoundRecord, step: Mapping[str, object]) -> dict[str, int]:
    """By device that has no figure on any host, on how many there is none, though others have it, too."""
    silent = step.get("silent")
    told = silent if isinstance(silent, dict) else {}
    own = [told.get(str(rank)) for node in record.nodes for rank in node.ranks]
    counted = Counter(str(device)[:100] for each in own if isinstance(each, dict) for device in each)
    figures = step.get("figures")
    measured = (
        {str(each.get("test")) for each in figures if isinstance(each, dict)} if isinstance(figures, list) else ()
    )
    least = min(2, len(record.nodes))  # one that no other host has meets nobody
    return {
        f" {device}": count
        for device, count in counted.items()
        if count >= least and f"{step.get('tool')} {device}" not in measured
    }


def _silent_hosts(record: RoundRecord, step: Mapping[str, object]) -> int:
    """How many hosts gave no result though the tool is there; none where most did, as its benchmark accuses them."""
    why = step.get("not_run")
    told = why if isinstance(why, dict) else {}
    said = [told.get(str(rank)) for node in record.nodes for rank in node.ranks]
    if 2 * sum(each is not None for each in said) < len(said):
        return 0
    return sum(isinstance(each, dict) and each.get("is_missing") is False for each in said)


def _below_datasheet(figure: _Figure) -> dict[int, str]:
    """By rank, the share of the datasheet of those below FLOORS."""
    if figure.test not in FLOORS or figure.promised is None:
        return {}
    shares = {rank: 100 * value / figure.promised for rank, value in enumerate(figure.values) if value is not None}
    least = FLOORS[figure.test]
    return {
        rank: f"{percent:.0f} % of its datasheet, {least:g} % is the least"
        for rank, percent in shares.items()
        if percent < least
    }


def _is_contradicted(figure: _Figure, record: RoundRecord) -> bool:
    """Whether most devices of two or more hosts are below the floor: what all have is no fault of one."""
    ranks = {rank for rank, value in enumerate(figure.values) if value is not None}
    hosts = sum(not ranks.isdisjoint(node.ranks) for node in record.nodes)
    return hosts > 1 and 2 * len(_below_datasheet(figure)) > len(ranks)


def in_vain(run: LoadedRun) -> list[str]:
    """The tests of which most devices sent no result: nothing was tested by them."""
    records = (record for records in run.rounds.values() for record in records)
    vain = [figure for record in records for figure in _figures(record) if figure.is_vain and figure.nonsense]
    return [
        f"{figure.key}: {len(figure.nonsense)} of {figure.count + len(figure.nonsense)} devices sent no result"
        for figure in vain
    ]


def against_datasheet(run: LoadedRun, usual: Levels = NO_LEVELS) -> list[str]:
    """The tests in which datasheet and peers disagree: most devices are below its floor, no host is accused, and no
    earlier acceptance says what is usual.
    """
    return [said for said, is_known in _below_floor(run, usual) if not is_known]


def beside_datasheet(run: LoadedRun, usual: Levels) -> list[str]:
    """The tests of such a datasheet where `usual` judges instead, and those whose devices are better than it."""
    found = [said for said, is_known in _below_floor(run, usual) if is_known]
    for figure in (part for each, record, kinds in _figures_of(run) for part in _by_kind(each, record, kinds).values()):
        values = [value for value in figure.values if value is not None]
        if figure.test not in FLOORS or figure.promised is None or not values:
            continue
        percent = 100 * median(values) / figure.promised
        if percent > CEILING:
            found.append(
                f"{figure.test}: the median is {percent:.0f} % of the datasheet's {figure.promised:g} {figure.unit}:"
                " it disagrees with the peers, and judges less than it could; look whether it is of these devices"
            )
    return found


def _below_floor(run: LoadedRun, usual: Levels) -> Iterator[tuple[str, bool]]:
    """A sentence on each test that most devices of several hosts of a kind miss, and whether `usual` has what counts
    instead.
    """
    for whole, record, kinds in _figures_of(run):
        for kind, part in _by_kind(whole, record, kinds).items():
            if _is_contradicted(part, record):
                yield (
                    f"{part.test}: {len(_below_datasheet(part))} of {part.count} devices are below"
                    f" {FLOORS[part.test]:g} % of the datasheet's {part.promised:g} {part.unit}: it disagrees with the"
                    " peers, so no host is accused; look at clocks, power limits and driver",
                    _known(usual, kind, part, whole.count) is not None,
                )


def _figures_of(run: LoadedRun) -> Iterator[tuple[_Figure, RoundRecord, Mapping[str, str]]]:
    for case, records in run.rounds.items():
        kinds = kinds_of(run, case)
        for record in records:
            for figure in _figures(record):
                yield figure, record, kinds


def _unusual(
    values: Sequence[float | None], better: Literal["higher", "lower"], limit: float, then: Usual
) -> dict[int, str]:
    """By place, how much worse than what was recorded of accepted devices."""
    present = {place: value for place, value in enumerate(values) if value is not None}
    percent = {place: f"{by:.0f}" for place, by in shortfall(present, better, limit, then).items()}
    if better == "higher":
        return {place: f"{by} % below {then.devices} accepted ones" for place, by in percent.items()}
    return {place: f"{by} % above {then.devices} accepted ones" for place, by in percent.items()}


def _local(record: RoundRecord, rank: int) -> int:
    """The number of a rank's device on its host."""
    return next(node.ranks.index(rank) for node in record.nodes if rank in node.ranks)


def agreed(first: Mapping[str, list[str]], second: Mapping[str, list[str]]) -> tuple[Suspects, Suspects]:
    """Suspects of two occasions that both name, with the evidence of both; and those that only one names, or of which
    each accuses other devices, with what there is.
    """
    both: Suspects = {}
    once: Suspects = {}
    for host in {**first, **second}:
        said, again = first.get(host, []), second.get(host, [])
        if said and again and _are_of_one_part(said, again):
            both[host] = [*said, *(f"again: {each}" for each in again)]
        else:
            once[host] = [*said, *again]
    return both, once


def _are_of_one_part(said: Sequence[str], again: Sequence[str]) -> bool:
    """Whether one of the two is of the whole host, or both are of the same device, alone or in a pair."""
    one, other = (
        {device for each in side for device in (each.devices if isinstance(each, OfDevice) else ("",))}
        for side in (said, again)
    )
    return "" in one | other or not one.isdisjoint(other)
