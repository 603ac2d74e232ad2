"""Writes one page of a run: who did what when, the busiest links, how long flows took, the critical path, the band."""

from collections.abc import Iterator, Sequence

import numpy as np

from common.charts.chart import Axis, Bar, Bars, Curves, Line, Panel, Series, Spans, thinned
from common.charts.page import document, figure, safe
from simulation.network.critical import PathStep, critical_path
from simulation.network.links import BusyLink, busiest
from simulation.network.outcome import NetworkRun
from simulation.network.request import NetworkRequest
from simulation.network.routing import ports_of
from simulation.network.timeline import BESIDE, COMPUTE, spans
from simulation.topology.fabric import port_names

MOST_RANKS, MOST_LINKS, CURVES, MOST_STEPS, POINTS = 128, 10, 3, 200, 200
WIDE, JOINED = 1000, 0.3  # of a timeline; what is not further apart is drawn as one


def html(request: NetworkRequest, run: NetworkRun, makespans: Sequence[float], text: str) -> str:
    """The page. `makespans` are those of other orders of simultaneous starts (us), `text` is the run's summary."""
    parts = [
        *_timeline(request, run),
        *_links(request, run),
        *_durations(run),
        *_critical(request, run),
        *_band(makespans),
    ]
    title = f"Network of {request.topology.name}"
    said = "".join(f"<p>{safe(line)}</p>" for line in text.splitlines())
    return document(title, f"<h1>{safe(title)}</h1>{said}\n" + "\n".join(parts))


def _timeline(request: NetworkRequest, run: NetworkRun) -> Iterator[str]:
    """A line for each rank: its computation, and above it what it waited for by kind of group."""
    ends = int(max(run.finished.max(), run.end.max(initial=0), 1))
    ranks = [rank for part in request.job.parts for rank in range(part.first, part.first + part.ranks)]
    kinds: dict[str, list[tuple[int, float, float]]] = {COMPUTE: []}
    apart = JOINED * ends / WIDE
    for row, rank in enumerate(ranks[:MOST_RANKS]):
        for span in spans(request.job, run, request.wishes.slowness, rank):
            if span.track == BESIDE:
                continue
            own = kinds.setdefault(span.kind, [])
            if own and own[-1][0] == row and span.begin - 1000 * own[-1][2] < apart:
                own[-1] = (row, own[-1][1], span.end / 1000)
            else:
                own.append((row, span.begin / 1000, span.end / 1000))
    left = f" The first {MOST_RANKS} of {len(ranks)}." if len(ranks) > MOST_RANKS else ""
    yield figure(
        Spans(
            title="What each rank did",
            sentence=f"Computation, or waiting for a collective of a group.{left}",
            x=Axis(name="us", end=ends / 1000),
            rows=[str(rank) for rank in ranks[:MOST_RANKS]],
            kinds=list(kinds),
            spans=list(kinds.values()),
        )
    )


def _links(request: NetworkRequest, run: NetworkRun) -> Iterator[str]:
    links = busiest(request.fabric, run, MOST_LINKS)
    if not links:
        return
    bars = [Bar(name=each.name, value=100 * _mean(each), text=_said(each)) for each in links]
    yield figure(Bars(title="The ten busiest links", unit="%", bars=bars, one_hue=True))
    wide = run.bin_ns / 1000
    series = []
    for link in links[:CURVES]:
        places = [(place + 0.5) * wide for place in range(len(link.shares))]
        x, (y,) = thinned(places, [100 * share for share in link.shares])
        series.append(Series(name=link.name, x=x, y=y))
    panel = Panel(y=Axis(name="%", start=0.0, end=100.0), series=series)
    yield figure(Curves(title="Busy links over time", x=Axis(name="us"), panels=[panel]))


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
    shares = np.linspace(0, 1, POINTS)
    series = Series(name="flows", x=np.quantile(took, shares).tolist(), y=(100 * shares).tolist())
    said = f"{len(took)} flows: from {low:.1f} us, median {median:.1f}, 99 % within {high:.1f}, all {took[-1]:.1f}"
    panel = Panel(y=Axis(name="% of flows", start=0.0, end=100.0), series=[series])
    yield figure(Curves(title="How long flows took", sentence=said, x=Axis(name="us"), panels=[panel]))


def _critical(request: NetworkRequest, run: NetworkRun) -> Iterator[str]:
    """The table of the critical path's last steps."""
    count, steps = critical_path(request.job, run, ports_of(request.fabric).bps, MOST_STEPS)
    if not steps:
        return
    named = port_names(request.fabric)
    rows = "".join(_row(run, step, named) for step in steps)
    left = f", the last {MOST_STEPS}" if count > MOST_STEPS else ""
    yield (
        f"<h2>The critical path</h2><p>What the end waited for: {count} flows one after another{left}; of each "
        "the most loaded link on its way, and how many other flows used that meanwhile.</p><table><tr><th>flow</th>"
        "<th>waited before, us</th><th>begin, us</th><th>took, us</th><th>link</th><th>busy</th><th>shared with</th>"
        "</tr>"
        f"{rows}</table>"
    )


def _row(run: NetworkRun, step: PathStep, named: Sequence[str]) -> str:
    cells = (
        f"{run.source[step.flow]} to {run.target[step.flow]}", f"{step.idle_ns / 1000:.2f}", f"{step.begin / 1000:.2f}",
        f"{(step.end - step.begin) / 1000:.2f}", safe(named[step.port]) if step.port >= 0 else "",
        f"{100 * step.busy:.0f} %", str(step.shared),
    )  # fmt: skip
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _band(makespans: Sequence[float]) -> Iterator[str]:
    if len(makespans) < 2:
        return
    x, (y,) = thinned(range(1, len(makespans) + 1), list(makespans))
    middle = Line(name="median", value=float(np.median(makespans)))
    panel = Panel(y=Axis(name="us"), series=[Series(name="makespan", x=x, y=y, style="points")], lines=[middle])
    said = "The makespan with each order of simultaneous starts, the shortest first."
    yield figure(Curves(title="How sure", sentence=said, x=Axis(name="order"), panels=[panel]))
