"""report.html: one self-contained page of a run. Everything that came from a log or a host is escaped."""

from __future__ import annotations

from pathlib import Path

import jinja2

from run_benchmarks.results.records import RoundRecord, RunRecord, write_text
from run_benchmarks.results.summary import show

TEMPLATE = "report.html.j2"


def write_report(result_dir: Path, run: RunRecord, rounds: list[RoundRecord]) -> Path:
    """Render the page into the run's folder and return its path."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["show"] = show
    path = result_dir / "report.html"
    by_case = {case.name: [record for record in rounds if record.case == case.name] for case in run.cases}
    write_text(path, environment.get_template(TEMPLATE).render(run=run, rounds=by_case))
    return path
