"""Finds the folder for what a rank writes beside its log. Needs no torch."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from training.benchmarks.driver.launch.rank import log_name


def chosen_folder(model: str, argv: Sequence[str]) -> tuple[Path | None, list[str]]:
    """The folder of `--output_dir` in the command line of `model`, None without it, and the other arguments.

    Rank 0 makes the folder; if it cannot, it exits with code 2 before anything is measured.
    """
    parser = argparse.ArgumentParser(prog=model, add_help=False, allow_abbrev=False)
    parser.add_argument("--output_dir", type=Path)
    options, others = parser.parse_known_args(argv[1:] if argv and argv[0] == "--" else argv)
    folder: Path | None = options.output_dir
    if folder is not None and os.environ.get("RANK") == "0":
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            parser.error(f"--output_dir {folder}: cannot be made: {error}")
    return folder, others


def log_folder(rank: int) -> Path | None:
    """The folder of this rank's log, to which driver.launch redirected stdout; None in a run by hand."""
    try:
        path = Path(f"/proc/self/fd/{sys.stdout.fileno()}").readlink()
    except (OSError, ValueError):  # no /proc, or a stdout that is no file
        return None
    return path.parent if path.name == log_name(rank) and path.is_file() else None
