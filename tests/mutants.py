"""Takes protections out one by one, each in a copy of the repository, and runs the tests that are to notice.

    python -m tests.mutants              # all of tests/mutants.toml
    python -m tests.mutants journal ...  # those whose name contains a word

A mutant that no test notices is printed, and makes the exit code 1.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE = Path(__file__).with_name("mutants.toml")
PARALLEL = 2
SECONDS = 600.0
TESTS_FAILED = 1  # pytest's exit code


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


def is_noticed(mutant: Mutant, copy: Path) -> bool:
    """Whether a test fails in the copy with the mutant in it; the copy is as it was afterwards."""
    path = copy / mutant.file
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *mutant.tests]
    try:
        result = subprocess.run(command, cwd=copy, capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return True
    finally:
        path.write_text(text, encoding="utf-8")
    return result.returncode == TESTS_FAILED


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
                noticed = is_noticed(mutant, copies[number])
                print(f"{'noticed' if noticed else 'UNNOTICED':<10} {mutant.name}", flush=True)
                unnoticed += [] if noticed else [mutant.name]
            return unnoticed

        unnoticed = [name for names in pool.map(try_share, range(len(copies))) for name in names]
    print(f"{len(mutants)} mutants, {len(unnoticed)} unnoticed" + (f": {', '.join(unnoticed)}" if unnoticed else ""))
    return 1 if unnoticed or not mutants else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
