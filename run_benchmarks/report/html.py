"""Writes report.html, a self-contained page of one run or several. All text from logs and hosts is escaped.

It reads records and curves alone: no log is read twice.
"""

import functools
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup

from common.charts.chart import Chart
from common.charts.page import document, figure
from common.printable import printable
from common.whole_files import NAME_BYTES, write_whole
from protocol.default_outcome import is_measured
from run_benchmarks.console.console import LOG
from run_benchmarks.console.language import ENGLISH, Words, size_in_words, words
from run_benchmarks.history.recent import Drawn, drawn
from run_benchmarks.plan.plan import round_folder
from run_benchmarks.report.case_charts import baseline_chart, round_charts
from run_benchmarks.report.host_charts import monitors_chart
from run_benchmarks.report.overview import SYMBOLS, CaseLine, Overview, energy_of, joules_text, overview
from run_benchmarks.report.settings import changed_settings
from run_benchmarks.results.curves import RoundCurves, read_curves
from run_benchmarks.results.loading import LoadedRun
from run_benchmarks.results.outcomes import report_blocks
from run_benchmarks.results.prediction import prediction_blocks
from run_benchmarks.results.records import CaseRecord, NodeRecord, RoundRecord, RunRecord, write_text
from run_benchmarks.results.seal import node_folder
from run_benchmarks.results.summary import show, show_spread, with_units

TEMPLATE, STYLE = "report.html.j2", "report.css"
MOST_NODES = 32  # of a round, in a table; the others are in the charts and in round.json
MOST_ROWS = 40  # of a list that is in the page at once
MOST_WARNINGS = 8  # that stand unfolded
UNSHOWN: dict[str, Any] = {
    "metrics": {},
    "baseline": None,
    "prediction": None,
    "expectations": [],
    "sentences": [],
    "warnings": [],
}


def write_report(result_dir: Path, run: RunRecord, rounds: Sequence[RoundRecord], history: str = "") -> Path:
    """Write a run's page into its folder, in the terminal's language; returns its path. `history`: as write_page.

    Whatever had the page's name there, a link or a pipe too, is gone.
    """
    by_case = {case.name: [record for record in rounds if record.case == case.name] for case in run.cases}
    path = result_dir / "report.html"
    write_text(path, _text([LoadedRun(folder=result_dir, record=run, rounds=by_case)], result_dir, history, words))
    return path


def write_page(runs: Sequence[LoadedRun], path: Path, history: str = "", words: Words = ENGLISH) -> None:
    """Write one page of these runs, whose links lead to their folders, as `whole_file` does.

    `history`: the database of earlier runs as an SQLAlchemy URL, "" for none; a page without it is written, too.

    Raises:
        InputProblems: other files are kept, and it is there with other content.
        OSError: the file cannot be written.
    """
    write_whole(path, [_text(runs, path.parent, history, words).encode(errors=NAME_BYTES)])


def _text(runs: Sequence[LoadedRun], folder: Path, history: str, words: Words) -> str:
    """The page, for a place in a folder."""
    histories = _histories(runs, history, words)
    try:
        page = _page(runs, folder, histories, words)
        page.encode("utf-8")
    except Exception as error:  # noqa: BLE001 - a page without what hosts sent is better than none
        LOG.warning(
            "The report is without the measurements, which cannot be shown: %s: %s", type(error).__name__, error
        )
        page = _page([_bare(run) for run in runs], folder, histories, words, with_curves=False)
    return page


def _histories(runs: Sequence[LoadedRun], url: str, words: Words) -> Drawn:
    """The element of each case that has a history, by the folder of its run."""
    if not url:
        return {}
    found, problem = drawn([run.folder for run in runs], url, words.language)
    if problem:
        LOG.warning("The report is without the history: %s", problem)
    return found


def _page(runs: Sequence[LoadedRun], folder: Path, histories: Drawn, words: Words, *, with_curves: bool = True) -> str:
    view = overview(runs, words)
    body = _template().render(
        view=view,
        pages=_Pages(view, folder, words, with_curves=with_curves),
        runs=runs,
        histories=histories,
        words=words,
    )
    title = " ".join(run.record.run_id for run in runs[:3])
    style = (Path(__file__).parent / STYLE).read_text(encoding="utf-8")
    return document(f"ClusterDyno {title}", body, lang=words.language, style=style)


