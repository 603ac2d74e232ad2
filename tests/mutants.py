"""Takes protections out one by one, each in a copy of the repository, and runs the tests that are to notice.

    python -m tests.mutants              # all of tests/mutants.toml
    python -m tests.mutants journal ...  # those whose name contains a word

Prints of each mutant the test that notices it. One that no test notices makes the exit code 1, and so does one whose
test fails without it, too: such a failure (a machine too slow for a deadline, say) proves nothing. A mutant whose text
no longer stands in its function is named and counts as unnoticed: whoever changed the function gives it another text.
"""

from __future__ import annotations

import ast
import functools
import itertools
import os
import re
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE = Path(__file__).with_name("mutants.toml")
PARALLEL = 2
SECONDS = 600.0
TESTS_FAILED = 1  # pytest's exit code
CRASHES = [-each for each in (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT)]
# A line of pytest's summary: the id, which may hold spaces between brackets, and the reason, which may be cut off.
_NAME = re.compile(r"(?!\d)\w+")
_FAILURE = re.compile(r"^(?:FAILED|ERROR) (.+?::\w+(?:\[.*?\](?= - |$))?)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One change that must not go unnoticed: `old` becomes `new` at `place`, and one of `tests` is to fail then.

    `place` is a file, or a function or class in it ("folder/file.py::Class.method"); `old` stands there once.
    """

    name: str
    place: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def file(self) -> str:
        """The file's path from the repository's root."""
        return self.place.partition("::")[0]

    def changed(self, text: str) -> str | None:
        """The text of the file with the change in it; None where `old` does not stand once at the place."""
        begin, end = span(text, self.place.partition("::")[2]) or (0, 0)
        before = text[begin:end]
        return text[:begin] + before.replace(self.old, self.new) + text[end:] if before.count(self.old) == 1 else None

    def fits(self, text: str) -> bool:
        """Whether `old` stands at the place of the file's text, whatever names and line breaks are: that much make test
        looks at, which a renamed variable may not break.
        """
        begin, end = span(text, self.place.partition("::")[2]) or (0, 0)
        return _shape(self.old) in _shape(text[begin:end])


def _shape(text: str) -> str:
    return re.sub(r"\s", "", _NAME.sub("_", text))


_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def span(text: str, name: str) -> tuple[int, int] | None:
    """First and last position, in characters, of a function or class by its qualified name; "" is the whole."""
    if not name:
        return 0, len(text)
    found: list[_Definition] = []
    for depth, part in enumerate(name.split(".")):
        among: Sequence[ast.AST] = found if depth else [_parsed(text)]
        found = [node for each in among for node in _definitions(each) if node.name == part]
    if not found:
        return None
    lines = [0, *itertools.accumulate(map(len, text.splitlines(keepends=True)))]
    first = min([found[0].lineno, *(each.lineno for each in found[0].decorator_list)])
    return lines[first - 1], lines[found[0].end_lineno or first]


@functools.cache
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


def _definitions(node: ast.AST) -> Iterator[_Definition]:
    """What a node defines, also under an `if`, `try` or `with`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _Definition):
            yield child
        elif isinstance(child, ast.If | ast.Try | ast.With):
            yield from _definitions(child)


def read(file: Path = FILE) -> list[Mutant]:
    """The mutants of a file.

    Raises:
        ValueError: a function, a text in it or a test file that a mutant names is missing; all of them are named.
    """
    table = tomllib.loads(file.read_text(encoding="utf-8"))
    mutants = [Mutant(name=name, **{**entry, "tests": tuple(entry["tests"])}) for name, entry in table.items()]
    problems = [problem for mutant in mutants for problem in _problems(mutant)]
    if problems:
        raise ValueError(f"{file}:\n" + "\n".join(problems))
    return mutants


