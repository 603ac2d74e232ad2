"""Commands of run.py for users to paste: valid in any shell and working directory, without `python` on the path."""

import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUN_PY = ROOT / "run_benchmarks" / "run.py"
DEFAULT_RESULTS = ROOT / "result"


def own_command(*words: str) -> str:
    """run.py with these words, under the present interpreter, which has the packages that it needs."""
    return shlex.join([sys.executable or "python3", str(RUN_PY), *words])


def run_word(folder: Path) -> str:
    """The word for a run's result folder in a command: its name if that is found by default, else its whole path."""
    return folder.name if folder.resolve().parent == DEFAULT_RESULTS else str(folder.resolve())