class _Pages:
    """The parts that the template asks for while it is filled; the curves of one round are in memory at a time."""

    def __init__(self, view: Overview, folder: Path, words: Words, *, with_curves: bool) -> None:
        self._folder, self._words, self._with_curves = folder, words, with_curves
        self._read: tuple[Path | None, RoundCurves] = None, RoundCurves()
        self._suspects = {each.host for each in view.drained} | {
            name for name, state, _ in view.hosts if state != "healthy"
        }

    def link(self, line: CaseLine, record: RoundRecord, *parts: str) -> str:
        """The address of a round's folder, or of a file in it, from the page."""
        where = line.run.folder / line.case.folder / round_folder(record.round, record.attempt)
        return quote("/".join((os.path.relpath(where, self._folder), *parts)), errors="surrogateescape")

    def node_link(self, line: CaseLine, record: RoundRecord, host: str, node_rank: int, name: str) -> str:
        """The address of a file of a node."""
        return self.link(line, record, node_folder(host, node_rank), name)

    def charts(self, line: CaseLine, record: RoundRecord) -> Iterator[Chart]:
        """The charts of a round that need no benchmark."""
        curves = self._curves(line, record)
        yield from round_charts(record, curves.steps, self._words)

    def monitors(self, line: CaseLine, record: RoundRecord) -> Chart | None:
        """The monitors of a round over time."""
        return monitors_chart(self._curves(line, record), record, self._suspects, self._words)

    def _curves(self, line: CaseLine, record: RoundRecord) -> RoundCurves:
        if not self._with_curves:
            return RoundCurves()
        folder = line.run.folder / line.case.folder / round_folder(record.round, record.attempt)
        if self._read[0] != folder:
            self._read = None, RoundCurves()  # not two rounds at a time
            self._read = folder, read_curves(folder)
        return self._read[1]

    def worst_first(self, nodes: Sequence[NodeRecord]) -> list[NodeRecord]:
        """The nodes of a round, those that failed, lack files or are of a suspect host before the others."""
        return sorted(nodes, key=lambda node: not (node.exit_code or node.missing or node.host in self._suspects))

    def disturbances(self, record: RoundRecord) -> list[str]:
        """Each disturbance of a round, with its seconds since the round began, and what was not watched."""
        begin, unwatched = record.started_ms, record.integrity.unwatched if record.integrity else ()
        told = [
            f"{each} ({(each.from_ms - begin) / 1000:+.1f} s to {(each.to_ms - begin) / 1000:+.1f} s)"
            if each.from_ms is not None and each.to_ms is not None
            else str(each)
            for each in record.told_remarks
        ]
        return [*told, *(self._words("Not watched: {what}", what=what) for what in unwatched)]

    def energy(self, case: CaseRecord) -> str:
        """Energy of a round by meter, and what it did for a joule."""
        found = energy_of(case)
        if found is None:
            return ""
        parts = [f"{meter} {joules_text(joules)}" for meter, joules in case.joules.items()]
        samples, per_sample = case.metrics.get("num_trained_samples"), tokens_per_sample(case.metrics)
        if is_measured(samples) and found[0] > 0:
            per_joule = [f"{samples / found[0]:.4g} samples/J"]
            if per_sample:
                per_joule.append(f"{samples * per_sample / found[0]:.4g} tokens/J")
            parts.append(" or ".join(per_joule))
        return ", ".join(parts)


def tokens_per_sample(metrics: Mapping[str, Any]) -> float | None:
    """Tokens of a sample by the rates of a training, dimensionless; None where it has none."""
    samples, tokens = metrics.get("training_sequences_per_second"), metrics.get("tokens_per_second")
    return tokens / samples if is_measured(samples) and is_measured(tokens) and samples > 0 else None


def _harmless(value: object) -> object:
    """Text without anything that a browser, or a terminal that shows the page's source, would interpret."""
    return value if hasattr(value, "__html__") else printable(str(value))


@jinja2.pass_context
def _drawn(context: jinja2.runtime.Context, chart: Chart) -> Markup:
    """A chart, whose texts may be a host's, as an element of the page."""
    words: Words = context["words"]
    return Markup(figure(chart._replace(title=words(chart.title)), words("Numbers")))


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
    environment.filters |= {
        "element": Markup,
        "drawn": _drawn,
        "show": show,
        "show_spread": show_spread,
        "with_units": with_units,
        "changed_settings": changed_settings,
        "shell": shlex.join,
    }
    environment.globals |= {
        "report_blocks": report_blocks,
        "prediction_blocks": prediction_blocks,
        "baseline_chart": baseline_chart,
        "block_kind": lambda block: type(block).__name__,
        "SYMBOLS": SYMBOLS,
        "size_in_words": size_in_words,
        "MOST_NODES": MOST_NODES,
        "MOST_ROWS": MOST_ROWS,
        "MOST_WARNINGS": MOST_WARNINGS,
    }
    return environment.get_template(TEMPLATE)


def _bare(run: LoadedRun) -> LoadedRun:
    """A run without the measurements that its hosts sent."""
    cases = [case.model_copy(update=UNSHOWN) for case in run.record.cases]
    rounds = {case: [_bare_round(record) for record in records] for case, records in run.rounds.items()}
    record = run.record.model_copy(update={"cases": cases})
    return LoadedRun(folder=run.folder, record=record, rounds=rounds)


def _bare_round(record: RoundRecord) -> RoundRecord:
    nodes = [node.model_copy(update={"monitor": None}) for node in record.nodes]
    warnings = [*record.warnings, "its measurements cannot be shown: round.json has them"]
    bare: dict[str, Any] = {"metrics": {}, "steps": [], "nodes": nodes, "warnings": warnings, "integrity": None}
    return record.model_copy(update=bare)
