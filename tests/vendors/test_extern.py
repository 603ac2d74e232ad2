"""A vendor's own layers, optimizer and launch of a model: checked before a host is touched, called on every rank."""

import hashlib
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from protocol.perflog import parse_line
from run_benchmarks.console.command_line import ROOT
from run_benchmarks.errors import InputProblems
from run_benchmarks.plan.resolve import ResolvedCase, resolve
from run_benchmarks.report.settings import changed_settings
from run_benchmarks.results.records import RunRecord
from run_benchmarks.settings.settings import load_settings
from tests import product
from tests.run_benchmarks.conftest import CLUSTER
from tests.training.benchmarks.driver.training.tiny import benchmark_of, config_of
from training.benchmarks.driver.training.model import vendors_parts
from training.benchmarks.driver.workload.usage import UnusableSettingsError
from vendors import CaseFileError
from vendors.extern import Extern, find

PAGE = ROOT / "docs/how-to/adding-a-vendor.md"


def extern(folder: Path, **files: str) -> Path:
    """The folder of a case, vendors/abacus/llama-pytorch, with these files (without .py) in its extern/."""
    case = folder / "abacus/llama-pytorch"
    (case / "extern").mkdir(parents=True)
    for name, text in files.items():
        (case / "extern" / f"{name}.py").write_text(text)
    return case


def test_functions_are_found_and_files_are_hashed_without_running_them(tmp_path: Path) -> None:
    text = "import nowhere\nfrom .layers import convert_model\n\n\ndef launch(environment, local_rank):\n    _help()\n"
    case = extern(tmp_path, __init__=text, layers="def convert_model(model, config):\n    return model\n")
    found = find(case)
    assert found.functions == ("convert_model", "launch")
    assert found.files == {
        "abacus/llama-pytorch/extern/__init__.py": hashlib.sha256(text.encode()).hexdigest(),
        "abacus/llama-pytorch/extern/layers.py": hashlib.sha256((case / "extern/layers.py").read_bytes()).hexdigest(),
    }
    with pytest.raises(CaseFileError, match=r"__init__.py, line 1: does not import: ModuleNotFoundError.*nowhere"):
        found.function("launch")
    assert found.function("create_optimizer") is None and find(tmp_path) == Extern()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "__init__.py, line 1: no such file; extern/ is a package with launch, convert_model, create_optimizer"),
        ({"__init__": "x = 1\n"}, "line 1: supplies nothing"),
        ({"__init__": "\ndef convert_mdel(model, config):\n    pass\n"}, "line 2: .*did you mean 'convert_model'"),
        (
            {"__init__": "def launch(rank):\n    pass\n"},
            r"launch\(rank\) is called as launch\(environment, local_rank\)",
        ),
        ({"__init__": "def launch(:\n"}, "line 1: is no Python"),
        ({"__init__": "from .a import launch\n", "a": "\nx = (\n"}, r"a\.py, line 2: is no Python"),
    ],
)
def test_what_would_not_be_called_is_named(tmp_path: Path, files: dict[str, str], message: str) -> None:
    with pytest.raises(CaseFileError, match=message):
        find(extern(tmp_path, **files))


def test_files_that_do_not_reach_the_hosts_and_functions_that_nobody_calls_are_refused(tmp_path: Path) -> None:
    case = extern(tmp_path, __init__="def create_optimizer(groups, config):\n    pass\n")
    with pytest.raises(CaseFileError, match="create_optimizer has no effect: this benchmark is no training"):
        find(case, is_training=False)
    (case / "extern/kernels.so").touch()
    with pytest.raises(CaseFileError, match=r"kernels.so, line 1: is no \.py file"):
        find(case)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("del model.lm_head\n    return model", "changed parameters: lm_head.weight; names and shapes must stay"),
        ("pass", "convert_model returned NoneType, not the model"),
    ],
)
def test_layers_that_change_the_parameters_are_refused(tmp_path: Path, body: str, message: str) -> None:
    found = find(extern(tmp_path, __init__=f"def convert_model(model, config):\n    {body}\n"))
    config = config_of("llama")
    with torch.device("meta"), pytest.raises(UnusableSettingsError, match=message):
        vendors_parts.converted(benchmark_of("llama").build_model(config), config, found)


def test_an_optimizer_that_leaves_parameters_out_is_refused(tmp_path: Path) -> None:
    text = "import torch\n\n\ndef create_optimizer(groups, config):\n    return torch.optim.SGD(groups[:1], lr=1.0)\n"
    found = find(extern(tmp_path, __init__=text))
    config = config_of("llama")
    with pytest.raises(UnusableSettingsError, match="create_optimizer leaves parameters out, or adds some"):
        vendors_parts.optimizer_of(benchmark_of("llama").build_model(config), config, "foreach", found)


