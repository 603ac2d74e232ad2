"""Writes the page of an acceptance: the drain list first, then the rungs, the hosts, and what to type."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from common.charts.page import document, safe
from common.shortening import few
from common.whole_files import write_text
from run_benchmarks.acceptance.estimate import about
from run_benchmarks.acceptance.records import AcceptRecord, RungRecord
from run_benchmarks.acceptance.rungs import RUNGS
from run_benchmarks.acceptance.warned import NOBODY
from run_benchmarks.console.language import ENGLISH, Words

PAGE_FILE = "accept.html"
SHOWN, FINDINGS = 5, 3
"""Hosts of a kind of warning; findings of a cell that are not folded."""
STYLE = "td{vertical-align:top}td ul{margin:0;padding-left:1.2em}td details ul{margin-top:.3em}"
IN_DOUBT = ": suspected, left in doubt: "
"""In a sentence of `not_run` on a suspect that is neither out nor accepted."""
NOT_JUDGED = (
    IN_DOUBT,
    ": measured, not judged: ",
    "--against: not compared",
    " compared with none: ",
    " of all operations stall, ",
)
"""In a sentence of `not_run` on what was measured and not judged, which says so."""
PAIR = re.compile(r" \d+ to \d+$")
"""Of a test of two devices: accept.json has all of them."""


def write_page(path: Path, record: AcceptRecord, words: Words = ENGLISH) -> None:
    """Write the page in the language of `words`.

    Raises:
        OSError: the file cannot be written.
    """
    body = "\n".join(_body(record, words))
    write_text(path, document(f"Acceptance {record.accept_id}", body, lang=words.language, style=STYLE))


def verdict_of(record: AcceptRecord, words: Words) -> str:
    """The state of the cluster, with how many hosts are accepted."""
    return f"{state_of(record, words)}: {accepted_of(record, words)}"


def accepted_of(record: AcceptRecord, words: Words) -> str:
    """How many hosts are accepted, of how many."""
    good, total = sum(state == "accepted" for state in record.hosts.values()), len(record.hosts)
    return words("{n} of {total} host accepted" if total == 1 else "{n} of {total} hosts accepted", n=good, total=total)


def state_of(record: AcceptRecord, words: Words) -> str:
    """Ready by which part of all rungs, and whether these were shortened; or not ready, and whether some rungs were not
    run and none failed.
    """
    is_shortened, count = any(rung.shrunk for rung in record.rungs), len(record.rungs)
    if not record.ready:
        is_failed = any(rung.verdict == "fail" for rung in record.rungs)
        is_left_out = any(rung.verdict == "not run" for rung in record.rungs)
        return words("Not ready, as not every rung was run" if is_left_out and not is_failed else "Not ready")
    if count < len(RUNGS):
        return words(
            "Ready by {n} of {total} rungs, shortened" if is_shortened else "Ready by {n} of {total} rungs",
            n=count,
            total=len(RUNGS),
        )
    return words("Ready, with shortened rungs" if is_shortened else "Ready")


def state_of_host(record: AcceptRecord, host: str, words: Words) -> str:
    """The state of a host; of an accepted one with the checks that did not run, which it is not known to pass."""
    state, missed = record.hosts[host], record.missed.get(host, [])
    if state != "accepted" or not missed:
        return words(state)
    return words("accepted, but not looked at: {what}", what=", ".join(words.reason(each) for each in missed))


def states_of_accepted(record: AcceptRecord, words: Words) -> dict[str, list[str]]:
    """The accepted hosts of which some check did not run, by what is said of them."""
    found: dict[str, list[str]] = {}
    for host, state in record.hosts.items():
        if state == "accepted" and record.missed.get(host):
            found.setdefault(state_of_host(record, host, words), []).append(host)
    return found


def _body(record: AcceptRecord, words: Words) -> Iterator[str]:
    yield f"<h1>{verdict_of(record, words)}</h1>"
    minutes = (record.finished_ms - record.started_ms) / 60_000
    for said, of in states_of_accepted(record, words).items():
        yield f"<p>{safe(few(of, SHOWN))}: {safe(said)}</p>"
    yield f'<p class="soft">{safe(record.accept_id)}, {safe(record.vendor)}, {minutes:.0f} min</p>'
    if untried := untried_vendor(record, words):
        yield f"<p>{safe(untried)}</p>"
    yield f"<h2>{words('Take out of service')}</h2>"
    if record.drain:
        rows = [(host, _said(said, words), record.again.get(host, "")) for host, said in record.drain.items()]
        yield _table((words("host"), words("because"), words("after its repair")), rows, words)
        yield f"<pre>{safe(chr(10).join([*record.commands, *record.bundles]))}</pre>"
    else:
        yield f"<p>{words('No host.')}</p>"
    unsteady = [(host, _said(said, words), rung.rung) for rung in record.rungs for host, said in rung.unsteady.items()]
    if unsteady:
        yield f"<h2>{words('Suspected, not confirmed')}</h2>"
        yield _table((words("host"), words("what was seen"), words("rung")), unsteady, words)
    if record.warnings:
        yield f"<h2>{words('Warnings, which take nobody out')}</h2>"
        yield _table((words("hosts"), words("host"), words("what was seen")), warned_rows(record, words))
        if record.warnings_left_out:
            yield f"<p>{words('and {n} more', n=record.warnings_left_out)}</p>"
    yield f"<h2>{words('Rungs')}</h2>"
    yield _table(_heads(words), [_row(each, words) for each in record.rungs], words)
    if record.usual:
        yield f"<h2>{words('Accepted devices')}</h2>"
        yield _table((words("test"), words("median"), words("scatter"), words("devices")), usual_rows(record))
    if record.cases:
        yield f"<h2>{words('Accepted network and training')}</h2>"
        yield _table((words("test"), words("median"), words("scatter"), words("hosts")), rows_of_cases(record))
    hosts = [(host, state_of_host(record, host, words)) for host in record.hosts]
    table = _table((words("host"), words("state")), hosts)
    yield f"<details><summary>{words('Hosts')}</summary>{table}</details>"


def usual_rows(record: AcceptRecord) -> list[tuple[str, str, str, str]]:
    """Of each test of devices its kind of hosts, where there are several, median, scatter and number of devices."""
    return [
        (
            f"{test}, {kind}" if kind and len(record.usual) > 1 else test,
            f"{found.median:.4g} {found.unit}",
            f"{100 * found.scatter / found.median:.2g} %",
            str(found.devices),
        )
        for kind, levels in record.usual.items()
        for test, found in levels.items()
        if not PAIR.search(test)
    ]


def rows_of_cases(record: AcceptRecord) -> list[tuple[str, str, str, str]]:
    """Of each figure of the network and the training median, scatter and the number of hosts that took part."""
    return [
        (
            f"{case} {figure}",
            f"{found.median:.4g} {found.unit}",
            f"{100 * found.scatter / found.median:.2g} %",
            str(level.hosts),
        )
        for case, level in record.cases.items()
        for figure, found in level.figures.items()
    ]


def warned_rows(record: AcceptRecord, words: Words) -> list[tuple[str, str, str]]:
    """Of each kind of warning how many hosts have it, the first of them, and what was said of the first one."""
    rows = []
    for each in record.warnings:
        said = "; ".join(_said(next(iter(each.hosts.values())), words))
        shown = [host for host in each.hosts if host != NOBODY][:SHOWN]
        more = [words("and {n} more", n=each.count - len(shown))] if each.count > len(shown) else []
        rows.append((str(each.count), ", ".join([*shown, *more]), said))
    return rows


def _heads(words: Words) -> list[str]:
    return [
        words("rung"),
        words("verdict"),
        words("hosts"),
        words("out"),
        words("time"),
        words("estimated"),
        words("runs"),
        words("why"),
    ]


def _row(rung: RungRecord, words: Words) -> tuple[str | list[str], ...]:
    """The cells of a rung; the last has a line for each finding: what failed it, whom it leaves in doubt, what it
    shrank, and what it did not look at.
    """
    left_out = {said: left_out_of(said, words) for said in rung.not_run}
    doubtful = [line for said, line in left_out.items() if IN_DOUBT in said]
    less = [words("shrunk to fit the budget: {what}", what=", ".join(rung.shrunk))] if rung.shrunk else []
    out, runs = ", ".join(rung.out), ", ".join(rung.runs)
    why = list(dict.fromkeys([*_said(rung.reasons, words), *doubtful, *less, *left_out.values()]))
    return rung.rung, words(rung.verdict), str(len(rung.hosts)), out, *times(rung), runs, why


def left_out_of(said: str, words: Words) -> str:
    """A sentence of a rung's `not_run` in words: that it was not run, unless it was, and was not judged."""
    what = words.reason(said)
    return what if any(each in said for each in NOT_JUDGED) else words("not run: {what}", what=what)


