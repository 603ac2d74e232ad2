"""Writes one page of a run: who did what when, the busiest links, how long flows took, the critical path, the band."""

from collections.abc import Iterator, Sequence
from html import escape

import numpy as np

from common import svg
from simulation.network.critical import PathStep, critical_path
from simulation.network.links import BusyLink, busiest, port_names
from simulation.network.outcome import NetworkRun
from simulation.network.request import NetworkRequest
from simulation.network.routing import ports_of
from simulation.network.timeline import BESIDE, COMPUTE, spans

MOST_RANKS, MOST_LINKS, CURVES, MOST_STEPS, POINTS = 128, 10, 3, 200, 200
WIDE, JOINED = 1000, 0.3  # of a timeline; what is not further apart is drawn as one
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:1000px;margin:2rem auto;padding:0 1rem;color-scheme:light dark}"
    "svg{width:100%;height:auto;font-size:12px;fill:currentColor}table{border-collapse:collapse}"
    "td,th{padding:2px 10px;text-align:right}.swatch{display:inline-block;width:12px;height:12px;margin:0 4px 0 14px}"
)


def html(request: NetworkRequest, run: NetworkRun, makespans: Sequence[float], text: str) -> str:
    """The page. `makespans` are those of other orders of simultaneous starts (us), `text` is the run's summary."""
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    parts = [
        *_timeline(request, run),
        *_links(request, run),
        *_durations(run),
        *_critical(request, run),
        *_band(makespans),
    ]
    said = "".join(f"<p>{escape(line)}</p>" for line in text.splitlines())
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" '
        f'content="{policy}"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Network of {escape(request.topology.name)}</title><style>{STYLE}</style></head>\n"
        f"<body><h1>Network of {escape(request.topology.name)}</h1>{said}\n" + "\n".join(parts) + "</body></html>\n"
    )


def _timeline(request: NetworkRequest, run: NetworkRun) -> Iterator[str]:
    """A line for each rank: its computation, and above it what it waited for by kind of group."""
    ends = int(max(run.finished.max(), run.end.max(initial=0), 1))
    ranks = [rank for part in request.job.parts for rank in range(part.first, part.first + part.ranks)]
    kinds = {COMPUTE: 0}
    rows = []
    for rank in ranks[:MOST_RANKS]:
        drawn: dict[int, list[list[float]]] = {}
        for span in spans(request.job, run, request.wishes.slowness, rank):
            if span.track == BESIDE:
                continue
            begin, end = span.begin * WIDE / ends, span.end * WIDE / ends
            own = drawn.setdefault(kinds.setdefault(span.kind, len(kinds)), [])
            if own and begin - own[-1][1] < JOINED:
                own[-1][1] = end
            else:
                own.append([begin, end])
        rows.append((str(rank), {kind: "".join(_box(*each) for each in own) for kind, own in drawn.items()}))
    shades = [svg.color(number) for number in range(len(kinds))]
    names = "".join(
        f'<span class="swatch" style="background:{shade}"></span>{escape(kind)}'
        for kind, shade in zip(kinds, shades, strict=True)
    )
    left = f" (the first {MOST_RANKS} of {len(ranks)})" if len(ranks) > MOST_RANKS else ""
    yield f"<h2>What each rank did{left}</h2><p>computation, or waiting for a collective of:{names}</p>"
    yield svg.timeline("what each rank did", rows, shades, f"{ends / 1000:.1f} us")


def _box(begin: float, end: float) -> str:
    return f"M{begin:.2f} 0h{end - begin:.2f}v1H{begin:.2f}z"


def _links(request: NetworkRequest, run: NetworkRun) -> Iterator[str]:
    links = busiest(request.fabric, run, MOST_LINKS)
    if not links:
        return
    yield "<h2>The ten busiest links</h2>"
    yield svg.bars("the busiest links", [(each.name, _mean(each), _said(each), svg.color(0)) for each in links])
    shown = {
        link.name: (
            svg.color(number),
            [(place / len(link.shares), 100 * share) for place, share in enumerate(link.shares)],
        )
        for number, link in enumerate(links[:CURVES])
    }
    ticks = [(0.0, "0"), (1.0, f"{len(links[0].shares) * run.bin_ns / 1000:.0f} us")]
    yield f"<p>Over time: {', '.join(map(escape, shown))}</p>"
    yield svg.plot("busy links over time", shown, ticks, 100.0, unit="%", joined=True)


def _mean(link: BusyLink) -> float:
    return sum(link.shares) / len(link.shares)


def _said(link: BusyLink) -> str:
    return f"{100 * _mean(link):.0f} % of {link.gbps:g} Gbit/s, {link.sent_bytes / 1e6:.1f} MB"


def _durations(run: NetworkRun) -> Iterator[str]:
    done = run.end >= 0
    if not done.any():
        return
    took = np.sort((run.end - run.start)[done]) / 1000
    low, median, high = (float(np.quantile(took, share)) for share in (0.0, 0.5, 0.99))
    longest = float(took[-1])
    shares = np.linspace(0, 1, POINTS)
    points = [(float(np.quantile(took, share)) / longest, 100 * float(share)) for share in shares]
    yield "<h2>How long flows took</h2>"
    yield f"<p>{len(took)} flows: from {low:.1f} us, median {median:.1f}, 99 % within {high:.1f}, all {longest:.1f}</p>"
    ticks = [(0.0, "0"), (1.0, f"{longest:.1f} us")]
    yield svg.plot("flows", {"flows": (svg.color(0), points)}, ticks, 100.0, unit="% of flows", joined=True)


def _critical(request: NetworkRequest, run: NetworkRun) -> Iterator[str]:
    """The table of the critical path's last steps."""
    steps = critical_path(request.job, run, ports_of(request.fabric).bps)
    if not steps:
        return
    named = port_names(request.fabric)
    rows = "".join(_row(run, step, named) for step in steps[-MOST_STEPS:])
    left = f", the last {MOST_STEPS}" if len(steps) > MOST_STEPS else ""
    yield (
        f"<h2>The critical path</h2><p>What the end waited for: {len(steps)} flows one after another{left}; of each "
        "the most loaded link on its way, and how many other flows used that meanwhile.</p><table><tr><th>flow</th>"
        "<th>waited before, us</th><th>begin, us</th><th>took, us</th><th>link</th><th>busy</th><th>shared with</th>"
        "</tr>"
        f"{rows}</table>"
    )


def _row(run: NetworkRun, step: PathStep, named: Sequence[str]) -> str:
    cells = (
        f"{run.source[step.flow]} to {run.target[step.flow]}", f"{step.idle_ns / 1000:.2f}", f"{step.begin / 1000:.2f}",
        f"{(step.end - step.begin) / 1000:.2f}", escape(named[step.port]) if step.port >= 0 else "",
        f"{100 * step.busy:.0f} %", str(step.shared),
    )  # fmt: skip
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _band(makespans: Sequence[float]) -> Iterator[str]:
    if len(makespans) < 2:
        return
    yield "<h2>How sure</h2><p>The makespan with each order of simultaneous starts, the shortest first.</p>"
    yield svg.columns("makespans", list(makespans), float(np.median(makespans)), 1, "us")
