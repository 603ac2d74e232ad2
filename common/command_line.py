"""Reads the command line of a program of verbs, such as `python -m simulation`, and runs one of them.

The programs share it, and so the spelling of options (- and _ mean the same), the form of mistakes (all at once, a line
each), --json, --output, what is printed, and the exit codes.
"""

import argparse
import importlib
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from functools import partial
from itertools import takewhile
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, NoReturn, Protocol, TextIO, TypeAlias

from common.errors import (
    InputNote,
    InputProblems,
    Problem,
    SimulationError,
    allowed_names,
    closest,
    input_problem,
    stated,
)
from common.printable import printable
from common.summary import Answer, Summary
from common.unread import drop, has_readers, open_closed, unread
from common.whole_files import STDOUT, STDOUT_NAMES, is_special, others_kept

WORKED, FAILED, WRONG_INPUT, INTERRUPTED, UNREAD = 0, 1, 2, 130, 141
PYTHON = ".venv/bin/python"
EXIT_CODES = "Exit codes: 0 worked, 1 failed, 2 a mistake in the input, 130 interrupted, 141 nobody read the output."
COMPLETION = "completion"
FORCE = "overwrite files that are there"
WRITES = {"--output", "--output_dir", "--csv", "--chakra"}
"""Options that name the files of a verb, which overwrites those with other content only with --force."""
_TO_STDOUT = ("output", "csv")
_OVERWRITES = "overwrites"
_UNREAD = object()
_NONE: Mapping[str, str] = {}
_WORD = re.compile(r"--?[\w-]+")
_Check: TypeAlias = Callable[[argparse.Namespace], object]
_Handler: TypeAlias = "Callable[[int, FrameType | None], object] | int | None"


class VerbParser(argparse.ArgumentParser):
    """Collects the mistakes of a command line and raises all of them as one.

    words: what follows the verb, for options whose help depends on another one. `type=Path`, or `name_of_read`, is what
    a verb reads, and has to be there; what it writes is a `new_path`, `new_file` or `new_folder`.
    """

    def __init__(self, program: "Program", verb: str, words: Sequence[str], description: str) -> None:
        prog = f"{program.called} {verb}"
        # argparse makes a formatter for each option that is added; one that asks for the terminal imports shutil.
        unmeasured = partial(argparse.HelpFormatter, width=80)
        super().__init__(
            prog=prog, description=description, allow_abbrev=program.abbreviates, formatter_class=unmeasured
        )
        self.verb, self.words = verb, words
        self._renamed, self._mistakes = program.renamed, list[str]()
        self._refused: list[argparse.Action] = []
        self._files: list[Path] = []
        self.elsewhere = ""
        """The first part of names that are read like a file's, but are no files."""

    def read(self, check: "_Check | None" = None) -> argparse.Namespace:
        """The options of the words. Beside values that are refused is told what `check` raises of the sound ones.

        Where a word is no option the verb is not asked: it would miss what the user meant to give.

        Raises:
            InputProblems: words are no options, or values of another kind.
        """
        found, unknown = self.parse_known_args(self._all_spelt())
        self._note_unknown([word for word in unknown if word.startswith("-")] or unknown)
        if check and self._mistakes and not unknown:
            self._check(self._of_sound_ones(check, found))
        self._check()
        return found

    def _of_sound_ones(self, check: "_Check", found: argparse.Namespace) -> list[Problem]:
        """The problems of a verb whose refused options are not given, but for those that name one of these."""
        for action in dict.fromkeys(self._refused):
            given, default = getattr(found, action.dest), action.default
            sound = [each for each in given if each is not _UNREAD] if isinstance(given, list) else []
            if sound and not action.choices:
                setattr(found, action.dest, sound)
            elif default == argparse.SUPPRESS:
                delattr(found, action.dest)
            else:
                default = self._get_value(action, default) if isinstance(default, str) else default
                setattr(found, action.dest, default)
        names = {name for action in self._refused for name in action.option_strings}
        try:
            check(found)
        except InputProblems as others:
            return [each for each in others.problems if names.isdisjoint(_WORD.findall(str(each)))]
        except (SimulationError, OSError):
            pass
        return []

    def format_help(self) -> str:
        """The help, as wide as the terminal."""
        self.formatter_class = argparse.HelpFormatter
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """Keep the mistake, and raise all that were found; an option that is required may only be misspelt."""
        self._mistakes.append(message)
        words = takewhile(lambda word: word != "--", self._all_spelt())
        self._note_unknown([word for word in words if word.startswith("--") and not self._is_option(word)])
        self._check()
        raise AssertionError

    def _is_option(self, word: str) -> bool:
        """Whether argparse takes it as one of the options, or, with a blank, as a value."""
        name = word.partition("=")[0]
        names = (each for action in self._actions for each in action.option_strings)
        return " " in word or any(each == name or (self.allow_abbrev and each.startswith(name)) for each in names)

    def _note_unknown(self, words: Sequence[str]) -> None:
        for word in words:
            name = word.partition("=")[0]
            near = closest(name, [each for action in self._actions for each in action.option_strings])
            self._mistakes.append(f"unrecognized arguments: {name}" + (f"; did you mean {near}?" if near else ""))

    def _check(self, others: Sequence[Problem] = ()) -> None:
        if self._mistakes:
            self._mistakes[-1] += f" (see {self.prog} --help)"
            told = " ".join(map(str, others))
            missing = [each for each in self._missing() if each.partition(": ")[0] not in told]
            raise InputProblems([*stated([*(f"{self.verb}: {each}" for each in self._mistakes), *missing]), *others])

    def _missing(self) -> Iterator[str]:
        """Sentences on the files that were given and cannot be found."""
        for path in self._files:
            if path.parts[:1] == (self.elsewhere,):
                continue
            try:
                path.stat()
            except OSError as error:
                yield f"{path}: {error.strerror}"

    def _all_spelt(self) -> list[str]:
        known = {_underscored(name): name for action in self._actions for name in action.option_strings}
        return [self._spelt(word, known) for word in self.words]

    def _spelt(self, word: str, known: Mapping[str, str]) -> str:
        """An option as it is declared: --context-parallel-size=2 may be --context_parallel_size=2. Values stay."""
        if not word.startswith("--"):
            return word
        name, equals, value = word.partition("=")
        plain = _underscored(self._renamed.get(_underscored(name), name))
        beginning = plain if self.allow_abbrev else name
        return f"{known.get(plain, beginning)}{equals}{value}"

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        try:
            value = super()._get_value(action, arg_string)
        except argparse.ArgumentError as error:
            self._refuse(action, error)
            return _UNREAD
        if action.type in (Path, name_of_read) and value not in (None, STDOUT):
            self._files.append(Path(value))
        return value

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            if value is not _UNREAD:
                super()._check_value(action, value)
        except argparse.ArgumentError as error:
            self._refuse(action, error)

    def _refuse(self, action: argparse.Action, error: argparse.ArgumentError) -> None:
        self._mistakes.append(str(error))
        self._refused.append(action)