def untried_vendor(record: AcceptRecord, words: Words) -> str:
    """A sentence where this program has run on no device of the vendor; else empty."""
    if record.vendor_seen != "":
        return ""
    return words("This program has run on no device of {vendor} yet: it follows documents", vendor=record.vendor)


def _said(said: Sequence[str], words: Words) -> list[str]:
    return [words.reason(each) for each in said]


def times(rung: RungRecord) -> tuple[str, str]:
    """How long a rung took, and what was estimated, its source, and how right it was without soak or second look."""
    soak = f", {about(rung.soak_seconds)} of it a soak" if rung.soak_seconds else ""
    if not rung.estimated_seconds:
        return f"{about(rung.seconds)}{soak}", ""
    expected = f"{about(rung.estimated_seconds)} ({rung.estimated_from})"
    if rung.verdict != "not run" and not rung.shrunk:
        planned = rung.seconds - rung.soak_seconds - rung.again_seconds
        expected += f": it took {planned / rung.estimated_seconds:.2g} times as long"
    return f"{about(rung.seconds)}{soak}", expected


def _table(heads: Sequence[str], rows: Sequence[Sequence[str | list[str]]], words: Words = ENGLISH) -> str:
    """A table; of a cell with several findings each has a line, and those after the first few are folded."""
    head = "".join(f"<th>{safe(each)}</th>" for each in heads)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(cell, words)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'


def _cell(cell: str | list[str], words: Words) -> str:
    if isinstance(cell, str):
        return safe(cell)
    if len(cell) < 2:
        return safe("".join(cell))
    more = words("and {n} more", n=len(cell) - FINDINGS)
    folded = f"<details><summary>{safe(more)}</summary>{_list(cell[FINDINGS:])}</details>" if cell[FINDINGS:] else ""
    return f"{_list(cell[:FINDINGS])}{folded}"


def _list(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{safe(each)}</li>' for each in lines)}</ul>"
