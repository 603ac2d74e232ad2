"""Predicts training iterations: `python -m simulation predict`."""

import argparse
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from common.command_line import new_path
from common.errors import MistakeList, input_problem
from common.summary import JsonValue, Summary, counted
from common.whole_files import STDOUT, write_all, write_whole
from simulation.common.dialect import DEFAULT_DIALECT

if TYPE_CHECKING:  # the start of the command needs none of them
    from simulation.predict.idle import Tried
    from simulation.predict.machine import Machine
    from simulation.predict.network import Network
    from workloads.job.training_job import TrainingJob

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
    "fsdp": ("--fsdp", "ranks that hold one copy of the weights (HSDP); 1: all data-parallel ranks (0)"),
    "power_limit_W": ("--power-limit", "watts that a GPU may draw (its datasheet's)"),
    "overlap": ("--overlap", "none: no communication beside compute"),
}
AICB_NAMES = {
    "gpus": ("--world_size",),
    "tp": ("--tensor_model_parallel_size",),
    "pp": ("--pipeline_model_parallel",),
    "vpp": ("--virtual_pipeline",),
    "cp": ("--context_parallel_size",),
    "ep": ("--expert_model_parallel_size",),
    "mbs": ("--micro_batch",),
    "gbs": ("--global_batch",),
    "seq": ("--seq_length",),
}
"""Names of the same options in `workloads generate` and AICB."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of predict: the jobs, their layout, and the machine."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--model", metavar="PRESET", help="a model of the dialect framework, such as llama3_70b")
    what.add_argument("--job", type=Path, metavar="FILE", help="a job in JSON or YAML, in the columns of --rows")
    what.add_argument("--rows", type=Path, metavar="FILE.csv", help="many jobs; --output gets them with predictions")
    add_layout(parser)
    parser.add_argument(
        "--phase",
        choices=(*PHASES, BOTH),
        help="without gradients: whole prompts, a token of each sequence; --mbs and --seq may be lists, as 1,8,64",
    )
    parser.add_argument(
        "--calibrate",
        type=Path,
        metavar="FILE.csv|RUN_FOLDER",
        help="fit the machine's factors first: to measured rows, products that base ran for 2 s, or a run of this job",
    )
    parser.add_argument("-n", "--network", type=Path, metavar="FILE", help="a topology file: what joins the servers")
    parser.add_argument(
        "--level", choices=LEVELS, help="with -n: its links' rates, or flows that share them (analytical)"
    )
    parser.add_argument("--measured", type=Path, metavar="RUN_FOLDER", help="times of collectives that a run measured")
    parser.add_argument(
        "--against", type=Path, metavar="RUN_FOLDER", help="the iterations that a run measured, beside it"
    )
    parser.add_argument("--report", type=new_path, metavar="FILE.html", help="a page: the timeline, where time goes")


LEVELS = ("analytical", "flow")
PHASES, BOTH = ("prefill", "decode"), "both"
_OF_ONE_JOB = ("phase", "network", "level", "measured", "against", "report")


def add_layout(parser: argparse.ArgumentParser) -> None:
    """The options that set a column of the job."""
    for key, (flag, text) in ROW_OPTIONS.items():
        metavar = "WORD" if "," in text or key == "overlap" else "N"
        parser.add_argument(flag, *AICB_NAMES.get(key, ()), dest=f"row_{key}", metavar=metavar, help=text)


def run(arguments: argparse.Namespace) -> Summary:
    """Predict one job, or each row of a table of jobs."""
    from simulation.predict import report
    from simulation.predict.idle import figures_of, idle_columns
    from simulation.predict.iteration import predict
    from simulation.predict.job_table import carried, jobs_of, read_rows
    from simulation.predict.pieces import PieceTimes

    if arguments.rows is None:
        return _one(arguments) if arguments.phase is None else _inference(arguments)
    mistakes = MistakeList()
    _refuse_layout(arguments, mistakes)
    jobs: list[TrainingJob] = []
    with mistakes.noted():
        rows = read_rows(arguments.rows)
        jobs = jobs_of(rows)
    wanted = {(job.gpu, job.precision) for job in jobs}
    machines = mistakes.result(lambda: calibrated_machines(arguments.calibrate, wanted))
    mistakes.check()
    pieces = PieceTimes()
    predictions = [predict(job, machines[job.gpu], known=pieces) for job in jobs]
    output = arguments.output or Path(f"{arguments.rows.stem}_predicted.csv")
    write_whole(output, [report.csv_text(rows, predictions).encode()])
    errors = report.families(rows, predictions)
    said = f"{'stdout' if output == STDOUT else output}: {counted(len(rows), 'job')} predicted"
    idle = idle_columns([*rows[0]], rows, lambda row: figures_of(row, machines, pieces))
    told = _without_effect(idle, carried(rows))
    text = "\n".join([said, *told.lines, *([report.families_text(errors)] if errors else [])])
    return Summary(text, {"file": str(output), "rows": len(rows), "errors": errors, **told.data})


class _Told(NamedTuple):
    """A part of an answer: lines for a person, and data for a program."""

    lines: list[str]
    data: dict[str, JsonValue]


def _without_effect(idle: "Mapping[str, Tried]", known: Sequence[str] = ()) -> _Told:
    """The columns that change nothing: those that are known to, and those tried in all layouts; of a sample, apart."""
    sampled = {key: its for key, its in idle.items() if its.tried < its.layouts}
    sure = [*known, *(key for key in idle if key not in sampled)]
    lines = [f"without effect: {', '.join(sure)}"] if sure else []
    if sampled:
        each = ", ".join(f"{key} (tried in {its.tried} of {its.layouts} layouts)" for key, its in sampled.items())
        lines.append(f"without effect in a sample: {each}")
    counts: dict[str, JsonValue] = {key: its._asdict() for key, its in sampled.items()}
    return _Told(lines, {"without_effect": [*sure], "without_effect_in_sample": counts})


def _one(arguments: argparse.Namespace) -> Summary:
    """The prediction of one job, with what was asked for beside it."""
    from simulation.predict import against, page, report
    from simulation.predict.idle import figures_of, idle_columns
    from simulation.predict.iteration import predict
    from simulation.predict.measured_network import MeasuredLinks
    from simulation.predict.pieces import PieceTimes

    mistakes = MistakeList()
    if arguments.output is not None:
        mistakes.add("--output", arguments.output, "has no effect without --rows; --report writes a page")
    job: TrainingJob | None = mistakes.result(lambda: described_job(arguments))
    gpus = job.gpus if job else None
    network = mistakes.result(lambda: _network(arguments, job))
    links = mistakes.result(lambda: MeasuredLinks(arguments.measured, network) if arguments.measured else network)
    held = mistakes.result(lambda: against.measured(arguments.against, gpus) if arguments.against else [])
    machine = mistakes.result(lambda: _machine(arguments.calibrate, job))
    mistakes.check()
    assert job and machine
    found = predict(job, machine, links)
    row = described_row(arguments)
    pieces = PieceTimes()
    idle = idle_columns(_given(arguments), [row], lambda its: figures_of(its, {job.gpu: machine}, pieces))
    told = _without_effect(idle)
    text = "\n".join([report.text(found), *(against.sentence(found, its) for its in held), *told.lines])
    data = {**report.data(found), **told.data}
    if network:
        data["network"] = {"file": str(network.path), "level": network.level}
        text += f"\nbetween servers: {network.path}, {network.level}, {network.nic_gbps:g} GB/s a GPU"
    if isinstance(links, MeasuredLinks):
        data["measured"] = links.said()
        text += f"\nmeasured    {links.said()}"
    if held:
        data["against"] = [against.data(found, its) for its in held]
    if arguments.report:
        write_whole(arguments.report, [page.html(found, text, held).encode()])
        data["report"] = str(arguments.report)
    return Summary(text, data)


def _inference(arguments: argparse.Namespace) -> Summary:
    """Passes without gradients of every batch and length."""
    from simulation.predict import inference, inference_page
    from simulation.predict.job_table import job_of
    from simulation.predict.machine import machines

    _check_inference(arguments)
    phases = PHASES if arguments.phase == BOTH else (arguments.phase,)
    rows = [*_rows_of_passes(arguments)]
    mistakes = MistakeList()
    jobs: list[TrainingJob] = []
    for row in rows:
        with mistakes.noted():
            jobs.append(job_of(row, arguments.model or str(arguments.job)))
    mistakes.check()
    found = [inference.one_pass(job, machines()[job.gpu], phase) for phase in phases for job in jobs]
    lines = [inference.text([each for each in found if each.phase == phase]) for phase in phases]
    told = _idle_of_passes(arguments, rows, phases)
    text = "\n".join([*lines, *told.lines])
    files = []
    if arguments.output is not None:
        files.append((arguments.output, inference_page.csv_text(found)))
    if arguments.report is not None:
        files.append((arguments.report, inference_page.html(found, text)))
    write_all(files)
    return Summary(text, {**inference.data(found), **told.data})


def _rows_of_passes(arguments: argparse.Namespace) -> Iterator[dict[str, str]]:
    """The columns of a pass of every batch and length."""
    from simulation.predict import inference

    given = [(getattr(arguments, f"row_{key}") or "").split(",") for key in ("mbs", "seq")]
    asked = [*dict.fromkeys(product(*([word.strip() for word in words] for words in given)))]
    batch, length = asked[0]
    its = {**vars(arguments), "row_mbs": batch or None, "row_seq": length or None}
    first = described_row(argparse.Namespace(**its), inference.NO_COLUMNS)
    for batch, length in asked:
        yield first | ({"mbs": batch} if batch else {}) | ({"seq": length} if length else {})


def _idle_of_passes(arguments: argparse.Namespace, rows: Sequence[Mapping[str, str]], phases: Sequence[str]) -> _Told:
    """The columns that change nothing of a pass of any phase: those that no pass has, and what is tried to."""
    from simulation.predict import inference
    from simulation.predict.idle import idle_columns, is_asked
    from simulation.predict.job_table import job_of, read_job
    from simulation.predict.machine import machines

    said = {} if arguments.job is None else read_job(arguments.job)

    def figures(of: Mapping[str, str]) -> object:
        job = job_of(of, "")
        passes = (inference.one_pass(job, machines()[job.gpu], phase) for phase in phases)
        return [(each.ms, each.classes, each.memory) for each in passes]

    others = [key for key in _given(arguments) if key not in inference.NO_COLUMNS]
    dropped = [key for key in said if key in inference.NO_COLUMNS and is_asked(said[key])]
    return _without_effect(idle_columns(others, rows, figures), dropped)


def _check_inference(arguments: argparse.Namespace) -> None:
    from simulation.predict import inference

    mistakes = MistakeList()
    beside = {key: getattr(arguments, key) for key in ("calibrate", *_OF_ONE_JOB) if key not in ("phase", "report")}
    for key, value in beside.items():
        if value is not None:
            mistakes.add(f"--{key}", value, "has no effect with --phase: it is for training")
    for key in inference.OF_TRAINING:
        if (value := getattr(arguments, f"row_{key}")) is not None:
            mistakes.add(ROW_OPTIONS[key][0], value, "has no effect with --phase: it is for training")
    for key in ("mbs", "seq"):
        if (value := getattr(arguments, f"row_{key}")) is not None and not all(map(str.strip, value.split(","))):
            mistakes.add(ROW_OPTIONS[key][0], value, "must be whole numbers with commas between")
    mistakes.check()


def _machine(calibrate: Path | None, job: "TrainingJob | None") -> "Machine | None":
    """The job's machine, calibrated on rows, or a run: a burn of products, or the job itself; a wrong job has none."""
    if calibrate is None or not calibrate.is_dir():
        fitted = calibrated_machines(calibrate)
        return fitted[job.gpu] if job else None
    from simulation.predict import against, burns
    from simulation.predict.calibration import calibrated
    from simulation.predict.machine import machines

    if measured := burns.burned(machines(), calibrate, {(job.gpu, job.precision)} if job else ()):
        return measured[job.gpu] if job else None
    took = against.measured(calibrate, job.gpus if job else None, "--calibrate")
    if job is None:
        return None
    return calibrated(machines()[job.gpu], [(job, its.ms) for its in took])


