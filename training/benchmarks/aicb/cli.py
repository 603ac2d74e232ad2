"""Runs the command line: one function a command; OVERVIEW lists them."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

from common.whole_files import is_special
from workloads import dialects
from workloads.api import generate, simai
from workloads.formats import csvfile
from workloads.formats.workload import Workload
from workloads.job.errors import AicbError, notes_on_stderr
from workloads.job.parameters import SCRIPTS_NAMES

PROGRAM = ".venv/bin/python -m training.benchmarks.aicb"
OVERVIEW = f"""usage: {PROGRAM} COMMAND [options]

What a training step of a large model communicates, without a GPU.

  generate     write a workload as CSV: every collective and GEMM with its group, size and stage
  simai        write a workload as text for the SimAI simulator
  suite        write the ten workloads of the AICB specification 1.1
  show         summarise a workload file: operations and bytes by type, group and stage
  diff         compare two workloads: totals, and the first calls that differ
  export       write workloads as Chakra execution traces, one for each rank
  import       read a Chakra execution trace as a workload
  trace        run a real framework for one rank of any job, without a GPU, and write what it sends
  aiob         measure the sub-modules of a layer at a rank's shapes
  compute      look up, check and merge measured compute times
  log          print what was measured of an executed workload, as AICB prints it; write its log CSV
  analyze      find the rank and the operations that make an executed workload jitter; compare two runs
  visualize    write one page of an executed workload or of a workload: timelines, shares, sizes, bandwidths
  deviations   list where a dialect does not do what the real framework does

Each command has its own --help. Examples:

  {PROGRAM} generate -m 13 --world_size 128 --tp 8 --sp
  {PROGRAM} generate -m llama3_405b --world_size 16384 --output llama.csv
  {PROGRAM} generate --frame DeepSpeed -m 7 --zero_stage 3 --world_size 64 --output zero3.csv
  {PROGRAM} simai -m 7 --world_size 4096 --global_batch 8192 --aiob_enable --comp_filepath times.txt
  {PROGRAM} suite --world_size 128
  {PROGRAM} diff aicb.csv framework.csv
"""
USAGE_ERROR = 2
OPERANDS = {
    "show": "FILE ", "diff": "A B ", "export": "FILE... --chakra DIR ", "import": "TRACE --output FILE ",
    "log": "LOG ", "analyze": "LOG [LOG2] ", "visualize": "LOG|WORKLOAD --output FILE ",
}  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command. Returns 0, 1 (could not write; diff: different), 2 (the user's mistake) or 130 (Ctrl-C)."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help"):
        print(OVERVIEW, end="")
        return 0 if words else USAGE_ERROR
    command = _COMMANDS.get(words[0])
    if command is None:
        near = get_close_matches(words[0], _COMMANDS, 1)
        hint = f"; did you mean {near[0]}?" if near else f"; there is {', '.join(_COMMANDS)}"
        print(f"error: unknown command {words[0]!r}{hint}", file=sys.stderr)
        return USAGE_ERROR
    try:
        with notes_on_stderr():
            return command(words[1:])
    except AicbError as error:
        for line in str(error).splitlines():
            print(f"error: {line}", file=sys.stderr)
        return USAGE_ERROR
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    except OSError as error:
        print(f"error: {error.filename or 'output'}: {error.strerror or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def parse(parser: argparse.ArgumentParser, words: list[str]) -> dict[str, Any]:
    """Parse options, also with - for _ in their names; an unknown option is an error that names the nearest one."""
    namespace, unknown = parser.parse_known_args([_underscored(word) for word in words])
    if unknown:
        known = [spelling for action in parser._actions for spelling in action.option_strings]
        wanted = unknown[0].partition("=")[0]
        near = get_close_matches(wanted, known, 1)
        parser.error(f"unknown argument {wanted}" + (f"; did you mean {near[0]}?" if near else ""))
    return vars(namespace)


def _underscored(word: str) -> str:
    """An option as it is declared: --context-parallel-size=2 becomes --context_parallel_size=2. Values stay."""
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return f"--{SCRIPTS_NAMES.get(plain := name[2:].replace('-', '_'), plain)}{equals}{value}"


def _parser(command: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        prog=f"{PROGRAM} {command}",
        usage=f"%(prog)s {OPERANDS.get(command, '')}[options]",
        description=_DESCRIPTIONS.get(command),
    )


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add the options of all commands that write."""
    parser.add_argument(
        "--dialect", choices=dialects.names(), default=dialects.DEFAULT_DIALECT,
        help="whose behaviour the workload follows: AICB 2.1's, or the real framework's (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--force",
        action="store_true",
        help="also write what breaks a rule, where the dialect has a well-defined output",
    )


def add_format(parser: argparse.ArgumentParser) -> None:
    """Add the option for the form of a workload CSV."""
    parser.add_argument(
        "--format", choices=csvfile.FORMS,
        help="columns of the CSV: AICB's, or all and each repetition once (default: AICB's where they suffice)",
    )  # fmt: skip


def save(workload: Workload, path: Path, form: str | None) -> int:
    """Write a workload CSV; returns its bytes.

    Raises:
        AicbError: a row has no place in the form.
    """
    try:
        return workload.save(path, form)
    except ValueError as error:
        raise AicbError(f"{path}: {error}") from None


