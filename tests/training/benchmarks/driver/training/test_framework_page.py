"""docs/how-to/adding-a-framework.md is true: its adapter is built from the page, needs no torch, and runs two ranks."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

from protocol.perflog import Event, check_sequence, parse_line
from tests.training.benchmarks.driver.launch.launching import ROOT, command, exit_record
from tests.training.benchmarks.page_project import build
from training.benchmarks.catalog import UnknownBenchmarkError, benchmark

PAGE = ROOT / "docs" / "how-to" / "adding-a-framework.md"
FOLDER = "training/benchmarks/memcopy/numpy"
CASE = "vendors/cpu/memcopy-numpy/config/config_CPUx1x2.py"
WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; "


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project, with the page's files in it."""
    files = (f"{FOLDER}/config.py", f"{FOLDER}/run_benchmark.py", CASE)
    return build(tmp_path_factory.mktemp("project"), PAGE, files, FOLDER)


def test_one_folder_is_a_framework_and_torch_is_not_needed(project: Path) -> None:
    script = (
        WITHOUT_TORCH + "from training.benchmarks.catalog import benchmark;"
        "import importlib; entry = benchmark('memcopy', 'numpy').entry_module;"
        "importlib.import_module(entry); print(entry)"
    )
    result = subprocess.run([sys.executable, "-c", script], cwd=project, capture_output=True, text=True, check=False)
    assert result.stdout.strip() == "training.benchmarks.memcopy.numpy.run_benchmark", result.stderr


def _check(folder: Path) -> None:
    record = exit_record(folder)
    assert record.failures == [] and record.torch is None
    for rank in range(2):
        lines = (folder / f"rank{rank}.out.log").read_text(encoding="utf-8").splitlines()
        records = [record for record in map(parse_line, lines) if record is not None]
        assert check_sequence(records) == []
        assert sum(record.event is Event.STEP_END for record in records) == 3


def test_the_adapter_of_the_page_runs_where_there_is_no_torch(project: Path, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    workload = ["training.benchmarks.memcopy.numpy.run_benchmark", "--vendor", "cpu", "--set", "steps=3"]
    argv = command(tmp_path, ["--launcher", "processes", "--nproc_per_node", "2"], workload)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    result = subprocess.run(
        argv, cwd=project, env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert result.returncode == 0, result.stderr
    _check(tmp_path)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has all that this one has, but for torch."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for entry in Path(numpy.__file__).parents[1].iterdir():
        if not entry.name.startswith(("torch", "functorch")):
            (site / entry.name).symlink_to(entry)
    return folder / "bin" / "python"


@pytest.mark.nightly
def test_the_case_of_the_page_runs_by_the_controller_on_a_host_without_torch(
    project: Path, tmp_path: Path, python: Path
) -> None:
    found = subprocess.run([python, "-c", "import numpy, torch"], capture_output=True, text=True, check=False)
    assert "No module named 'torch'" in found.stderr
    conf = tmp_path / "test_conf.py"
    conf.write_text(
        f"""VENDOR, RUNTIME, PYTHON = "cpu", "process", {str(python)!r}
FLAGPERF_LOG_PATH_HOST = {str(tmp_path / "result")!r}
CASES = {{"memcopy:numpy:CPU:1:2:1": ""}}
"""
    )
    argv = [sys.executable, "run_benchmarks/run.py", "--test-conf", str(conf)]
    result = subprocess.run(argv, cwd=project, capture_output=True, text=True, timeout=200, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    (record,) = tmp_path.glob("result/run*/*/round1/*/node_exit.json")
    _check(record.parent)
    assert "--launcher" in exit_record(record.parent).argv


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("bert:jax:CPU:1:2:1", "unknown framework of bert 'jax'; available: paddle, pytorch"),
        ("memcopy:jax:CPU:1:2:1", "unknown framework of memcopy 'jax'; available: numpy"),
    ],
)
def test_the_controller_names_the_case_and_what_there_is(
    project: Path, tmp_path: Path, case: str, message: str
) -> None:
    conf = tmp_path / "test_conf.py"
    conf.write_text(f'VENDOR, RUNTIME = "cpu", "process"\nCASES = {{{case!r}: ""}}\n')
    argv = [sys.executable, "run_benchmarks/run.py", "--test-conf", str(conf), "plan"]
    result = subprocess.run(argv, cwd=project, capture_output=True, text=True, timeout=200, check=False)
    assert result.returncode == 2
    assert f"{conf}: " in result.stderr + result.stdout
    assert message in result.stderr + result.stdout


def test_a_launcher_that_is_not_there_is_named(project: Path, tmp_path: Path) -> None:
    copy = tmp_path / "project"
    for package in ("common", "protocol", "training"):
        shutil.copytree(project / package, copy / package)
    config = copy / FOLDER / "config.py"
    config.write_text(config.read_text().replace('"processes"', '"mpirun"'))
    code = "from training.benchmarks.catalog import benchmark; benchmark('memcopy', 'numpy')"
    result = subprocess.run([sys.executable, "-c", code], cwd=copy, capture_output=True, text=True, check=False)
    assert f"{config}: LAUNCHER = 'mpirun'; allowed: torchrun, processes" in result.stderr


def test_a_framework_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(UnknownBenchmarkError) as error:
        benchmark("bert", "jax")
    assert str(error.value) == "unknown framework of bert 'jax'; available: paddle, pytorch"
    assert f"BERT.model:framework = 'bert:jax': {error.value}" in PAGE.read_text(encoding="utf-8")
