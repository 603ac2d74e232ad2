"""Writes the workload that parameters describe: the verbs `generate` and `simai`, and `job`, the parameters alone."""

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.command_line import FunctionVerb, VerbParser, new_path
from common.errors import MistakeList
from common.summary import JsonValue, Summary
from common.whole_files import refuse_stdout, target, whole_set, write_whole
from workloads import dialects, options
from workloads.dialects.generation import check, generate, simai
from workloads.formats import FORMS
from workloads.job import rules
from workloads.job.errors import AicbError, ParameterError
from workloads.job.naming import default_path
from workloads.job.parameters import WorkloadArgs

if TYPE_CHECKING:  # the start of a command needs no format
    from workloads.formats.workload import Workload


@dataclass(frozen=True)
class Writing:
    """A verb that writes one kind of file. target: csv, or simai for SimAI's text."""

    target: str

    def add_arguments(self, parser: VerbParser) -> None:
        """Add the options of the target: where and in which form it is written, and those that describe the job."""
        parser.add_argument(
            "--output",
            type=new_path,
            metavar="FILE",
            help="where to write, a file or a folder; - is stdout (default: a name that says what)",
        )
        if self.target == "csv":
            parser.add_argument(
                "--format", choices=FORMS,
                help="columns of the CSV: AICB's, or all and each repetition once (default: AICB's where they suffice)",
            )  # fmt: skip
            parser.add_argument(
                "--every_stage", action="store_true", help="a file of each pipeline stage: NAME-stage0.csv and so on"
            )
        add_dialect(parser)
        named = dialects.named_in(parser.words)
        shows_help = any(word.startswith(("-h", "--h")) for word in parser.words)
        options.add_to(parser, named, options.idle_in(named, self.target) if shows_help else ())

    def run(self, arguments: argparse.Namespace) -> Summary:
        """Write the workload of the job that the options describe, or one of every pipeline stage."""
        given = vars(arguments)
        output, dialect, breaks = given.pop("output"), given.pop("dialect"), given.pop("break_rules")
        form = given.pop("format", None)
        every = given.pop("every_stage", False)
        mistakes = MistakeList()
        with mistakes.noted():
            args = options.described(given, self.target, dialect)
            if every:
                check(args, dialects.get(dialects.DEFAULT_DIALECT), "csv", break_rules=breaks)
        if every:  # `given` has what the job's file says by now
            _refuse_stages(given, output, dialect, mistakes)
        mistakes.check()
        if every:
            options.note_positions(given, args)
            options.note_idle(given, args, dialect, self.target)
            return _of_every_stage(args, output, form, break_rules=breaks)
        made = simai(args, dialect=dialect, break_rules=breaks) if self.target == "simai" else None
        workload = generate(args, dialect=dialect, break_rules=breaks) if made is None else None
        options.note_positions(given, args)
        options.note_idle(given, args, dialect, self.target, workload)
        path = _place(args, output, self.target, dialect)
        size = _save(workload, path, form) if workload is not None else made.save(path) if made is not None else 0
        rows = len(workload if made is None else made)  # type: ignore[arg-type]
        return Summary(
            f"wrote {path}: {rows} rows, {size} bytes: {args.in_short()}",
            {"file": str(path), "rows": rows, "bytes": size, "dialect": dialect, "job": args.to_dict()},
        )


def _refuse_stages(given: dict[str, Any], output: Path | None, dialect: str, mistakes: MistakeList) -> None:
    if "pp_rank" in given:
        mistakes.add("--pp_rank", given["pp_rank"], "is one stage, --every_stage is all")
    if output is not None and not output.is_dir():
        refuse_stdout(output, "each stage has a file", mistakes)
    if dialect != dialects.DEFAULT_DIALECT:
        mistakes.add("--dialect", dialect, "has the schedule of the first stage for each")


def _place(args: WorkloadArgs, output: Path | None, kind: str, dialect: str) -> Path:
    """Where to write a checked job: to a usual name, also in a folder that was given, or to the path that was given."""
    usual = default_path(args, kind, dialect)
    return usual if output is None else target(output, usual.name)


def _of_every_stage(args: WorkloadArgs, output: Path | None, form: str | None, *, break_rules: bool) -> Summary:
    """Write the workload of each stage beside the others."""
    path = _place(args, output, "csv", dialects.DEFAULT_DIALECT)
    lines, files = list[str](), list[JsonValue]()
    with whole_set():
        for stage in range(args.pipeline_model_parallel):
            workload = generate(replace(args, pp_rank=stage), break_rules=break_rules)
            file = path.with_stem(f"{path.stem}-stage{stage}")
            size = _save(workload, file, form)
            lines.append(f"wrote {file}: {len(workload)} rows, {size} bytes")
            files.append({"file": str(file), "rows": len(workload), "bytes": size})
    return Summary("\n".join([*lines, args.in_short()]), {"files": files, "job": args.to_dict()})


def _add_job(parser: VerbParser) -> None:
    parser.add_argument(
        "--output", type=new_path, required=True, metavar="FILE", help="FILE.yaml or FILE.json; - is stdout, in YAML"
    )
    parser.add_argument(
        "--dialect", choices=dialects.names(), default=dialects.DEFAULT_DIALECT,
        help="whose ready-made models -m names (default: %(default)s)",
    )  # fmt: skip
    options.add_to(parser, dialects.named_in(parser.words))


def _write_job(arguments: argparse.Namespace) -> Summary:
    from workloads.job.description import text_of

    given = vars(arguments)
    output, dialect = given.pop("output"), given.pop("dialect")
    args = options.described(given, "csv", dialect)
    problems = [problem.text for problem in rules.check(args)]
    if problems:
        raise ParameterError(problems)
    data = text_of(args, as_json=output.suffix == ".json").encode()
    write_whole(output, [data], size=len(data))
    return Summary(f"wrote {output}: {args.in_short()}", {"file": str(output), "job": args.to_dict()})


def add_dialect(parser: argparse.ArgumentParser) -> None:
    """Add the options of all verbs that write by a dialect's rules."""
    parser.add_argument(
        "--dialect", choices=dialects.names(), default=dialects.DEFAULT_DIALECT,
        help="whose behaviour the workload follows: AICB 2.1's, or the real framework's (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--break_rules", action="store_true", help="also write what breaks a rule, if the dialect has an output"
    )


def _save(workload: "Workload", path: Path, form: str | None) -> int:
    """Write a workload CSV; returns its bytes."""
    try:
        return workload.save(path, form)
    except ValueError as error:
        raise AicbError(f"{path}: {error}") from None


GENERATE = Writing("csv")
SIMAI = Writing("simai")
JOB = FunctionVerb(_add_job, _write_job)