def _network(arguments: argparse.Namespace, job: "TrainingJob | None") -> "Network | None":
    """The network of -n, on which the job fits, where it is right."""
    mistakes = MistakeList()
    if arguments.network is None:
        if arguments.level:
            mistakes.add("--level", arguments.level, "needs -n, a topology file")
        mistakes.check()
        return None
    from simulation.predict.network import Network

    network = Network(arguments.network, arguments.level or LEVELS[0])
    if job is None:
        return network
    network.check(job.gpus, mistakes)
    if arguments.row_gpus_per_node and job.gpus_per_node != network.per_server:
        mistakes.add("--gpus-per-node", job.gpus_per_node, f"{network.path} has servers of {network.per_server}")
    mistakes.check()
    return network


def calibrated_machines(path: Path | None, wanted: Collection[tuple[str, str]] = ()) -> "dict[str, Machine]":
    """The machines by GPU, fitted to the measured rows of a file where there is one, or to a burn by a run's folder.

    Raises:
        InputProblems: the file or a row is wrong, a row has no measured_ms, or the run had no burn, or none of a GPU
            and precision of `wanted`.
    """
    from simulation.predict import burns
    from simulation.predict.calibration import calibrated
    from simulation.predict.job_table import jobs_of, read_rows
    from simulation.predict.machine import machines
    from simulation.predict.report import measured_ms

    found = dict(machines())
    if path is None:
        return found
    if path.is_dir():
        if not (burned := burns.burned(found, path, wanted)):
            raise input_problem("--calibrate", path, "no round of base that passed timed a product")
        return found | burned
    rows = read_rows(path, "--calibrate")
    mistakes = MistakeList()
    measured = defaultdict(list)
    for row, job in zip(rows, jobs_of(rows), strict=True):
        ms = measured_ms(row, job)
        if not ms:
            mistakes.add(f"{row['']}: measured_ms", None, "must be milliseconds above 0")
        measured[job.gpu].append((job, ms))
    mistakes.check()
    for gpu, its in measured.items():
        found[gpu] = calibrated(found[gpu], its)
    return found


