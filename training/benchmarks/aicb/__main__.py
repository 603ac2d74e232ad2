"""Runs `python -m workloads` by its former name, `python -m training.benchmarks.aicb`."""

import sys

from workloads.cli import main

if __name__ == "__main__":
    sys.exit(main())
