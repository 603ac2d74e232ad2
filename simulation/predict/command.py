"""Predicts training iterations: `python -m simulation predict`."""

import argparse
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from common.errors import MistakeList, input_problem
from common.summary import Summary, counted
from common.whole_files import STDOUT, write_whole
from simulation.common.dialect import DEFAULT_DIALECT

if TYPE_CHECKING:  # the start of the command needs neither
    from simulation.predict.job import TrainingJob
    from simulation.predict.machine import Machine

ROW_OPTIONS = {
    "gpu": ("--gpu", "GPU type: A100, H100, H200, B200, B300, GB200, GB300, L40S"),
    "gpus": ("--gpus", "how many GPUs"),
    "gpus_per_node": (
        "--gpus-per-node",
        "GPUs of a server, which NVLink joins (8); GB200, GB300: of a tray (4), or 36 or 72 of a rack",
    ),
    "precision": ("--precision", "bf16, fp8 or nvfp4 (bf16)"),
    "tp": ("--tp", "tensor parallel"),
    "pp": ("--pp", "pipeline stages"),
    "vpp": ("--vpp", "chunks of a stage"),
    "cp": ("--cp", "context parallel"),
    "ep": ("--ep", "expert parallel"),
    "mbs": ("--mbs", "samples of a micro-batch (1)"),
    "gbs": ("--gbs", "samples of an iteration (one micro-batch a replica)"),
    "seq": ("--seq", "tokens of a sample (the model's)"),
    "recompute": ("--recompute", "none, selective or full (none)"),
    "fsdp": ("--fsdp", "1: weights are sharded over the data-parallel ranks (0)"),
    "overlap": ("--overlap", "none: no communication beside compute"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See VerbModule."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--model", metavar="PRESET", help="a model of the dialect framework, such as llama3_70b")
    what.add_argument("--job", type=Path, metavar="FILE", help="a job in JSON or YAML, in the columns of --rows")
    what.add_argument("--rows", type=Path, metavar="FILE.csv", help="many jobs; --output gets them with predictions")
    add_layout(parser)
    parser.add_argument(
        "--calibrate", type=Path, metavar="FILE.csv", help="fit the machine's factors to measured rows first"
    )
    parser.add_argument("--force", action="store_true", help="overwrite a file that has other content")


def add_layout(parser: argparse.ArgumentParser, without: Sequence[str] = ()) -> None:
    """The options that set a column of the job, but for those of `without`."""
    for key, (flag, text) in ROW_OPTIONS.items():
        if key not in without:
            parser.add_argument(flag, dest=f"row_{key}", metavar="N" if "," not in text else "WORD", help=text)


def run(arguments: argparse.Namespace) -> Summary:
    """See VerbModule."""
    from simulation.predict import report
    from simulation.predict.iteration import predict
    from simulation.predict.job_table import jobs_of, read_rows

    machines = calibrated_machines(arguments.calibrate)
    if arguments.rows is None:
        if arguments.output is not None:
            raise input_problem("--output", arguments.output, "has no effect without --rows")
        job = described_job(arguments)
        found = predict(job, machines[job.gpu])
        return Summary(report.text(found), report.data(found))
    _refuse_layout(arguments)
    rows = read_rows(arguments.rows)
    predictions = [predict(job, machines[job.gpu]) for job in jobs_of(rows)]
    output = arguments.output or Path(f"{arguments.rows.stem}_predicted.csv")
    write_whole(output, [report.csv_text(rows, predictions).encode()], keep_other=not arguments.force)
    errors = report.families(rows, predictions)
    said = f"{'stdout' if output == STDOUT else output}: {counted(len(rows), 'job')} predicted"
    text = f"{said}\n{report.families_text(errors)}" if errors else said
    return Summary(text, {"file": str(output), "rows": len(rows), "errors": errors})


def calibrated_machines(path: Path | None) -> "dict[str, Machine]":
    """The machines by GPU, fitted to the measured rows of a file where there is one.

    Raises:
        InputProblems: the file or a row is wrong, or a row has no measured_ms.
    """
    from simulation.predict.calibration import calibrated
    from simulation.predict.job_table import jobs_of, read_rows
    from simulation.predict.machine import machines

    found = dict(machines())
    if path is None:
        return found
    rows = read_rows(path)
    mistakes = MistakeList()
    measured = defaultdict(list)
    for row, job in zip(rows, jobs_of(rows), strict=True):
        try:
            ms = float(row.get("measured_ms", ""))
        except ValueError:
            ms = 0.0
        if not 0 < ms < 1e9:
            mistakes.add(f"{row['']}: measured_ms", row.get("measured_ms"), "must be milliseconds above 0")
        measured[job.gpu].append((job, ms))
    mistakes.check()
    for gpu, its in measured.items():
        found[gpu] = calibrated(found[gpu], its)
    return found


def given_layout(arguments: argparse.Namespace) -> dict[str, str]:
    """The columns that options set."""
    found = {key: getattr(arguments, f"row_{key}", None) for key in ROW_OPTIONS}
    return {key: value for key, value in found.items() if value is not None}


def described_job(arguments: argparse.Namespace) -> "TrainingJob":
    """The job of --model or --job, with what options set."""
    from simulation.predict.job_table import job_of, preset, read_job

    if arguments.dialect != DEFAULT_DIALECT:
        raise input_problem("--dialect", arguments.dialect, "has no effect here: the original predicts nothing")
    row = preset(arguments.model) if arguments.model else read_job(arguments.job)
    where = arguments.model or str(arguments.job)
    given = given_layout(arguments)
    # What an option sets is no longer what the file derived from it.
    for key in ("dp", "micro_batches") if {"gpus", "tp", "pp", "cp", "mbs", "gbs"} & set(given) else ():
        row.pop(key, None)
    return job_of({**row, **given}, where)


def _refuse_layout(arguments: argparse.Namespace) -> None:
    mistakes = MistakeList()
    for key, value in given_layout(arguments).items():
        mistakes.add(ROW_OPTIONS[key][0], value, "has no effect with --rows: it is a column there")
    mistakes.check()
