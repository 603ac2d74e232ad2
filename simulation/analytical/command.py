"""Computes an iteration's time from a workload and a cluster's bandwidths: `python -m simulation analytical`."""

import argparse
import stat
import sys
from codecs import BOM_UTF8
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from common.errors import MistakeList, input_problem
from common.printable import printable
from common.summary import JsonValue, Summary
from common.units import rates_taken
from common.whole_files import is_special, target, whole_files
from simulation.analytical.aicb_rows import read_aicb
from simulation.analytical.busbw_file import read_busbw
from simulation.analytical.chakra_rows import read_chakra
from simulation.analytical.evaluation import Evaluation
from simulation.analytical.machine import Cluster, Question
from simulation.analytical.model import RepairedModel
from simulation.analytical.original.model import OriginalModel
from simulation.analytical.repairs import chosen_repairs, in_force
from simulation.analytical.report import (
    csv_chunks,
    explained_text,
    inputs,
    json_chunks,
    report_text,
    settled,
    summary_data,
)
from simulation.analytical.schedules import CLOSED
from simulation.analytical.settings import DIGITS, divide, read_options
from simulation.analytical.times import Model, Overview
from simulation.analytical.workload import RowSource, TextWorkload
from simulation.common.dialect import SIMAI, Repair, header
from simulation.common.untimed import warn_if_untimed
from workloads.formats.simai_text import BEGINNING, MICRO, POLICY, begins_simai

SIMAI_TEXT, AICB_CSV, CHAKRA = "SimAI text", "AICB CSV", "Chakra trace"


def open_source(path: Path, arguments: argparse.Namespace, cluster: Cluster | None, simai: bool) -> RowSource:
    """Open a workload file; with `simai`, SimAI's dialect, rows beyond the count in its header are left unread.

    cluster: None if its options are wrong; the file is then read only to find its mistakes, too.

    Raises:
        InputProblems: it cannot be read, or its form is not known.
    """
    kind = _kind(path)
    if arguments.group and kind != CHAKRA:
        raise input_problem("--group", arguments.group[0], f"is for Chakra traces; {path} is {kind}")
    if kind == SIMAI_TEXT:
        return TextWorkload(path, lenient=simai)
    if simai:
        raise input_problem("-w", path, f"is {kind}; --dialect simai reads {SIMAI_TEXT} only")
    return read_aicb(path, arguments) if kind == AICB_CSV else read_chakra(path, arguments, cluster)


def _kind(path: Path) -> str:
    try:
        if not stat.S_ISREG(path.stat().st_mode) and not path.is_dir():
            raise input_problem("-w", path, "is no regular file: it is read twice")
        with path.open("rb") as file:
            text = file.read(BEGINNING).removeprefix(BOM_UTF8).decode("ascii", "replace").lstrip()
    except OSError as error:
        raise input_problem("-w", path, f"cannot be read: {error.strerror or error}") from None
    if begins_simai(text):
        return SIMAI_TEXT
    from workloads.formats.csvfile import RANKS_LINE

    if text.startswith("comm_type,") or RANKS_LINE.match(text):
        return AICB_CSV
    if path.suffix == ".et" or path.name.endswith(".et.gz"):
        return CHAKRA
    raise input_problem(
        "-w", path, f"is none of: SimAI text (begins with {POLICY} or {MICRO}), an AICB CSV, a Chakra trace (.et)"
    )


CSV_NAME, CHART_NAME = "EndToEnd.csv", "chart.html"


class Prepared(NamedTuple):
    """All that a run needs. repairs: those in force, none in the original's dialect."""

    source: RowSource
    question: Question
    model: Model
    repairs: tuple[Repair, ...]
    notes: tuple[str, ...]


def find_mistakes(arguments: argparse.Namespace) -> None:
    """Find the mistakes of options and files.

    Raises:
        InputProblems: all of them.
    """
    _prepare(arguments, arguments.dialect == SIMAI)


def run(arguments: argparse.Namespace) -> Summary:
    """Compute the times of a workload's rows and their totals, or with --explain the phases of one row."""
    simai = arguments.dialect == SIMAI
    prepared = _prepare(arguments, simai)
    for note in prepared.notes:
        print(f"warning: {printable(note)}", file=sys.stderr)
    evaluation = Evaluation(prepared.model, prepared.source, with_kinds=not simai)
    if arguments.explain is not None:
        return _explain(arguments.explain, prepared, evaluation)
    totals = evaluation.totals()
    warning = prepared.source.check_rows(evaluation.rows)
    if warning:
        print(f"warning: {warning}", file=sys.stderr)
    overview = settled(prepared.model, evaluation, totals) if simai else prepared.model.overview(totals)
    untimed = warn_if_untimed(arguments.workload, overview.computation, overview.total)
    prepared = prepared._replace(notes=(*prepared.notes, *untimed))
    if prepared.model.meaningless:
        print("warning: the original knows no bandwidth of a collective, and its result is no time", file=sys.stderr)
    return _write(arguments, prepared, evaluation, overview, simai)