def name_of_read(text: str) -> str | None:
    """The name of a file that a verb reads, of an option's text; None of the word None, which takes a default away."""
    return None if text == "None" else text


def new_path(text: str) -> Path:
    """The path of an option's text, which need not be there: a verb writes it, or looks for it elsewhere."""
    return Path(text)


def new_folder(text: str) -> Path:
    """The folder that a verb writes to, of an option's text.

    Raises:
        argparse.ArgumentTypeError: it is stdout or a file, or cannot be reached.
    """
    return _new(text, "folder", lambda path: path.exists() and not path.is_dir())


def new_file(text: str) -> Path:
    """The file that a verb replaces, which is no pipe, of an option's text.

    Raises:
        argparse.ArgumentTypeError: it is stdout, a folder, a pipe or a device, or cannot be reached.
    """
    return _new(text, "file", is_special)


def _new(text: str, what: str, is_other: Callable[[Path], bool]) -> Path:
    path = Path(text)
    try:
        is_wrong = path in STDOUT_NAMES or is_other(path)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text}: {error.strerror}") from error
    if is_wrong:
        raise argparse.ArgumentTypeError(f"{text}: expected a {what}'s name")
    return path


class Verb(Protocol):
    """A verb of a program: a module, or an object in one.

    One that has `find_mistakes(arguments)`, which raises its InputProblems and does no work, tells these beside values
    that are refused before it runs.
    """

    def add_arguments(self, parser: VerbParser) -> None:
        """Add the verb's own options."""

    def run(self, arguments: argparse.Namespace) -> Summary | Answer | int:
        """Do the work; a mistake in the input is an InputProblems, a failure a SimulationError.

        Returns:
            The result to print, or, where the verb has printed it, the exit code.
        """


class FunctionVerb(NamedTuple):
    """A verb of two functions, for a module that has several."""

    add_arguments: Callable[[VerbParser], None]
    run: Callable[[argparse.Namespace], Summary | Answer | int]


class VerbOptions(NamedTuple):
    """The options of a verb that another module runs."""

    add_arguments: Callable[[VerbParser], None]


def _nothing(_: VerbParser) -> None:
    """Add no options."""


def _ignored(_: argparse.Namespace) -> None:
    """Do nothing before the verb."""