def _write(words: list[str], target: str) -> int:
    from workloads import naming, options

    command = "generate" if target == "csv" else "simai"
    parser = _parser(command)
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="where to write (default: a name that says what it is)"
    )
    if target == "csv":
        add_format(parser)
    add_common(parser)
    named = dialects.named_in(words)
    options.add_to(parser, named, options.idle_in(named, target))
    given = parse(parser, words)
    output, dialect, force, form = (
        given.pop("output"),
        given.pop("dialect"),
        given.pop("force"),
        given.pop("format", None),
    )
    model_size = given.pop("model_size", None)
    try:
        args = options.resolve(given, model_size, target, dialect)
    except ValueError as error:
        parser.error(str(error))
    workload = generate(args, dialect=dialect, force=force) if target == "csv" else None
    made = simai(args, dialect=dialect, force=force) if workload is None else workload
    options.note_idle(given, args, dialect, target)
    path = naming.default_path(args, target, dialect) if output is None else output
    size = made.save(path) if workload is None else save(workload, path, form)
    print(f"wrote {path}: {len(made)} rows, {size} bytes", file=sys.stderr if is_special(path) else sys.stdout)
    return 0


def _generate(words: list[str]) -> int:
    return _write(words, "csv")


def _simai(words: list[str]) -> int:
    return _write(words, "simai")


def _suite(words: list[str]) -> int:
    from workloads import suite

    parser = _parser("suite")
    parser.add_argument("--world_size", type=int, required=True, metavar="N", help="GPUs in all")
    parser.add_argument("--rows", type=suite.row_list, metavar="1,2,..", help="only these rows of the specification")
    parser.add_argument(
        "--output_dir", type=Path, default=Path("results/suite"), metavar="DIR", help="default: %(default)s"
    )
    parser.add_argument("--target", choices=("csv", "simai"), default="csv", help="default: %(default)s")
    parser.add_argument(
        "--num_microbatches", type=int, metavar="N", help="micro-batches a rank runs (default: one a pipeline stage)"
    )
    add_common(parser)
    given = parse(parser, words)
    suite.write_all(**given)
    return 0


def _show(words: list[str]) -> int:
    from workloads.analysis import show

    parser = _parser("show")
    parser.add_argument("file", type=Path, help="a workload CSV (ours or AICB's) or a SimAI text")
    parser.add_argument("--json", action="store_true", help="the summary as JSON")
    given = parse(parser, words)
    print(show.summary(given["file"], as_json=given["json"]))
    return 0


def _diff(words: list[str]) -> int:
    from workloads.analysis import diff

    parser = _parser("diff")
    parser.add_argument("first", type=Path, metavar="A", help="a workload CSV of any form, a trace's too")
    parser.add_argument("second", type=Path, metavar="B", help="the one to compare it with")
    parser.add_argument("--json", action="store_true", help="the comparison as JSON")
    given = parse(parser, words)
    found = diff.compare(Workload.load(given["first"])[0], Workload.load(given["second"])[0])
    print(json.dumps(found.to_dict(), indent=1) if given["json"] else "\n".join(found.lines()))
    return 0 if found.same else 1


def _export(words: list[str]) -> int:
    from workloads.formats.chakra import command

    parser = _parser("export")
    command.add_export(parser)
    command.export(parse(parser, words))
    return 0


def _import(words: list[str]) -> int:
    from workloads.formats.chakra import command

    parser = _parser("import")
    command.add_import(parser)
    command.load(parse(parser, words))
    return 0


def _deviations(words: list[str]) -> int:
    parser = _parser("deviations")
    parser.add_argument("--dialect", choices=dialects.names(), default="aicb", help="default: %(default)s")
    for deviation in dialects.get(parse(parser, words)["dialect"]).deviations:
        print(f"{deviation.name}\n    {deviation.what}")
    return 0


def _in_module(command: str, module: str) -> Callable[[list[str]], int]:
    """The command that is `main(parser, parse, words)` of a module, loaded when it is called."""

    def run(words: list[str]) -> int:
        found = import_module(module)
        parser = _parser(command)
        parser.description = getattr(found, "DESCRIPTION", parser.description)
        return int(found.main(parser, parse, words))

    return run


_COMMANDS = {
    "generate": _generate,
    "simai": _simai,
    "suite": _suite,
    "show": _show,
    "diff": _diff,
    "export": _export,
    "import": _import,
    "deviations": _deviations,
    "trace": _in_module("trace", "workloads.trace.command"),
    "aiob": _in_module("aiob", "training.benchmarks.aicb.measuring.command"),
    "compute": _in_module("compute", "workloads.compute.command"),
    "log": _in_module("log", "training.benchmarks.aicb.commands.log"),
    "analyze": _in_module("analyze", "training.benchmarks.aicb.commands.analyze"),
    "visualize": _in_module("visualize", "training.benchmarks.aicb.commands.visualize"),
}
_DESCRIPTIONS = {
    "generate": "Writes a workload as CSV.",
    "simai": "Writes a workload as text for the SimAI simulator (aicb's frame collective_test: its micro test).",
    "suite": "Writes the ten workloads of the AICB specification 1.1.",
    "show": "Summarises a workload file.",
    "export": "Writes workload CSVs as execution traces of MLCommons Chakra, one for each rank.",
    "import": "Reads an execution trace of MLCommons Chakra as a workload CSV.",
    "diff": "Compares two workload CSVs. Exit codes: 0 same, 1 different, 2 the input is wrong.",
    "trace": "Runs Megatron-core, FSDP2 or DeepSpeed itself for one rank on this machine and writes what it sends.",
    "compute": "Looks up, shows, checks and merges measured compute times of kernels.",
    "deviations": "Lists where a dialect does not do what the real framework does.",
}
