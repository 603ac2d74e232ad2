"""`run.py --version`, and that the places which name the version agree."""

import subprocess
import sys
import tomllib
from pathlib import Path

from run_benchmarks import __version__

ROOT = Path(__file__).resolve().parents[3]


def test_the_version_is_printed_whatever_the_files_say(tmp_path: Path) -> None:
    argv = [sys.executable, str(ROOT / "run_benchmarks" / "run.py"), "--test-conf", str(tmp_path / "none"), "--version"]
    result = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert result.returncode == 0 and result.stdout.startswith(f"ClusterDyno {__version__}"), result.stdout
    assert result.stderr == ""


def test_every_place_names_the_same_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == __version__
    assert f"## {__version__.partition('.dev')[0]}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8") and project["license"] == "Apache-2.0"
