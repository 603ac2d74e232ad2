"""The import contracts of pyproject.toml notice an import against the order of the rooms."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.product import PACKAGES, ROOT

PLANTED = [
    ("run_benchmarks/hosts/base.py", "run_benchmarks.settings.cluster", "The rooms of the controller"),
    ("run_benchmarks/rounds/watch.py", "run_benchmarks.session.schedule", "The rooms of the controller"),
    ("protocol/pulse.py", "training.benchmarks.driver.launch.rank", "The floors of the house"),
    ("training/benchmarks/driver/training/model/kernels.py", "monitors.sysinfo", "A workload runs without the monitor"),
    ("training/benchmarks/driver/launch/rank.py", "training.benchmarks.driver.workload.output_folder", "of the driver"),
    ("common/units.py", "run_benchmarks.errors", "The floors of the house"),
    ("simulation/common/dialect.py", "torch", "The simulation needs neither torch"),
    ("workloads/rows/ops.py", "simulation.common.dialect", "The floors of the house"),
    ("workloads/job/parameters.py", "workloads.dialects.base", "The rooms of the descriptions"),
    ("simulation/topology/text.py", "simulation.flows.request", "The rooms of the simulation"),
    (
        "training/benchmarks/network/patterns/tiers.py",
        "training.benchmarks.network.slow_parts.blame",
        "rooms of the network",
    ),
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
]
"""Files, what each imports in vain, and the contract that says so."""


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the linter says of a copy of the packages with all that is planted."""
    folder = tmp_path_factory.mktemp("contracts")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    for file, planted, _ in PLANTED:
        with (folder / file).open("a", encoding="utf-8") as source:
            source.write(f"\nimport {planted}\n")
    argv = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    checked = subprocess.run(argv, cwd=folder, capture_output=True, text=True)
    assert checked.returncode == 1, checked.stdout + checked.stderr
    return checked.stdout


@pytest.mark.parametrize(("file", "planted", "broken"), PLANTED)
def test_a_planted_import_is_noticed(answer: str, file: str, planted: str, broken: str) -> None:
    """By the contract that forbids it, with the file that has it."""
    parts = re.split(r"^(.+)\n-+\n", answer.partition("Broken contracts")[2], flags=re.MULTILINE)
    said = dict(zip(parts[1::2], parts[2::2], strict=True))
    importer = file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    (text,) = [text for title, text in said.items() if broken in title]
    assert re.search(rf"{re.escape(importer)} -> {re.escape(planted)}\b", " ".join(text.split())), text
