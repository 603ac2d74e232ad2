"""Writes docs/data/simulation/levels.csv: recorded runs of ns-3 beside the flow level, and the time that each took.

    .venv/bin/python -m tests.simulation.network.levels

The recorded ns-3 was a slow build (-O1 or debug) on two shared cores.
"""

from __future__ import annotations

import csv
import io
import tempfile
from pathlib import Path

from tests.simulation.network.flow_runs import errors, flow_level
from tests.simulation.network.recordings import recorded, recordings

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
)


def rows() -> list[tuple[str, ...]]:
    """A row for each recorded run, without the header."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name, recording in sorted(recordings().items()):
            ours = flow_level(recording, Path(folder))
            error = errors(name, ours.run)
            figures = (f"{each:+.1f}".replace("-0.0", "+0.0") for each in (error.makespan, error.mean, error.durations))
            found.append(
                (
                    name,
                    f"{recorded(name).makespan / 1000:.1f}",
                    *figures,
                    ours.weakness,
                    f"{ours.run.seconds:.2f}",
                    f"{recording['wall_s']:.0f}",
                )
            )
    return found


def text(table: list[tuple[str, ...]]) -> str:
    """The table as CSV."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([HEADER, *table])
    return file.getvalue()


if __name__ == "__main__":
    FILE.write_text(text(rows()), encoding="utf-8")