def _prepare(arguments: argparse.Namespace, simai: bool) -> Prepared:
    mistakes = MistakeList()
    options = mistakes.result(lambda: read_options(arguments, simai))
    busbw = mistakes.result(lambda: arguments.busbw and read_busbw(arguments.busbw))
    cluster = None if options is None else options.cluster
    source = mistakes.result(lambda: arguments.workload and open_source(arguments.workload, arguments, cluster, simai))
    chosen = mistakes.result(lambda: chosen_repairs(arguments.without))
    _refuse_without_effect(arguments, simai, mistakes)
    mistakes.check()
    division = divide(source.header, options.cluster, arguments, simai)
    question = Question(options.cluster, division, options.overlaps, options.network)
    notes = [*(f"{arguments.workload}: {note}" for note in source.header.notes), *options.notes]
    if source.header.all_gpus not in (0, options.cluster.gpus):
        notes.append(
            f"{'-n has' if options.network else '-g is'} {options.cluster.gpus}, but {arguments.workload} was made for "
            f"{source.header.all_gpus} GPUs"
        )
    if question.slowness > 1:
        slowest = f"takes {question.slowness:g} times as long, as on the slowest GPU"
        notes.append(f"{arguments.network}: every computation {slowest}")
    if simai:
        return Prepared(source, question, OriginalModel(question, busbw or None), (), tuple(notes))
    model = RepairedModel(question, chosen, busbw or None, arguments.schedule)
    return Prepared(source, question, model, tuple(in_force(chosen)), tuple(notes))


def _refuse_without_effect(arguments: argparse.Namespace, simai: bool, mistakes: MistakeList) -> None:
    if simai:
        for flag, given in (("--without", arguments.without), ("--schedule", arguments.schedule != CLOSED)):
            if given:
                mistakes.add(flag, None, "is for the default dialect, not for --dialect simai")
    if arguments.explain is not None:
        written = {"--output": arguments.output, "-r": arguments.result, "-r_f": arguments.result_folder}
        for flag, value in (*written.items(), ("-v", None if arguments.visual == "0" else arguments.visual)):
            if value is not None:
                mistakes.add(flag, value, "has no effect beside --explain, which writes nothing")


def _write(
    arguments: argparse.Namespace, prepared: Prepared, evaluation: Evaluation, overview: Overview, simai: bool
) -> Summary:
    prefix = f"{arguments.workload.stem}-" if arguments.result is None else arguments.result
    beside = str((arguments.result_folder or Path()) / prefix) if prefix else f"{arguments.result_folder or '.'}/"
    path = Path(beside + CSV_NAME) if arguments.output is None else target(arguments.output, prefix + CSV_NAME)
    name = Path(prefix).name
    _check_output(arguments, path)
    about = _about(arguments, prepared, evaluation, overview)
    remarks = None if simai else [header(prepared.repairs), _said(prepared.question)]
    tables: dict[Path, Iterable[bytes]] = {path: csv_chunks(name, overview, evaluation, remarks)}
    if not simai and not is_special(path):
        explained = json_chunks(about, prepared.repairs, prepared.model, evaluation)
        tables[path.with_suffix(".json")] = explained
    if arguments.visual == "1":
        from simulation.analytical.chart import chart_page

        tables[Path(beside + CHART_NAME)] = [chart_page(name, overview)]
    with whole_files([*tables]) as files:
        for file, chunks in zip(files, tables.values(), strict=True):
            file.writelines(chunks)
    written = [*tables]
    text = report_text(overview, evaluation.rows, written)
    text += rates_taken({"-nv": arguments.nvlink, "-nic": arguments.nic_busbw})
    return Summary(text, about | {"files": [str(one) for one in written]})


def _check_output(arguments: argparse.Namespace, path: Path) -> None:
    """Neither the CSV nor its JSON may take the place of an input, or of one another."""
    if arguments.output is not None and arguments.result_folder is not None and arguments.visual == "0":
        raise input_problem("-r_f", arguments.result_folder, f"has no effect beside --output {path}")
    if is_special(path):
        return
    for place in (path, path.with_suffix(".json")):
        for source in (arguments.workload, arguments.busbw, arguments.network):
            if source is not None and place.resolve() == source.resolve():
                raise input_problem("--output", place, "is an input of this run")
    if path.suffix == ".json":
        raise input_problem("--output", path, "names the CSV; the JSON beside it takes that name with .json")


def _about(
    arguments: argparse.Namespace, prepared: Prepared, evaluation: Evaluation, overview: Overview
) -> dict[str, JsonValue]:
    return {
        "dialect": arguments.dialect,
        "workload": str(arguments.workload),
        "rows": evaluation.rows,
        "schedule": arguments.schedule,
        "busbw": None if arguments.busbw is None else str(arguments.busbw),
        "notes": list(prepared.notes),
        **inputs(prepared.question),
        "summary": summary_data(overview),
    }


def _explain(text: str, prepared: Prepared, evaluation: Evaluation) -> Summary:
    number = int(text) if text.isdecimal() and len(text) <= DIGITS else 0
    row = evaluation.row(number) if number else None
    if row is None:
        raise input_problem("--explain", text, f"allowed is a row's number, 1 to {prepared.source.header.rows}")
    try:
        phases = prepared.model.explain(row[1])
    except ValueError as error:
        raise input_problem(prepared.source.place(number), None, str(error)) from None
    name, place = row[0].decode("utf-8", "replace"), prepared.source.place(number)
    data: dict[str, JsonValue] = {"row": number, "place": place, "layer_name": name, **phases}
    return Summary(explained_text(place, name, phases), data)


def _said(question: Question) -> str:
    cluster, division = question.cluster, question.division
    nvls = "no NVLS" if cluster.nvls is None else f"NVLS {cluster.nvls:g} GB/s"
    return (
        f"{cluster.gpus} GPUs, {cluster.gpus_per_server} a server with {cluster.nics_per_server} NICs; NVLink "
        f"{cluster.nvlink:g} GB/s, {nvls}, NIC {cluster.nic:g} GB/s; tp {division.tp}, ep {division.ep}, "
        f"pp {division.pp}, dp {division.dp}, vpp {division.vpp}, ga {division.ga}, pp_comm {division.pp_comm} bytes"
    )
