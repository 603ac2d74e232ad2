"""Runs the command line of `python -m training.benchmarks.aicb`."""

import sys

from training.benchmarks.aicb.cli import main

if __name__ == "__main__":
    sys.exit(main())