def test_a_wish_for_another_optimizer_is_refused_by_the_plan(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    case = extern(tmp_path, __init__="def create_optimizer(groups, config):\n    pass\n")
    monkeypatch.setattr("run_benchmarks.plan.resolve.extern.find", lambda _, is_training: find(case))
    one = {"model": "llama", "framework": "pytorch", "config": "config_CPUx1x2", "nproc": 2, "repeat": 1}
    cluster, test = tmp_path / "cluster_conf.py", tmp_path / "test_conf.py"
    cluster.write_text(CLUSTER)

    def planned() -> tuple[ResolvedCase, ...]:
        test.write_text(f'VENDOR, RUNTIME, CASES = "cpu", "process", ["ONE"]\nONE = {one!r}\n')
        return resolve(load_settings(cluster, test), local_python="python3").cases

    assert list(planned()[0].extern) == ["abacus/llama-pytorch/extern/__init__.py"]
    one["overrides"] = {"optimizer_impl": "foreach"}
    with pytest.raises(
        InputProblems, match=r"optimizer_impl = 'foreach' has no effect: .*extern/__init__.py makes the"
    ):
        planned()


class Project:
    """A copy of the repository in which vendor cpu has its own parts of LLaMA: those of the page on adding a vendor."""

    def __init__(self, folder: Path, text: str) -> None:
        self.folder = product.copy(folder)
        self.file = folder / "vendors/cpu/llama-pytorch/extern/__init__.py"
        self.file.parent.mkdir()
        self.file.write_text(text)

    def run(self, settings: dict[str, Any]) -> Path:
        """The folder of a run with two ranks of gloo."""
        case = {"model": "llama", "framework": "pytorch", "config": "config_CPUx1x2", "nproc": 2, "overrides": settings}
        conf = {
            "VENDOR": "cpu", "RUNTIME": "process", "PYTHON": sys.executable, "CASES": ["LLAMA"], "LLAMA": case,
            "FLAGPERF_PATH_HOST": str(self.folder / "deploy"), "FLAGPERF_LOG_PATH_HOST": str(self.folder / "logs"),
        }  # fmt: skip
        (self.folder / "test_conf.py").write_text("".join(f"{key} = {value!r}\n" for key, value in conf.items()))
        (self.folder / "cluster_conf.py").write_text('HOSTS = ["localhost"]\n')
        files = ["--cluster-conf", "cluster_conf.py", "--test-conf", "test_conf.py"]
        argv = [sys.executable, "run_benchmarks/run.py", "run", *files]
        done = subprocess.run(argv, cwd=self.folder, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
        (run,) = (self.folder / "logs").glob("run2*")
        return run


@pytest.mark.nightly
def test_ranks_train_with_the_vendor_s_own_parts_and_every_record_names_them(tmp_path: Path) -> None:
    """The page's launch sets a scale, its layer multiplies the logits by it, its optimizer updates twice as far."""
    blocks = [block.partition("```")[0] for block in PAGE.read_text(encoding="utf-8").split("```python\n")[1:]]
    (text,) = (block for block in blocks if "create_optimizer" in block)
    project = Project(tmp_path, text)
    run = project.run({"max_steps": 3, "target_loss": None, "eval_interval_samples": None, "log_freq": 1})
    sha256 = hashlib.sha256(project.file.read_bytes()).hexdigest()
    for rank in range(2):
        (log,) = (run / "LLAMA").glob(f"round1/*/rank{rank}.out.log")
        events = list(filter(None, map(parse_line, log.read_text(encoding="utf-8").splitlines())))
        values: dict[str, Any] = {str(each.event): each.value for each in events}
        steps: list[Any] = [each.value for each in events if str(each.event) == "STEP_END"]
        assert values["SUBMIT_INFO"]["extern"] == {"cpu/llama-pytorch/extern/__init__.py": sha256}
        made = values["LAUNCH_TRAINING"]["kernels"]["optimizer"]
        assert made["used"] == "extern" and made["why"].endswith("cpu/llama-pytorch/extern/__init__.py")
        # Logits a thousandth as large: all 128 tokens are nearly as likely.
        assert [step["loss"] for step in steps] == pytest.approx([math.log(128)] * 3, abs=1e-3)
        assert len(re.findall("AdamW of the abacus", log.read_text(encoding="utf-8"))) == 1
    record = RunRecord.model_validate_json((run / "run.json").read_text(encoding="utf-8")).cases[0]
    assert record.extern == {"cpu/llama-pytorch/extern/__init__.py": sha256}
    assert changed_settings(record)[0][1] == f"cpu/llama-pytorch/extern/__init__.py, sha256 {sha256[:12]}"
    assert f"{sha256} *./vendors/cpu/llama-pytorch/extern/__init__.py" in (run / "code.manifest").read_text()
