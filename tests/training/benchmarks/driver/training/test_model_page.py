"""docs/how-to/adding-a-model.md is true: its model is built from the page, listed, and trained on two ranks."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from protocol.perflog import Event, PerfLogRecord, check_sequence, parse_line
from tests.training.benchmarks.driver.launch.launching import ROOT, command, exit_record, plain_processes
from tests.training.benchmarks.page_project import build

PAGE = ROOT / "docs" / "how-to" / "adding-a-model.md"
FOLDER = "training/benchmarks/successor/pytorch"
MODULE = "training.benchmarks.successor.pytorch.run_training"
CASE = "vendors/cpu/successor-pytorch/config/config_CPUx1x2.py"
FLOPS = """
import torch
from torch.utils.flop_counter import FlopCounterMode
from protocol.case_config import load_case_config
from training.benchmarks.successor.pytorch.config import Config
from training.benchmarks.successor.pytorch.run_training import SuccessorBenchmark
from pathlib import Path
config = load_case_config(Config, Path("{case}"), {{}})
benchmark = SuccessorBenchmark()
model = benchmark.build_model(config)
batch = benchmark.synthetic_data(config).train[[0, 1]]
with FlopCounterMode(display=False) as counter:
    model.train()(batch)["loss"].backward()
# The page counts every token, of which the last one predicts nothing.
print(counter.get_total_flops() / (2 * config.flops_per_sample()) * config.seq_length / (config.seq_length - 1))
"""


INITIALIZED = """
from pathlib import Path
import torch
from torch import nn
from protocol.case_config import load_case_config
from training.benchmarks.driver.training.model.parallel import _fill
from training.benchmarks.successor.pytorch.config import Config
from training.benchmarks.successor.pytorch.model import Successor
model = Successor(load_case_config(Config, Path("{case}"), {{"hidden_size": 256, "num_layers": 1}}))
own = [(module, *(each.detach().std().item() for each in module.parameters())) for module in model.modules()
       if isinstance(module, nn.Linear | nn.Embedding)]  # filled by their own reset_parameters
shapes = {{name: (each.shape, each.dtype) for name, each in model.named_parameters()}}
_fill(model, 1, torch.device("cpu"), shapes, None)
for module, *deviations in own:
    print(*(each.detach().std().item() / own for each, own in zip(module.parameters(), deviations)))
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project, with the page's files in it."""
    files = (*(f"{FOLDER}/{name}.py" for name in ("config", "model", "run_training", "outcome")), CASE)
    return build(tmp_path_factory.mktemp("project"), PAGE, files, FOLDER)


def _train(project: Path, folder: Path, ranks: int, *arguments: str) -> tuple[int, list[PerfLogRecord]]:
    workload = [MODULE, "--vendor", "cpu", "--config_file", CASE, *arguments]
    argv = command(folder, plain_processes(ranks), workload)
    result = subprocess.run(argv, cwd=project, capture_output=True, text=True, timeout=200, check=False)
    assert exit_record(folder) is not None, result.stderr
    lines = (folder / "rank0.out.log").read_text(encoding="utf-8").splitlines()
    return result.returncode, [record for record in map(parse_line, lines) if record is not None]


def test_the_model_of_the_page_reaches_its_target_on_two_ranks(project: Path, tmp_path: Path) -> None:
    code, records = _train(project, tmp_path, 2, "--set", "strategy=fsdp")
    assert code == 0
    assert check_sequence(records) == []
    finished: Any = records[-1].value
    assert finished["converged"] is True and finished["targets"] == ["eval_accuracy >= 0.9"]
    assert finished["final_accuracy"] >= 0.9
    ends: list[Any] = [record.value for record in records if record.event is Event.STEP_END]
    assert ends[-1]["accuracy"] == finished["final_accuracy"]


@pytest.mark.nightly
def test_the_model_of_the_page_reads_files_and_names_one_that_is_missing(project: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "train.npy", np.arange(40 * 32) % 64)
    options = ["--set", "data=files", "--set", "max_steps=2", "--data_dir", str(tmp_path)]
    code, records = _train(project, tmp_path / "run", 1, *options)
    assert code == 2 and records[-1].event is Event.LAUNCH_TRAINING
    assert f"{tmp_path}/eval.npy: no such file" in (tmp_path / "run" / "rank0.out.log").read_text(encoding="utf-8")


def test_the_controller_plans_its_case_and_knows_its_metrics(project: Path, tmp_path: Path) -> None:
    conf = tmp_path / "test_conf.py"
    cases = {"successor:pytorch:CPU:1:2:1": ""}
    conf.write_text(f'VENDOR, RUNTIME = "cpu", "process"\nCASES = {cases!r}\n')
    argv = [sys.executable, "run_benchmarks/run.py", "--test-conf", str(conf), "plan"]
    result = subprocess.run(argv, cwd=project, capture_output=True, text=True, timeout=200, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert [case["name"] for case in json.loads(result.stdout)["cases"]] == list(cases)
    script = (
        "from training.benchmarks.catalog import benchmark;"
        "print(*(metric.name for metric in benchmark('successor', 'pytorch').outcome.metrics({})))"
    )
    found = subprocess.run([sys.executable, "-c", script], cwd=project, capture_output=True, text=True, check=True)
    assert {"throughput(ips)_steady", "final_accuracy", "mfu"} <= set(found.stdout.split())


@pytest.fixture(scope="module")
def figures(project: Path) -> list[float]:
    """What two scripts print of the page's model, in one process: torch takes seconds to load."""
    script = FLOPS.format(case=CASE) + INITIALIZED.format(case=CASE)
    found = subprocess.run([sys.executable, "-c", script], cwd=project, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    return [float(word) for word in found.stdout.split()]


@pytest.mark.nightly
def test_the_operations_of_the_page_are_those_that_torch_counts(figures: list[float]) -> None:
    assert figures[0] == pytest.approx(1, rel=1e-3)


@pytest.mark.nightly
def test_the_parameters_of_the_page_are_filled_as_torch_fills_these_layers(figures: list[float]) -> None:
    assert len(figures) == 1 + 5 and all(ratio == pytest.approx(1, rel=0.25) for ratio in figures[1:])
