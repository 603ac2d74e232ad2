"""Writes docs/data/simulation/levels.csv: recorded runs of ns-3 beside both levels, and the time that each took.

    .venv/bin/python -m tests.simulation.network.levels

The recorded ns-3 was a slow build (-O1 or debug) on two shared cores.
"""

from __future__ import annotations

import csv
import io
import tempfile
from pathlib import Path

from tests.simulation.network.flow_runs import errors, flow_level
from tests.simulation.network.recordings import ours, recorded, recordings, times_of

FILE = Path(__file__).resolve().parents[3] / "docs" / "data" / "simulation" / "levels.csv"
HEADER = (
    "run",
    "ns-3 makespan us",
    "flow level %",
    "mean over ranks %",
    "mean flow %",
    "it says",
    "flow level s",
    "ns-3 s",
    "packet level %",
    "its mean over ranks %",
    "its mean flow %",
    "packet level s",
)


def rows() -> list[tuple[str, ...]]:
    """A row for each recorded run, without the header."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name, recording in sorted(recordings().items()):
            flows = flow_level(recording, Path(folder))
            error = errors(name, flows.run)
            figures = (f"{each:+.1f}".replace("-0.0", "+0.0") for each in (error.makespan, error.mean, error.durations))
            found.append(
                (
                    name,
                    f"{recorded(name).makespan / 1000:.1f}",
                    *figures,
                    flows.weakness,
                    f"{flows.run.seconds:.2f}",
                    f"{recording['wall_s']:.0f}",
                    *packet_cells(name, Path(folder)),
                )
            )
    return found


def packet_cells(name: str, folder: Path) -> tuple[str, str, str, str]:
    """Percent by which the packet level's makespan, mean over ranks and mean flow are above ns-3's, and its seconds."""
    run = ours(recordings()[name], folder)
    found, wanted = times_of(run), recorded(name)
    figures = (
        (found.makespan, wanted.makespan),
        (found.mean, wanted.mean),
        (float(found.durations.mean()), float(wanted.durations.mean())),
    )
    makespan, mean, flow = (f"{100 * (mine / theirs - 1):+.1f}".replace("-0.0", "+0.0") for mine, theirs in figures)
    return makespan, mean, flow, f"{run.seconds:.2f}"


def text(table: list[tuple[str, ...]]) -> str:
    """The table as CSV."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([HEADER, *table])
    return file.getvalue()


if __name__ == "__main__":
    FILE.write_text(text(rows()), encoding="utf-8")