def _problems(mutant: Mutant) -> list[str]:
    path, _, name = mutant.place.partition("::")
    text = _text(ROOT / path)
    found = []
    if text is None or span(text, name) is None:
        found.append(f"{mutant.name}: there is no {mutant.place}")
    elif not mutant.fits(text):
        found.append(f"{mutant.name}: {mutant.place} has nothing like {mutant.old!r}")
    missing = [test for test in mutant.tests if not _is_there(test)]
    return found + [f"{mutant.name}: there is no {test}" for test in missing]


def _is_there(test: str) -> bool:
    path, _, name = test.partition("::")
    return (ROOT / path).exists() if not name else f"def {name.partition('[')[0]}(" in (_text(ROOT / path) or "")


@functools.cache
def _text(file: Path) -> str | None:
    return file.read_text(encoding="utf-8") if file.is_file() else None


def noticed_by(mutant: Mutant, copy: Path) -> str | None:
    """The id of the test that fails in the copy with the mutant in it and passes without; None if there is none.

    The copy is as it was afterwards.

    Raises:
        ValueError: the text to change does not stand once at the mutant's place.
    """
    path = copy / mutant.file
    text = path.read_text(encoding="utf-8")
    changed = mutant.changed(text)
    if changed is None:
        raise ValueError(f"{mutant.old!r} does not stand once in {mutant.place}")
    _replace(path, changed)
    try:
        failed = _first_failure(mutant.tests, copy)
    finally:
        _replace(path, text)
    return None if failed is None or _first_failure([failed], copy) is not None else failed


def _replace(path: Path, text: str) -> None:
    """Write a file with another second of its last change: within one, and as long, Python takes what it compiled."""
    later = path.stat().st_mtime + 2
    path.write_text(text, encoding="utf-8")
    os.utime(path, (later, later))


def _first_failure(tests: Sequence[str], copy: Path) -> str | None:
    """The first of these tests that fails, by its id; the first of all where they take too long or end Python."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        result = subprocess.run(command, cwd=copy, capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return tests[0]
    if result.returncode not in (TESTS_FAILED, *CRASHES):
        return None
    found = _FAILURE.search(result.stdout.decode("utf-8", "replace"))
    return found[1] if found else tests[0]


def copy_repository(folder: Path) -> Path:
    """The tracked files and the untracked ones that git does not ignore, in a new folder below `folder`."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout.split(b"\0")
    there = b"\0".join(name for name in names if name and (ROOT / name.decode()).exists())
    copy = folder / "copy"
    copy.mkdir(parents=True)
    packed = subprocess.Popen(["tar", "--null", "-T", "-", "-cf", "-"], cwd=ROOT, stdin=-1, stdout=-1)
    archive, _ = packed.communicate(there)
    subprocess.run(["tar", "-xf", "-"], cwd=copy, input=archive, check=True)
    subprocess.run(["git", "init", "-q"], cwd=copy, check=True)
    return copy


def main(words: list[str]) -> int:
    """Try the mutants whose name contains one of the words; returns the exit code."""
    mutants = [mutant for mutant in read() if not words or any(word in mutant.name for word in words)]
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(PARALLEL) as pool:
        copies = [copy_repository(Path(temporary) / str(number)) for number in range(min(PARALLEL, len(mutants)))]

        def try_share(number: int) -> list[str]:
            unnoticed = []
            for mutant in mutants[number :: len(copies)]:
                try:
                    test = noticed_by(mutant, copies[number])
                    said = f"UNNOTICED  {mutant.name}" if test is None else f"noticed    {mutant.name}: {test}"
                except ValueError as stale:
                    test, said = None, f"STALE      {mutant.name}: {stale}"
                print(said, flush=True)
                unnoticed += [mutant.name] if test is None else []
            return unnoticed

        unnoticed = [name for names in pool.map(try_share, range(len(copies))) for name in names]
    print(f"{len(mutants)} mutants, {len(unnoticed)} unnoticed" + (f": {', '.join(unnoticed)}" if unnoticed else ""))
    return 1 if unnoticed or not mutants else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
