"""Takes protections out one by one, each in a copy of the repository, and runs the tests that are to notice.

    python -m tests.mutants              # all of tests/mutants.toml
    python -m tests.mutants journal ...  # those whose name contains a word

Prints of each mutant the test that notices it. One that no test notices makes the exit code 1, and so does one whose
test fails without it, too: such a failure (a machine too slow for a deadline, say) proves nothing.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE = Path(__file__).with_name("mutants.toml")
PARALLEL = 2
SECONDS = 600.0
TESTS_FAILED = 1  # pytest's exit code
# A line of pytest's summary: the id, which may hold spaces between brackets, and the reason, which may be cut off.
_FAILURE = re.compile(r"^(?:FAILED|ERROR) (.+?::\w+(?:\[.*?\](?= - |$))?)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One change that must not go unnoticed: `old` becomes `new` in `file`, and one of `tests` is to fail then."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def read(file: Path = FILE) -> list[Mutant]:
    """The mutants of a file.

    Raises:
        ValueError: a text to change does not stand in its file exactly once, or a test file is missing; all named.
    """
    table = tomllib.loads(file.read_text(encoding="utf-8"))
    mutants = [Mutant(name=name, **{**entry, "tests": tuple(entry["tests"])}) for name, entry in table.items()]
    problems = [problem for mutant in mutants for problem in _problems(mutant)]
    if problems:
        raise ValueError(f"{file}:\n" + "\n".join(problems))
    return mutants


def _problems(mutant: Mutant) -> list[str]:
    path = ROOT / mutant.file
    count = path.read_text(encoding="utf-8").count(mutant.old) if path.is_file() else 0
    found = [] if count == 1 else [f"{mutant.name}: {mutant.old!r} stands {count} times in {mutant.file}"]
    missing = [test for test in mutant.tests if not (ROOT / test.partition("::")[0]).exists()]
    return found + [f"{mutant.name}: there is no {test}" for test in missing]


def noticed_by(mutant: Mutant, copy: Path) -> str | None:
    """The id of the test that fails in the copy with the mutant in it and passes without; None if there is none.

    The copy is as it was afterwards.
    """
    path = copy / mutant.file
    text = path.read_text(encoding="utf-8")
    _replace(path, text.replace(mutant.old, mutant.new))
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
    """The first of these tests that fails, by its id; the first of all where they take too long."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        result = subprocess.run(command, cwd=copy, capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return tests[0]
    if result.returncode != TESTS_FAILED:
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
                test = noticed_by(mutant, copies[number])
                print(f"UNNOTICED  {mutant.name}" if test is None else f"noticed    {mutant.name}: {test}", flush=True)
                unnoticed += [mutant.name] if test is None else []
            return unnoticed

        unnoticed = [name for names in pool.map(try_share, range(len(copies))) for name in names]
    print(f"{len(mutants)} mutants, {len(unnoticed)} unnoticed" + (f": {', '.join(unnoticed)}" if unnoticed else ""))
    return 1 if unnoticed or not mutants else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
