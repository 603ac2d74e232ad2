"""The import contracts of pyproject.toml notice an import against the order of the rooms."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "run_benchmarks",
    "common",
    "protocol",
    "workloads",
    "training",
    "monitors",
    "vendors",
    "container",
    "simulation",
)


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages and their contracts, in a folder of their own."""
    folder = tmp_path_factory.mktemp("contracts")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


@pytest.mark.parametrize(
    ("file", "planted", "broken"),
    [
        ("run_benchmarks/hosts/base.py", "run_benchmarks.settings.cluster", "The rooms of the controller"),
        ("run_benchmarks/rounds/watch.py", "run_benchmarks.session.schedule", "The rooms of the controller"),
        ("protocol/pulse.py", "training.benchmarks.driver.launch.rank", "The floors of the house"),
        (
            "training/benchmarks/driver/training/model/kernels.py",
            "monitors.sysinfo",
            "A workload runs without the monitor",
        ),
        (
            "training/benchmarks/driver/launch/rank.py",
            "training.benchmarks.driver.workload.output_folder",
            "of the driver",
        ),
        ("common/units.py", "run_benchmarks.errors", "The floors of the house"),
        ("simulation/common/dialect.py", "torch", "The simulation needs neither torch"),
        ("workloads/rows/ops.py", "simulation.common.dialect", "The floors of the house"),
        ("workloads/job/parameters.py", "workloads.dialects.base", "The rooms of the descriptions"),
        ("simulation/topology/text.py", "simulation.flows.request", "The rooms of the simulation"),
        ("training/benchmarks/network/patterns/tiers.py", "training.benchmarks.network.slow_parts.blame", "network b"),
        (
            "training/benchmarks/network/pytorch/choices.py",
            "training.benchmarks.network.pytorch.measuring.output",
            "Operations of the network benchmark",
        ),
        ("workloads/options.py", "workloads.commands.show", "The rooms of the descriptions"),
        (
            "training/benchmarks/driver/training/settings/division.py",
            "training.benchmarks.driver.training.proof.replicas",
            "The rooms of the trainer",
        ),
        ("run_benchmarks/errors.py", "simulation.cli", "The controller runs without the simulation"),
    ],
)
def test_a_planted_import_is_noticed(copied: Path, file: str, planted: str, broken: str) -> None:
    whole = (copied / file).read_text(encoding="utf-8")
    (copied / file).write_text(f"{whole}\nimport {planted}\n", encoding="utf-8")
    try:
        argv = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
        checked = subprocess.run(argv, cwd=copied, capture_output=True, text=True)
    finally:
        (copied / file).write_text(whole, encoding="utf-8")
    assert checked.returncode == 1, checked.stdout + checked.stderr
    lines = [re.sub(r" \(\d+ ignored imports?\)$", "", line) for line in checked.stdout.splitlines()]
    verdicts = [line for line in lines if line.endswith(("KEPT", "BROKEN"))]
    assert [broken in line for line in verdicts if line.endswith("BROKEN")] == [True], checked.stdout