class Program(NamedTuple):
    """A program of verbs. module: its name, or the path of a script; a word behind it stands before every verb. verbs:
    where each is, a module or `module:name` that is imported when it is called; its help. Of two places the first has
    the options, the second runs the verb: what takes long to import is not read for --help.

    common: adds what several verbs have. abbreviates: whether the beginning of an option's name does. renamed: further
    spellings of options. default: the verb where none is named, whose options may stand before any verb.
    controls_hosts: whether a verb says for itself what SIGTERM does, and prints no InputNote; else it is as Ctrl-C.
    operands: what the shell completes beside options, by argument. begin: what is done with options before the verb.
    """

    module: str
    purpose: str
    verbs: Mapping[str, tuple[str, str]]
    common: Callable[[VerbParser], None] = _nothing
    examples: Sequence[str] = ()
    abbreviates: bool = False
    renamed: Mapping[str, str] = _NONE
    default: str = ""
    controls_hosts: bool = False
    operands: Callable[[], Mapping[str, Sequence[str]]] = dict
    begin: Callable[[argparse.Namespace], None] = _ignored
    exit_codes: str = EXIT_CODES

    @property
    def is_script(self) -> bool:
        """Whether it is called by its path."""
        return self.module.endswith(".py")

    @property
    def called(self) -> str:
        """How a user calls it."""
        return f"{PYTHON} {'' if self.is_script else '-m '}{self.module}"

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Run one verb; returns 0 (worked), 1 (failed), 2 (a mistake in the input), 130 (Ctrl-C) or 141,
        as a shell says of SIGPIPE (the reader of its --output - has gone).
        """
        open_closed()
        words = list(sys.argv[1:] if argv is None else argv)
        former = {} if self.controls_hosts else _stop_at_termination()
        try:
            return self._guarded(words)
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)

    def _guarded(self, words: list[str]) -> int:
        """As `main`, whatever ends the verb."""
        try:
            with nullcontext() if self.controls_hosts else _notes_on_stderr():
                try:
                    return self._run(words)
                except BrokenPipeError:
                    if has_readers():  # it is another pipe
                        raise
                    return UNREAD
                finally:
                    with unread():  # what a verb or its --help printed by itself
                        pass
        except InputProblems as problems:
            _complain("\n".join(dict.fromkeys(map(str, problems.problems))), allowed_names(problems.problems))
            return WRONG_INPUT
        except SimulationError as error:
            _complain(str(error))
            return FAILED
        except OSError as error:
            _complain(f"{error.filename or 'output'}: {error.strerror or error}")
            return FAILED
        except KeyboardInterrupt:
            with unread():
                print("interrupted", file=sys.stderr)
            return INTERRUPTED

    def overview(self) -> str:
        """The text of --help."""
        width = max(map(len, self.verbs))
        verbs = "".join(f"  {verb:<{width}}  {said}\n" for verb, (_, said) in self.verbs.items())
        examples = "".join(f"  {self.called} {each}\n" for each in self.examples)
        return (
            f"usage: {self.called} {'[VERB]' if self.default else 'VERB'} [options]\n\n{self.purpose}\n\n{verbs}\n"
            + (f"Examples:\n\n{examples}\n" if examples else "")
            + f"Each verb has its own --help. {self.exit_codes}\n"
            + f"`source <({self.called} {COMPLETION})` completes them in bash.\n"
        )

    def completion(self) -> str:
        """The script with which bash completes verbs and options."""
        from common.completion import script

        words = {"": [*dict.fromkeys(verb.partition(" ")[0] for verb in self.verbs), COMPLETION, "--help"]}
        operands = self.operands()
        for name in self.verbs:
            first, _, second = name.partition(" ")
            if second:
                words.setdefault(first, []).append(second)
            actions = self.parser(name)._actions
            options = [each for action in actions for each in action.option_strings if each.startswith("--")]
            metavars = [str(action.metavar) for action in actions if not action.option_strings]
            words.setdefault(name, []).extend(options + [each for one in metavars for each in operands.get(one, ())])
        if self.default:
            words[""] += words[self.default]
        return script("run" if self.is_script else self.module, 2 if self.is_script else 3, words)

    def verb(self, name: str) -> Verb:
        """The object that runs a verb, imported now."""
        found: Verb = _imported(self.verbs[name][0].split()[-1])
        return found

    def parser(self, name: str, words: Sequence[str] = ()) -> VerbParser:
        """The parser of a verb, with all its options."""
        said = self.verbs[name][1]
        made = VerbParser(self, name, words, said[:1].upper() + said[1:])
        self.common(made)
        made.add_argument("--json", action="store_true", help="print the result as one JSON object")
        _imported(self.verbs[name][0].split()[0]).add_arguments(made)
        names = {name for action in made._actions for name in action.option_strings}
        if names & WRITES:
            made.add_argument("--force", dest=_OVERWRITES, action="store_true", help=FORCE)
        return made

    def _run(self, words: list[str]) -> int:
        if not (words or self.default) or words[:1] in (["-h"], ["--help"], [COMPLETION]):
            with unread():
                print(self.completion() if words == [COMPLETION] else self.overview().rstrip())
            return WORKED if words else WRONG_INPUT
        name, rest = self._split(words)
        arguments = self.parser(name, rest).read(partial(self._check, name))
        as_json = vars(arguments).pop("json")
        to_stdout = [name for name in _TO_STDOUT if getattr(arguments, name, None) in STDOUT_NAMES]
        for option in to_stdout:
            setattr(arguments, option, STDOUT)
            if as_json:
                raise input_problem("--json", None, f"stdout takes one of the two: give --{option} a file's name")
        self.begin(arguments)
        process = os.getpid()
        with (
            others_kept(keep=not vars(arguments).pop(_OVERWRITES, True)),
            redirect_stdout(sys.stderr) if as_json else nullcontext(),
        ):
            result = self.verb(name).run(arguments)
        if isinstance(result, int):
            return result
        if os.getpid() != process:  # it went on in the background; who started it has the answer
            return result.exit_code
        with redirect_stdout(sys.stderr) if to_stdout else nullcontext():
            _show(result, as_json=as_json)
        return result.exit_code

    def _check(self, name: str, arguments: argparse.Namespace) -> None:
        """Let a verb look for mistakes, if it can without working."""
        check: _Check | None = getattr(self.verb(name), "find_mistakes", None)
        if check:
            with others_kept(keep=not getattr(arguments, _OVERWRITES, True)):
                check(arguments)

    def _split(self, words: list[str]) -> tuple[str, list[str]]:
        """The verb, of one or two words, and the rest, the options before the verb first: those behind it win."""
        if self.default:
            words = self._verb_first(words)
        pair = " ".join(words[:2])
        if pair in self.verbs:
            return pair, words[2:]
        if words[0] not in self.verbs:
            near = closest(pair, self.verbs) or closest(words[0], self.verbs)
            hint = f"did you mean {near}?" if near else f"there is {', '.join(self.verbs)}"
            raise input_problem("unknown verb", words[0], hint)
        return words[0], words[1:]

    def _verb_first(self, words: list[str]) -> list[str]:
        """The words with the verb in front of the options of the default verb that stand before it."""
        if not words or words[0] in self.verbs:
            return words or [self.default]
        actions = self.parser(self.default)._actions
        valued = {_underscored(name) for each in actions if each.nargs != 0 for name in each.option_strings}
        index = 0
        while index < len(words) and words[index].startswith("-"):
            index += 2 if _underscored(words[index]) in valued else 1
        verb, rest = words[index : index + 1] or [self.default], words[index + 1 :]
        return [*verb, *words[:index], *rest]


def _imported(place: str) -> Any:
    """The module or the object of a module that `place` names."""
    module, _, attribute = place.partition(":")
    found = importlib.import_module(module)
    return getattr(found, attribute) if attribute else found


def _underscored(name: str) -> str:
    """`--gpu-type` as `--gpu_type`."""
    return name[:2] + name[2:].replace("-", "_") if name.startswith("--") else name


def _show(result: Summary | Answer, *, as_json: bool) -> None:
    """Print it. A reader that has gone, such as `head`, does not change how the verb ended."""
    with unread():
        if as_json:
            print(result.as_json())
        elif isinstance(result, Answer):
            result.show()
        elif result.text:
            print(printable(result.text))


def _complain(text: str, allowed: Sequence[str] = ()) -> None:
    with unread():
        for line in (*(f"error: {line}" for line in text.splitlines()), *(f"  {line}" for line in allowed)):
            print(printable(line), file=sys.stderr)


@contextmanager
def _notes_on_stderr() -> Iterator[None]:
    """Print each InputNote of what runs inside as a line `note: ...`."""

    def show(
        message: Warning | str, category: type[Warning], filename: str, lineno: int,
        file: TextIO | None = None, line: str | None = None,
    ) -> None:  # fmt: skip
        try:
            print(f"note: {printable(str(message))}", file=sys.stderr)
        except BrokenPipeError:
            drop(sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("always", InputNote)
        warnings.showwarning = show
        yield


def _stop_at_termination() -> dict[signal.Signals, "_Handler"]:
    """Let SIGTERM and SIGHUP end the work as Ctrl-C does; returns the former handlers."""

    def stop(_number: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    try:
        return {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    except ValueError:  # not in the main thread
        return {}
