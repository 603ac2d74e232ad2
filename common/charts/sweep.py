"""Charts bandwidths over message sizes: busbw on log axes, and below it a linear strip that shows what those hide."""

from collections.abc import Mapping, Sequence

from common.charts.chart import Axis, Curves, Line, Panel, Series, thinned
from common.units import format_size

Points = Sequence[tuple[int, float]]


def sweep(
    title: str,
    series: Mapping[str, Points],
    *,
    advertised: float | None = None,
    reference: Mapping[int, float] | None = None,
) -> Curves | None:
    """busbw in GB/s over sizes in bytes, a line per name; None where less than two sizes were measured.

    `advertised`: the link's limit in GB/s, drawn across. `reference`: busbw by size that is expected; without it the
    strip below shows percent of the limit. On two log axes a loss of a tenth is thinner than the line.
    """
    lines = {
        name: sorted(point for point in points if point[0] > 0 and point[1] > 0) for name, points in series.items()
    }
    if len({size for points in lines.values() for size, _ in points}) < 2:
        return None
    drawn = [_line(name, points) for name, points in lines.items() if points]
    if reference:
        drawn.append(_line("baseline", sorted(reference.items()), muted=True))
    limits = [Line(name=f"link limit {advertised:g} GB/s", value=advertised)] if advertised else []
    panels = [Panel(y=Axis(name="busbw, GB/s", kind="log"), series=drawn, lines=limits)]
    if (strip := _strip(lines, advertised, reference)) is not None:
        panels.append(strip)
    best, size = max((value, size) for points in lines.values() for size, value in points)
    return Curves(
        title=title,
        sentence=f"At best {best:.4g} GB/s, at {format_size(size)}.",
        x=Axis(name="bytes", kind="log", format="bytes"),
        panels=panels,
    )


def _line(name: str, points: Sequence[tuple[int, float]], *, muted: bool = False) -> Series:
    x, (y,) = thinned([size for size, _ in points], [value for _, value in points])
    return Series(name=name, x=x, y=y, tone="muted" if muted else "")


def _strip(
    lines: Mapping[str, Points], advertised: float | None, reference: Mapping[int, float] | None
) -> Panel | None:
    """Percent of the reference by size, else of the limit; None without both."""

    def share(size: int, value: float) -> float | None:
        expected = (reference or {}).get(size) if reference else advertised
        return 100 * value / expected if expected else None

    shares = [
        (name, [(size, part) for size, value in points if (part := share(size, value)) is not None])
        for name, points in lines.items()
    ]
    drawn = [_line(name, points) for name, points in shares if points]
    what = "baseline" if reference else "the link limit"
    axis = Axis(name=f"% of {what}", start=None if reference else 0.0)
    return Panel(y=axis, series=drawn, lines=[Line(name="100 %", value=100.0)]) if drawn else None
