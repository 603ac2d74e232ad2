#!/usr/bin/env python3
"""Benchmarks a cluster from its head node: `python3 run_benchmarks/run.py`, see `--help`."""

import sys
from pathlib import Path

# Run as a script, Python puts this folder first on the path; the packages lie one above.
sys.path[0] = str(Path(__file__).resolve().parents[1])

from run_benchmarks.commands.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
