"""make coverage fails below the floor of coverage in pyproject.toml."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.product import PACKAGES

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["coverage"]
MISSED_LINES = 100
OPTIONS = """
def pytest_addoption(parser):
    parser.addoption("--no-torch", action="store_true")
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A small repository with our check.sh and our settings of coverage; its other tools always pass."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "check.sh", tmp_path / "scripts")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    bin_folder = tmp_path / "venv" / "bin"
    bin_folder.mkdir(parents=True)
    for name in ("ruff", "mypy", "lint-imports"):
        (bin_folder / name).write_text("#!/bin/sh\n")
    (bin_folder / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    for tool in bin_folder.iterdir():
        tool.chmod(0o755)
    for package in PYPROJECT["run"]["source"]:
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "conftest.py").write_text(OPTIONS)
    return tmp_path


def check(repository: Path, missed_percent: float) -> tuple[int, str]:
    """Exit code and output of make coverage where so many percent of the product's lines are not run."""
    lines = "\n".join(f"    x = {number}" for number in range(MISSED_LINES))
    covered = "\n".join(f"x = {number}" for number in range(round(MISSED_LINES * (100 / missed_percent - 1))))
    (repository / "monitors" / "product.py").write_text(f"{covered}\nif x < 0:\n{lines}\n")
    (repository / "tests" / "test_product.py").write_text("def test_it():\n    import monitors.product\n")
    command = ["bash", str(repository / "scripts" / "check.sh"), "venv", "coverage"]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=200)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.nightly
def test_below_the_floor_make_coverage_fails_though_all_tests_pass(repository: Path) -> None:
    allowed = 100 - PYPROJECT["report"]["fail_under"]
    code, said = check(repository, missed_percent=allowed + 1)
    assert code == 1 and "1 passed" in said and "is less than fail-under" in said and "FAILED coverage  " in said, said
    code, said = check(repository, missed_percent=allowed - 1)
    assert code == 0 and "1 passed" in said and "ok     coverage  " in said, said


def test_every_package_of_the_product_is_measured() -> None:
    assert PYPROJECT["run"]["source"] == list(PACKAGES)
    assert PYPROJECT["report"]["fail_under"] > 80
