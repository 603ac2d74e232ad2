"""Writes one page of a run: who did what when, the busiest links, how long flows took, the critical path, the band."""

from collections.abc import Iterable, Iterator, Sequence

from common.charts.chart import Axis, Bar, Bars, Curves, Line, Panel, Series, Spans, thinned
from common.charts.page import document, figure, safe
from simulation.network.critical import PathStep
from simulation.network.request import NetworkRequest
from simulation.network.timeline import BESIDE, COMPUTE, Span, spans
from simulation.network.view import BusyLink, LinkUse, RunView

MOST_RANKS, MOST_LINKS, CURVES, POINTS = 128, 10, 3, 200
WIDE, JOINED = 1000, 0.3  # of a timeline; what is not further apart is drawn as one


def html(request: NetworkRequest, view: RunView, makespans: Sequence[float], text: str) -> str:
    """The page. `makespans` are those of other orders of simultaneous starts (us), `text` is the run's summary."""
    parts = [
        *_timeline(request, view),
        *_links(view.links),
        *_durations(view.durations),
        *_critical(view),
        *_band(makespans),
    ]
    title = f"Network of {request.topology.name}"
    said = "".join(f"<p>{safe(line)}</p>" for line in text.splitlines())
    return document(title, f"<h1>{safe(title)}</h1>{said}\n" + "\n".join(parts))


def _timeline(request: NetworkRequest, view: RunView) -> Iterator[str]:
    """A line for each rank: its computation, and above it what it waited for by kind of group."""
    ranks = [rank for part in request.job.parts for rank in range(part.first, part.first + part.ranks)]
    kinds: dict[str, list[tuple[int, float, float]]] = {COMPUTE: []}
    known: dict[int, dict[str, list[tuple[float, float]]]] = {}
    for row, rank in enumerate(ranks[:MOST_RANKS]):
        like = view.run.kind_of(rank)
        if like not in known:
            its = spans(request.job, view.run, request.wishes.slowness, rank)
            known[like] = _joined(its, JOINED * view.end / WIDE)
        for kind, times in known[like].items():
            kinds.setdefault(kind, []).extend((row, begin, end) for begin, end in times)
    left = f" The first {MOST_RANKS} of {len(ranks)}." if len(ranks) > MOST_RANKS else ""
    yield figure(
        Spans(
            title="What each rank did",
            sentence=f"Computation, or waiting for a collective of a group.{left}",
            x=Axis(name="us", end=view.end / 1000),
            rows=[str(rank) for rank in ranks[:MOST_RANKS]],
            kinds=list(kinds),
            spans=list(kinds.values()),
        )
    )


def _joined(its: Iterable[Span], apart: float) -> dict[str, list[tuple[float, float]]]:
    """A rank's times (us) by kind; what is less than `apart` (ns) apart is one."""
    found: dict[str, list[tuple[float, float]]] = {}
    for span in its:
        if span.track == BESIDE:
            continue
        own = found.setdefault(span.kind, [])
        if own and span.begin - 1000 * own[-1][1] < apart:
            own[-1] = (own[-1][0], span.end / 1000)
        else:
            own.append((span.begin / 1000, span.end / 1000))
    return found


def _links(use: LinkUse) -> Iterator[str]:
    links = use.links[:MOST_LINKS]
    if not links:
        return
    bars = [Bar(name=each.name, value=100 * _mean(each), text=_said(each)) for each in links]
    yield figure(Bars(title="The ten busiest links", unit="%", bars=bars, one_hue=True))
    series = []
    for link in links[:CURVES]:
        places = [(use.begin_ns + (place + 0.5) * use.bin_ns) / 1000 for place in range(len(link.shares))]
        x, (y,) = thinned(places, [100 * share for share in link.shares])
        series.append(Series(name=link.name, x=x, y=y))
    panel = Panel(y=Axis(name="%", start=0.0, end=100.0), series=series)
    yield figure(Curves(title="Busy links over time", x=Axis(name="us"), panels=[panel]))


def _mean(link: BusyLink) -> float:
    return sum(link.shares) / len(link.shares)


def _said(link: BusyLink) -> str:
    return f"{100 * _mean(link):.0f} % of {link.gbps:g} Gbit/s, {link.sent_bytes / 1e6:.1f} MB"


def _durations(took: Sequence[float]) -> Iterator[str]:
    if not took:
        return

    def within(share: float) -> float:
        """The time (us) in which a share of the flows ended, between the two that are next to it."""
        place = share * (len(took) - 1)
        low = min(int(place), len(took) - 1)
        high = min(low + 1, len(took) - 1)
        return (took[low] + (took[high] - took[low]) * (place - low)) / 1000

    shares = [place / (POINTS - 1) for place in range(POINTS)]
    series = Series(name="flows", x=[within(share) for share in shares], y=[100 * share for share in shares])
    said = f"{len(took)} flows: from {within(0):.1f} us, median {within(0.5):.1f}, 99 % within {within(0.99):.1f}, "
    panel = Panel(y=Axis(name="% of flows", start=0.0, end=100.0), series=[series])
    sentence = f"{said}all {within(1):.1f}"
    yield figure(Curves(title="How long flows took", sentence=sentence, x=Axis(name="us"), panels=[panel]))


def _critical(view: RunView) -> Iterator[str]:
    """The table of the critical path's last steps."""
    if not view.path:
        return
    rows = "".join(_row(step, view.links.port_names) for step in view.path)
    left = f", the last {len(view.path)}" if view.path_flows > len(view.path) else ""
    yield (
        f"<h2>The critical path</h2><p>What the end waited for: {view.path_flows} flows one after another{left}; of "
        "each the most loaded link on its way, and how many other flows used that meanwhile.</p><table><tr>"
        "<th>flow</th><th>waited before, us</th><th>begin, us</th><th>took, us</th><th>link</th><th>busy</th>"
        f"<th>shared with</th></tr>{rows}</table>"
    )


def _row(step: PathStep, named: Sequence[str]) -> str:
    cells = (
        f"{step.source} to {step.target}", f"{step.idle_ns / 1000:.2f}", f"{step.begin / 1000:.2f}",
        f"{(step.end - step.begin) / 1000:.2f}", safe(named[step.port]) if step.port >= 0 else "",
        f"{100 * step.busy:.0f} %", str(step.shared),
    )  # fmt: skip
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _band(makespans: Sequence[float]) -> Iterator[str]:
    if len(makespans) < 2:
        return
    from statistics import median  # which takes long to import, and one run has no band

    x, (y,) = thinned(range(1, len(makespans) + 1), list(makespans))
    middle = Line(name="median", value=median(makespans))
    panel = Panel(y=Axis(name="us"), series=[Series(name="makespan", x=x, y=y, style="points")], lines=[middle])
    said = "The makespan with each order of simultaneous starts, the shortest first."
    yield figure(Curves(title="How sure", sentence=said, x=Axis(name="order"), panels=[panel]))
