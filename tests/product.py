"""The packages of the product, and copies of what a run needs."""

import shutil
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES: tuple[str, ...] = tuple(
    tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["root_packages"]
)
OF_A_RUN = (*(name for name in PACKAGES if name != "simulation"), "requirements")


def copy_folder(source: Path, target: Path) -> None:
    """Copy a folder without what is compiled, which comes and goes while other tests run."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))


def copy(folder: Path, parts: Sequence[str] = OF_A_RUN) -> Path:
    """Copy parts of the repository into `folder`, which it returns."""
    for part in parts:
        copy_folder(ROOT / part, folder / part)
    return folder
