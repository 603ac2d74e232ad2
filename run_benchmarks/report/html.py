"""Writes report.html, a self-contained page of a run. All text from logs and hosts is escaped."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from common.charts.chart import Chart
from common.charts.page import document, figure
from common.printable import printable
from run_benchmarks.console.console import LOG
from run_benchmarks.plan.plan import round_folder
from run_benchmarks.results.outcomes import report_blocks
from run_benchmarks.results.records import RoundRecord, RunRecord, write_text
from run_benchmarks.results.summary import show, show_spread, with_units

TEMPLATE = "report.html.j2"
UNSHOWN: dict[str, Any] = {"metrics": {}, "baseline": None, "expectations": [], "sentences": [], "warnings": []}


def _harmless(value: object) -> object:
    """Text without anything that a browser, or a terminal that shows the page's source, would interpret."""
    return value if hasattr(value, "__html__") else printable(str(value))


def _drawn(chart: Chart) -> Markup:
    """A chart, whose texts may be a host's, as an element of the page."""
    return Markup(figure(chart))


@functools.cache
def _template() -> jinja2.Template:
    """The page's template; to compile it takes longer than to fill it."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_harmless,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["drawn"] = _drawn
    environment.filters["show"] = show
    environment.filters["show_spread"] = show_spread
    environment.filters["with_units"] = with_units
    environment.globals["round_folder"] = round_folder
    environment.globals["report_blocks"] = report_blocks
    environment.globals["block_kind"] = lambda block: type(block).__name__
    return environment.get_template(TEMPLATE)


def write_report(result_dir: Path, run: RunRecord, rounds: list[RoundRecord]) -> Path:
    """Write the page into the run's folder and return its path."""
    path = result_dir / "report.html"
    template = _template()
    try:
        page = document(f"ClusterDyno {run.run_id}", template.render(run=run, rounds=_by_case(run, rounds)))
        page.encode("utf-8")
    except Exception as error:  # noqa: BLE001 - a page without what hosts sent is better than none
        LOG.warning(
            "The report is without the measurements, which cannot be shown: %s: %s", type(error).__name__, error
        )
        body = template.render(run=_bare_run(run), rounds=_by_case(run, [_bare(record) for record in rounds]))
        page = document(f"ClusterDyno {run.run_id}", body)
    write_text(path, page)
    return path


def _by_case(run: RunRecord, rounds: Sequence[RoundRecord]) -> dict[str, list[RoundRecord]]:
    return {case.name: [record for record in rounds if record.case == case.name] for case in run.cases}


def _bare_run(run: RunRecord) -> RunRecord:
    return run.model_copy(update={"cases": [case.model_copy(update=UNSHOWN) for case in run.cases]})


def _bare(record: RoundRecord) -> RoundRecord:
    """A round without the measurements that its hosts sent."""
    nodes = [node.model_copy(update={"monitor": None}) for node in record.nodes]
    warnings = [*record.warnings, "its measurements cannot be shown: round.json has them"]
    return record.model_copy(update={"metrics": {}, "steps": [], "nodes": nodes, "warnings": warnings})
