"""Commands of run.py as a person may paste them: any shell, any working directory, no `python` on the path needed."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUN_PY = ROOT / "run_benchmarks" / "run.py"
DEFAULT_RESULTS = ROOT / "result"


def own_command(*words: str) -> str:
    """run.py with these words, under the interpreter that runs now, which has the packages that it needs."""
    return shlex.join([sys.executable or "python3", str(RUN_PY), *words])


def run_word(folder: Path) -> str:
    """What names the run of a result folder in a command: its name where it is looked for, else its whole path."""
    return folder.name if folder.resolve().parent == DEFAULT_RESULTS else str(folder.resolve())