def given_layout(arguments: argparse.Namespace) -> dict[str, str]:
    """The columns that options set."""
    found = {key: getattr(arguments, f"row_{key}", None) for key in ROW_OPTIONS}
    return {key: value for key, value in found.items() if value is not None}


def _given(arguments: argparse.Namespace) -> list[str]:
    """The columns of a job that the user set: by options, or in its file; a preset's are nobody's."""
    from simulation.predict.job_table import written_columns

    own = [] if arguments.job is None else written_columns(arguments.job)
    return [*dict.fromkeys([*own, *given_layout(arguments)])]


def described_job(arguments: argparse.Namespace) -> "TrainingJob":
    """The job of --model or --job, with what options set."""
    from simulation.predict.job_table import job_of

    return job_of(described_row(arguments), arguments.model or str(arguments.job))


def described_row(arguments: argparse.Namespace, without: Sequence[str] = ()) -> dict[str, str]:
    """The columns of `described_job`; `without`: those of training that a pass has not."""
    from simulation.predict.job_table import MISSING, job_of, preset, read_job

    mistakes, where, given = MistakeList(), arguments.model or str(arguments.job), given_layout(arguments)
    if arguments.dialect != DEFAULT_DIALECT:
        mistakes.add("--dialect", arguments.dialect, "has no effect here: the original predicts nothing")
    row = mistakes.result(lambda: preset(arguments.model) if arguments.model else read_job(arguments.job))
    if mistakes.mistakes:  # the options can still be wrong in themselves
        own = MistakeList()
        own.result(lambda: job_of(given, where))
        mistakes.mistakes += [each for each in own.mistakes if each.allowed != MISSING]
    mistakes.check()
    # What an option sets is no longer what the file derived from it.
    for key in without:
        row.pop(key, None)
    row |= {"sp": "0"} if without else {}
    for key in ("dp", "micro_batches") if {"gpus", "tp", "pp", "cp", "mbs", "gbs"} & set(given) else ():
        row.pop(key, None)
    return {**row, **given}


def _refuse_layout(arguments: argparse.Namespace, mistakes: MistakeList) -> None:
    for key, value in given_layout(arguments).items():
        mistakes.add(ROW_OPTIONS[key][0], value, "has no effect with --rows: it is a column there")
    for key in _OF_ONE_JOB:
        if (value := getattr(arguments, key)) is not None:
            mistakes.add(f"--{key}", value, "has no effect with --rows: it is for one job")
