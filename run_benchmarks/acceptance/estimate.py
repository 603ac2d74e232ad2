"""Estimates how long the rungs take, from earlier acceptances where there are some, and says how right that was."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from pydantic import ValidationError

from common.reading import read_bounded
from run_benchmarks.acceptance.records import ACCEPT_FILE, AcceptRecord, RungRecord
from run_benchmarks.acceptance.rungs import ALL_PAIRS, FEWEST, HEALTH, NETWORK, NO_OTHERS, PAIR_REPEATS, Others
from run_benchmarks.console.language import words
from run_benchmarks.results.records import MAX_RECORD_BYTES

EARLIER = 20
"""Acceptances that are looked at, the newest first."""
_STARTS, _ROUND, _PAIR_S, _HEALTH_S = 6.0, 1.0, {"cpu": 2.0}, 15.0
_RUN_S = {"cpu": 60.0}
_START_S = 15.0
"""Of a run, whatever it does."""
_DEVICES_RUN_S, _DEVICES_PAIR_S = 300.0, 5.0


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Seconds of a rung on hosts that are all good, tools_seconds of them by tools of others; source: an acceptance's
    id, or that it is a plain estimate.
    """

    seconds: float
    source: str
    tools_seconds: float = 0.0


def estimates(
    rungs: Sequence[str],
    vendor: str,
    hosts: int,
    nproc: int,
    earlier: Sequence[AcceptRecord],
    tools: Mapping[str, Others] = MappingProxyType({}),
) -> dict[str, Estimate]:
    """By rung for which the hosts suffice its seconds: those of the newest of the `earlier` acceptances of such devices
    in which it passed, scaled to the number of hosts; else from what a run of the vendor's usually takes.

    The tools of others are counted as that acceptance measured them, if it called the same, else as they usually take.
    """
    alike = [record for record in earlier if (record.vendor, record.nproc) == (vendor, nproc)]
    found = {}
    for rung in (each for each in rungs if hosts >= FEWEST[each]):
        then = next(((record, each) for record in alike for each in record.rungs if _counts(each, rung)), None)
        others = _of_tools(tools.get(rung, NO_OTHERS), vendor)
        if then is None:
            seconds, source = _usual(rung, vendor, hosts), "estimate"
        else:
            record, each = then
            own = each.seconds - each.soak_seconds - each.tools_seconds - each.again_seconds
            seconds, source = own * _work(rung, hosts) / _work(rung, len(each.hosts)), record.accept_id
            if rung in tools and each.tools == tools[rung].calls:
                others = each.tools_seconds
        found[rung] = Estimate(seconds=seconds + others, source=source, tools_seconds=others)
    return found


def earlier_ones(root: Path) -> list[AcceptRecord]:
    """The records of the acceptances in a folder of results, the newest first; one that cannot be read is no help."""
    found = []
    for path in sorted(root.glob(f"accept*/{ACCEPT_FILE}"), reverse=True)[:EARLIER]:
        try:
            found.append(AcceptRecord.model_validate_json(read_bounded(path, MAX_RECORD_BYTES)))
        except (OSError, ValidationError):
            continue
    return found


def in_words(found: dict[str, Estimate], hosts: int, budget_s: float) -> str:
    """The whole time, that of each rung with its source, and whether the budget may not suffice."""
    total = sum(each.seconds for each in found.values())
    parts = ", ".join(f"{rung} {about(each.seconds)} ({_how(each)})" for rung, each in found.items())
    over = []
    if total > budget_s:
        said = "the budget of {time} may not suffice"
        if any(rung != HEALTH for rung in found):
            said = "the budget of {time} may not suffice: rungs are shrunk"
        over = [words(said, time=about(budget_s))]
    first = words(
        "About {time} on {n} host: {parts}" if hosts == 1 else "About {time} on {n} hosts: {parts}",
        time=about(total),
        n=hosts,
        parts=parts,
    )
    return "; ".join([first, *over])


def _how(each: Estimate) -> str:
    tools = words("{time} of it tools of others", time=about(each.tools_seconds)) if each.tools_seconds else ""
    return "; ".join(filter(None, [words.reason(each.source), tools]))


def about(seconds: float) -> str:
    """Seconds in words: to the second below two minutes, else to the minute."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _counts(record: RungRecord, rung: str) -> bool:
    """Whether it is that rung, whole, and had no occasion beyond the planned ones but those of again_seconds."""
    is_plain = record.verdict == "pass" and not record.unsteady and not record.shrunk
    return record.rung == rung and is_plain and record.seconds > 0


def _usual(rung: str, vendor: str, hosts: int) -> float:
    if rung == HEALTH:
        return _HEALTH_S
    run = _RUN_S.get(vendor, _DEVICES_RUN_S)
    if rung == NETWORK:
        return 2 * run + _pair_rounds(hosts) * _PAIR_S.get(vendor, _DEVICES_PAIR_S)
    return run


def _of_tools(tools: Others, vendor: str) -> float:
    """The run of a rung's tools; beside Inspector's files the collectives that it watches run again."""
    if not tools.names and tools.inspector is None:
        return 0.0
    run = _RUN_S.get(vendor, _DEVICES_RUN_S)
    return _START_S + tools.seconds + (run if tools.inspector is not None else 0.0)


def _work(rung: str, hosts: int) -> float:
    """The work of a rung in rounds of pairs; all hosts do the other rungs at once."""
    return 2 * _STARTS + _pair_rounds(hosts) * _ROUND if rung == NETWORK else 1.0


def _pair_rounds(hosts: int) -> float:
    """Each host meets each other one, several times; the search needs a few rounds for each doubling."""
    return PAIR_REPEATS * (hosts - 1.0) if hosts <= ALL_PAIRS else 3 * (4 + 2 * math.log2(hosts))
