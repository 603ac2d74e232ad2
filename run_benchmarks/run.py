#!/usr/bin/env python3
"""Benchmarks a cluster from its head node: `.venv/bin/python run_benchmarks/run.py`, see `--help`.

Until the Python that runs it is known to do, the syntax here is that of Python 3.6.
"""

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OLDEST = (3, 11)
PACKAGES = ("docker", "paramiko", "pydantic", "rich")
EXIT_USAGE = 2
# Run as a script, Python puts this folder first on the path; the packages lie one above.
sys.path[0] = str(ROOT)


def unfit() -> str:
    """The reason why the Python that runs this is unfit, in words; "" if nothing."""
    if sys.version_info < OLDEST:
        return f"is Python {sys.version_info[0]}.{sys.version_info[1]}; run.py needs {OLDEST[0]}.{OLDEST[1]} or later"
    lacks = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    return f"lacks {', '.join(lacks)}" if lacks else ""


def way_on() -> str:
    """The command that runs in the environment, or that makes it."""
    python = ROOT / ".venv" / "bin" / "python"
    if python.exists() and Path(sys.prefix).resolve() != (ROOT / ".venv").resolve():
        return f"run it with {python}, or `make run` in {ROOT}"
    return f"`make run` in {ROOT} makes the environment .venv with what it needs, and runs"


if __name__ == "__main__":
    reason = unfit()
    if reason:
        print(f"{sys.executable} {reason}: {way_on()}", file=sys.stderr)
        sys.exit(EXIT_USAGE)
    from run_benchmarks.commands.cli import main

    main()
