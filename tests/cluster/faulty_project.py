"""A copy of the repository with one benchmark more: the one whose ranks break (tests/cluster/faulty)."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.cluster.images import REPOSITORY

PARTS = ("run_benchmarks", "training", "monitors", "vendors", "container", "requirements")
CASE = "faulty-pytorch"
CONFIG = "config_CPU"


def project(folder: Path, environment: dict[str, str]) -> Path:
    """Make the copy in `folder`; its cases get these environment variables from the case's own file."""
    ignored = shutil.ignore_patterns("__pycache__")
    for part in PARTS:
        shutil.copytree(REPOSITORY / part, folder / part, ignore=ignored)
    shutil.copytree(Path(__file__).parent / "faulty", folder / "training/benchmarks/faulty", ignore=ignored)
    config = folder / "vendors/cpu" / CASE / "config"
    config.mkdir(parents=True)
    (config / f"{CONFIG}.py").write_text("steps = 50\n")
    lines = "".join(f"{name}={value}\n" for name, value in environment.items())
    (config / "environment_variables.env").write_text(lines)
    return folder
