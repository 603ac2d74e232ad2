"""Reads the command line of `python -m simulation` and runs one verb."""

import argparse
import importlib
import signal
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import FrameType
from typing import NoReturn, Protocol, TypeAlias, cast

from common.errors import InputProblems, SimulationError, input_problem
from common.summary import Summary
from common.whole_files import STDOUT, STDOUT_NAMES
from simulation.common.dialect import DEFAULT_DIALECT, DIALECTS

PROGRAM = ".venv/bin/python -m simulation"
# A verb is one line here and a module with HELP, add_arguments(parser) and run(arguments) -> Summary.
VERBS = {
    "topology": "simulation.topology.command",
    "flows": "simulation.flows.command",
    "topology show": "simulation.topology.show_command",
    "topology edit": "simulation.topology.edit_command",
    "topology draw": "simulation.topology.draw_command",
    "topology export": "simulation.topology.export_command",
    "topology import": "simulation.topology.import_command",
    "analytical": "simulation.analytical.command",
    "network": "simulation.network.command",
}
_Handler: TypeAlias = "Callable[[int, FrameType | None], object] | int | None"
WORKED, FAILED, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130


class VerbModule(Protocol):
    """The module of a verb. Verbs of one word get --output, --json and --dialect; those of two words get --json."""

    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the verb's own options."""

    def run(self, arguments: argparse.Namespace) -> Summary:
        """Do the work; a mistake in the input is an InputProblems, a failure a SimulationError."""


class VerbParser(argparse.ArgumentParser):
    """Reports a mistake of the command line as an exception, so that it looks like every other mistake."""

    def error(self, message: str) -> NoReturn:
        """See ArgumentParser."""
        raise input_problem(self.prog.removeprefix(f"{PROGRAM} "), None, f"{message} (see {self.prog} --help)")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; returns 0 (worked), 1 (failed), 2 (a mistake in the input) or 130 (Ctrl-C)."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help"):
        print(overview(), end="")
        return WORKED if words else WRONG_INPUT
    former = _stop_at_termination()
    try:
        return _run(words)
    except InputProblems as problems:
        _complain(str(problems))
        return WRONG_INPUT
    except SimulationError as error:
        _complain(str(error))
        return FAILED
    except BrokenPipeError:
        sys.stderr.close()
        return FAILED
    except OSError as error:
        _complain(f"{error.filename or 'output'}: {error.strerror or error}")
        return FAILED
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def overview() -> str:
    """The text of `python -m simulation --help`."""
    width = max(map(len, VERBS))
    verbs = "".join(f"  {verb:<{width}}  {module_of(verb).HELP}\n" for verb in VERBS)
    return (
        f"usage: {PROGRAM} VERB [options]\n\nSimulates AI clusters on a laptop, without a GPU.\n\n{verbs}\n"
        "Each verb has its own --help. Exit codes: 0 worked, 1 failed, 2 a mistake in the input, 130 interrupted.\n"
    )


def module_of(verb: str) -> VerbModule:
    """The module of a verb, imported now."""
    return cast(VerbModule, importlib.import_module(VERBS[verb]))


def _run(words: list[str]) -> int:
    verb, rest = _split(words)
    module = module_of(verb)
    parser = VerbParser(prog=f"{PROGRAM} {verb}", description=module.HELP, allow_abbrev=False)
    if " " not in verb:
        parser.add_argument("--output", type=Path, metavar="FILE", help="where to write; - is stdout")
        parser.add_argument("--dialect", choices=DIALECTS, default=DEFAULT_DIALECT, help="default: %(default)s")
    parser.add_argument("--json", action="store_true", help="print the summary as one JSON object")
    module.add_arguments(parser)
    arguments = parser.parse_args(rest)
    to_stdout = getattr(arguments, "output", None) in STDOUT_NAMES
    if to_stdout:
        arguments.output = STDOUT
    if to_stdout and arguments.json:
        raise input_problem("--json", None, "stdout takes one of the two: give --output a file's name")
    summary = module.run(arguments)
    print(summary.as_json() if arguments.json else summary.text, file=sys.stderr if to_stdout else sys.stdout)
    return FAILED if summary.failed else WORKED


def _split(words: list[str]) -> tuple[str, list[str]]:
    """The verb, of one or two words, and the rest."""
    pair = " ".join(words[:2])
    if pair in VERBS:
        return pair, words[2:]
    if words[0] not in VERBS:
        near = get_close_matches(words[0], VERBS, 1)
        hint = f"did you mean {near[0]}?" if near else f"there is {', '.join(VERBS)}"
        raise input_problem("unknown verb", words[0], hint)
    return words[0], words[1:]


def _complain(text: str) -> None:
    for line in text.splitlines():
        print(f"error: {line}", file=sys.stderr)


def _stop_at_termination() -> dict[signal.Signals, "_Handler"]:
    """Let SIGTERM and SIGHUP end the work as Ctrl-C does; returns the former handlers."""

    def stop(_number: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    try:
        return {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    except ValueError:  # not in the main thread
        return {}
