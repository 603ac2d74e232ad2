"""Writes the page of an acceptance: the drain list first, then the rungs, the hosts, and what to type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from common.charts.page import document, safe
from common.whole_files import write_text
from run_benchmarks.acceptance.estimate import about
from run_benchmarks.acceptance.records import AcceptRecord, RungRecord

PAGE_FILE = "accept.html"


def write_page(path: Path, record: AcceptRecord) -> None:
    """Write the page.

    Raises:
        OSError: the file cannot be written.
    """
    write_text(path, document(f"Acceptance {record.accept_id}", "\n".join(_body(record))))


def _body(record: AcceptRecord) -> Iterator[str]:
    good = sum(state == "accepted" for state in record.hosts.values())
    yield f"<h1>{'Ready' if record.ready else 'Not ready'}: {good} of {len(record.hosts)} hosts accepted</h1>"
    minutes = (record.finished_ms - record.started_ms) / 60_000
    yield f'<p class="soft">{safe(record.accept_id)}, {safe(record.vendor)}, {minutes:.0f} min</p>'
    yield "<h2>Take out of service</h2>"
    if record.drain:
        rows = [(host, "; ".join(said), record.again.get(host, "")) for host, said in record.drain.items()]
        yield _table(("host", "because", "after its repair"), rows)
        yield f"<pre>{safe(chr(10).join([*record.commands, *record.bundles]))}</pre>"
    else:
        yield "<p>No host.</p>"
    unsteady = [(host, "; ".join(said), rung.rung) for rung in record.rungs for host, said in rung.unsteady.items()]
    if unsteady:
        yield "<h2>Suspected once, not when tested again</h2>"
        yield _table(("host", "what was seen", "rung"), unsteady)
    yield "<h2>Rungs</h2>"
    rungs = [
        (each.rung, each.verdict, str(len(each.hosts)), ", ".join(each.out), *times(each),
         ", ".join(each.runs), "; ".join([each.reason, *(f"not run: {said}" for said in each.not_run)]).strip("; "))
        for each in record.rungs
    ]  # fmt: skip
    yield _table(("rung", "verdict", "hosts", "out", "time", "estimated", "runs", "why"), rungs)
    if record.usual:
        yield "<h2>Accepted devices</h2>"
        usual = [
            (
                test,
                f"{found.median:.4g} {found.unit}",
                f"{100 * found.scatter / found.median:.2g} %",
                str(found.devices),
            )
            for test, found in record.usual.items()
        ]
        yield _table(("test", "median", "scatter", "devices"), usual)
    yield f"<details><summary>Hosts</summary>{_table(('host', 'state'), list(record.hosts.items()))}</details>"


def times(rung: RungRecord) -> tuple[str, str]:
    """How long a rung took, and what was estimated, with the source."""
    soak = f", {about(rung.soak_seconds)} of it a soak" if rung.soak_seconds else ""
    expected = "" if rung.estimated_seconds is None else f"{about(rung.estimated_seconds)} ({rung.estimated_from})"
    return f"{about(rung.seconds)}{soak}", expected


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{safe(each)}</th>" for each in heads)
    body = "".join(f"<tr>{''.join(f'<td>{safe(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'
