"""docs/how-to/adding-a-benchmark.md is true: the benchmark it shows is built from the page and runs."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from protocol.perflog import Event, check_sequence, parse_line
from tests.training.benchmarks.driver.launch.launching import ROOT, command, exit_record, plain_processes
from tests.training.benchmarks.page_project import build

PAGE = ROOT / "docs" / "how-to" / "adding-a-benchmark.md"
FOLDER = "training/benchmarks/memcopy/pytorch"
CASE = "vendors/cpu/memcopy-pytorch/config/config_CPUx1x2.py"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what runs on hosts, with the page's files in it."""
    files = (f"{FOLDER}/config.py", "training/benchmarks/memcopy/__main__.py", f"{FOLDER}/outcome.py", CASE)
    return build(
        tmp_path_factory.mktemp("project"),
        PAGE,
        files,
        FOLDER,
        ("common", "protocol", "workloads", "training", "vendors"),
    )


def test_one_folder_is_all_that_a_benchmark_takes(project: Path) -> None:
    script = (
        "from training.benchmarks.catalog import benchmark as find; "
        "found = find('memcopy', 'pytorch'); "
        "print(found.entry_module, found.outcome.metrics({})[0].name)"
    )
    result = subprocess.run([sys.executable, "-c", script], cwd=project, capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["training.benchmarks.memcopy", "slowest_copy_GBps"]


SLOW_RANK = """
import os, time
if os.environ.get("RANK") == "1":
    _seconds = time.perf_counter
    time.perf_counter = lambda: 1000 * _seconds()
"""


def test_the_benchmark_of_the_page_runs_and_sees_a_slow_rank(project: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(SLOW_RANK)
    workload = ["training.benchmarks.memcopy", "--vendor", "cpu", "--config_file", CASE, "--set", "steps=3"]
    result = subprocess.run(
        command(tmp_path, plain_processes(2), workload),
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert result.returncode == 0, result.stderr
    assert exit_record(tmp_path).failures == []
    lines = (tmp_path / "rank0.out.log").read_text(encoding="utf-8").splitlines()
    records = [record for record in map(parse_line, lines) if record is not None]
    assert check_sequence(records) == []
    assert sum(record.event is Event.STEP_END for record in records) == 3
    (submitted, *_, finished) = [record.value for record in records]
    assert isinstance(submitted, dict) and isinstance(finished, dict)
    assert isinstance(submitted["config"], dict) and submitted["config"]["size_bytes"] == 16 << 20
    assert finished["correct"] == "pass"
    ends: list[Any] = [record.value for record in records if record.event is Event.STEP_END]
    assert finished["slowest_rank"] == 1
    assert finished["slowest_copy_GBps"] < max(end["copy_GBps"] for end in ends) / 10
