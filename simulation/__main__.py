"""Runs the command line of `python -m simulation`."""

import io
import sys

from simulation.cli import main

if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name that the locale cannot print ends no run
    sys.exit(main())
