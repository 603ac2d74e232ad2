"""docs/adding-a-framework.md is true: its adapter is built from the page, needs no torch, and runs two ranks."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.benchmarks.driver.launching import ROOT, command, exit_record
from training.benchmarks.driver.catalog import UnknownBenchmarkError, benchmark
from training.benchmarks.driver.perflog import Event, check_sequence, parse_line

PAGE = ROOT / "docs" / "adding-a-framework.md"
FOLDER = "training/benchmarks/memcopy/numpy"
WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; "


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what runs on hosts, with the page's files in it."""
    folder = tmp_path_factory.mktemp("project")
    for package in ("training", "vendors"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    blocks = re.findall(r"```python\n# (\S+)\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert [name for name, _ in blocks] == [f"{FOLDER}/config.py", f"{FOLDER}/run_benchmark.py"]
    for name, text in blocks:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for package in ("training/benchmarks/memcopy", FOLDER):
        (folder / package / "__init__.py").touch()
    return folder


def test_one_folder_is_a_framework_and_torch_is_not_needed(project: Path) -> None:
    script = (
        WITHOUT_TORCH + "from training.benchmarks.driver.catalog import benchmark;"
        "import importlib; entry = benchmark('memcopy', 'numpy').entry_module;"
        "importlib.import_module(entry); print(entry)"
    )
    result = subprocess.run([sys.executable, "-c", script], cwd=project, capture_output=True, text=True, check=False)
    assert result.stdout.strip() == "training.benchmarks.memcopy.numpy.run_benchmark", result.stderr


def test_the_adapter_of_the_page_runs(project: Path, tmp_path: Path) -> None:
    workload = ["training.benchmarks.memcopy.numpy.run_benchmark", "--vendor", "cpu", "--set", "steps=3"]
    argv = command(tmp_path, ["--nproc_per_node", "2"], workload)
    result = subprocess.run(argv, cwd=project, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
    assert exit_record(tmp_path).failures == []
    for rank in range(2):
        lines = (tmp_path / f"rank{rank}.out.log").read_text(encoding="utf-8").splitlines()
        records = [record for record in map(parse_line, lines) if record is not None]
        assert check_sequence(records) == []
        assert sum(record.event is Event.STEP_END for record in records) == 3


def test_a_framework_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(UnknownBenchmarkError) as error:
        benchmark("bert", "paddle")
    assert str(error.value) == "unknown framework of bert 'paddle'; available: pytorch"
    assert f"BERT.model:framework = 'bert:paddle': {error.value}" in PAGE.read_text(encoding="utf-8")
