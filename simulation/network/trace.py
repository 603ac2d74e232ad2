"""Writes a run as a trace in Chrome's trace event format, which ui.perfetto.dev and chrome://tracing show.

Format: "Trace Event Format" (Google), the JSON object form; times are us.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from common.whole_files import write_whole
from simulation.network.request import NetworkRequest
from simulation.network.row_files import trace_head
from simulation.network.timeline import BESIDE, COMPUTE, WAITED, spans
from simulation.network.view import RunView

TRACKS = {COMPUTE: 0, WAITED: 1, BESIDE: 2}
LINKS_SHOWN = 10
_Event = dict[str, object]


def write_trace(path: Path, request: NetworkRequest, view: RunView) -> None:
    """Write the spans of all ranks, the transfers between stages as arrows, and how busy the busiest links were."""

    def pieces() -> Iterator[bytes]:
        yield trace_head(request.prefix) + b', "traceEvents": [\n'
        first = True
        for event in _events(request, view):
            yield (b"" if first else b",\n") + json.dumps(event).encode()
            first = False
        yield b"\n]}\n"

    write_whole(path, pieces())


def _events(request: NetworkRequest, view: RunView) -> Iterator[_Event]:
    job, links = request.job, len(request.job.program_of)
    for part in job.parts:
        for rank in range(part.first, part.first + part.ranks):
            yield _named("process_name", rank, 0, f"rank {rank}" + (f" of {part.name}" if len(job.parts) > 1 else ""))
            yield {**_named("process_sort_index", rank, 0, ""), "args": {"sort_index": rank}}
            for track, number in TRACKS.items():
                yield _named("thread_name", rank, number, track)
            yield from _spans(request, view, rank)
    yield from _arrows(view)
    yield _named("process_name", links, 0, "the busiest links")
    for link in view.links.links[:LINKS_SHOWN]:
        for place, share in enumerate(link.shares):
            at = (view.links.begin_ns + place * view.links.bin_ns) / 1000
            yield {"ph": "C", "name": link.name, "pid": links, "tid": 0, "ts": at, "args": {"busy %": _percent(share)}}


def _percent(share: float) -> float:
    return round(100 * share, 2)


def _named(what: str, process: int, thread: int, name: str) -> _Event:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


def _spans(request: NetworkRequest, view: RunView, rank: int) -> Iterator[_Event]:
    for span in spans(request.job, view.run, request.wishes.slowness, rank):
        yield {
            "ph": "X", "name": span.name, "cat": span.kind, "pid": rank, "tid": TRACKS[span.track],
            "ts": span.begin / 1000, "dur": (span.end - span.begin) / 1000,
        }  # fmt: skip


def _arrows(view: RunView) -> Iterator[_Event]:
    """From the send of a transfer between stages to where its receiver waits for it, or would."""
    for number, each in enumerate(view.transfers()):
        if each.received < 0 or each.end <= each.received:
            continue
        same = {"cat": "PP", "name": "transfer", "id": number}
        yield {**same, "ph": "s", "pid": each.source, "tid": TRACKS[BESIDE], "ts": each.begin / 1000}
        yield {**same, "ph": "f", "bp": "e", "pid": each.target, "tid": TRACKS[WAITED], "ts": each.end / 1000}
