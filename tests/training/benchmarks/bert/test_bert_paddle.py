"""BERT in Paddle. The trainings are of make nightly, which installs Paddle in .cache/paddle; the rest needs none."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from common.errors import InputProblems
from protocol.case_config import load_case_config
from protocol.perflog import Event, PerfLogRecord, check_sequence, parse_line
from tests.training.benchmarks.driver.launch.launching import ROOT, exit_record
from training.benchmarks.bert.pytorch.config import Config as TorchConfig
from training.benchmarks.bert.pytorch.model import Bert
from training.benchmarks.catalog import benchmark

PADDLE = ROOT / ".cache" / "paddle" / "bin" / "python"
CASE = ROOT / "vendors" / "cpu" / "bert-paddle" / "config" / "config_CPUx1x2.py"
needs_paddle = pytest.mark.skipif(
    not PADDLE.exists(), reason="no .cache/paddle: make nightly installs requirements/paddle.lock there"
)
# Every step sees all samples: their order, which each framework draws for itself, changes nothing.
PARITY = """
data, train_samples, eval_samples = "synthetic", 32, 32
num_layers, hidden_size, num_attention_heads, ffn_hidden_size = 2, 32, 4, 64
vocab_size, synthetic_tokens, max_position_embeddings, max_seq_length, max_predictions_per_seq = 64, 40, 32, 32, 5
hidden_dropout = attention_dropout = 0.0
eval_batch_size, max_steps, log_freq, warmup, learning_rate, weight_decay = 16, 20, 1, 0.2, 5e-3, 0.1
lr_schedule, max_samples, precision, unpad, num_workers = "linear", None, "fp32", False, 0
eval_interval_samples, eval_start_samples, target_mlm_accuracy, synthetic_lengths = None, 0, None, "full"
max_grad_norm = 1.0
"""
# Stands in for the package: classes and functions that nothing calls while modules are imported.
WITHOUT_PADDLE = """
import importlib, sys, types
names = ("paddle", "paddle.distributed", "paddle.nn", "paddle.nn.functional")
modules = {name: types.ModuleType(name) for name in names}
modules["paddle.nn"].Layer = object
for name, module in modules.items():
    sys.modules[name] = module
    owner, _, own = name.rpartition(".")
    if owner:
        setattr(modules[owner], own, module)
importlib.import_module("training.benchmarks.bert.paddle.run_pretraining")
print(sorted(name for name in sys.modules if name.partition(".")[0] == "torch"))
"""


def test_nothing_that_a_paddle_rank_imports_of_ours_imports_torch() -> None:
    found = subprocess.run([sys.executable, "-c", WITHOUT_PADDLE], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_what_paddle_does_not_offer_is_refused_all_at_once() -> None:
    config_class = benchmark("bert", "paddle").config_class
    with pytest.raises(InputProblems) as error:
        load_case_config(config_class, CASE, {"strategy": "fsdp", "num_workers": 4})
    assert "num_workers = 4; allowed with Paddle: 0; strategy = 'fsdp'; allowed with Paddle: 'ddp'" in str(error.value)


def test_both_frameworks_have_one_model_and_one_outcome() -> None:
    of_torch, of_paddle = benchmark("bert", "pytorch"), benchmark("bert", "paddle")
    assert of_paddle.outcome.metrics({}) == of_torch.outcome.metrics({})
    assert (of_paddle.launcher, of_torch.launcher) == ("processes", "torchrun")
    assert of_paddle.config_class.model_fields.keys() == of_torch.config_class.model_fields.keys()


def _launched(
    folder: Path, python: Path | str, ranks: int, workload: list[str], launcher: str
) -> subprocess.CompletedProcess[str]:
    argv = [str(python), "-m", "training.benchmarks.driver.launch", "--launcher", launcher, "--log_dir", str(folder)]
    argv += ["--nproc_per_node", str(ranks), "--", "-m", *workload]
    paths = [str(ROOT)]
    if python == PADDLE:  # where torch is imported nothing catches this
        (folder.parent / "torch.py").write_text("raise SystemExit('a Paddle rank imports torch')")
        paths.append(str(folder.parent))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False)


def _records(folder: Path, rank: int = 0) -> list[PerfLogRecord]:
    lines = (folder / f"rank{rank}.out.log").read_text(encoding="utf-8").splitlines()
    return [record for record in map(parse_line, lines) if record is not None]


def _keys(records: list[PerfLogRecord]) -> dict[Event, set[str]]:
    """The keys of every kind of event, of all its lines together."""
    found: dict[Event, set[str]] = {}
    for record in records:
        if isinstance(record.value, dict):
            found.setdefault(record.event, set()).update(record.value)
    return found


def _weights(folder: Path, case: Path) -> None:
    """One set of weights in both forms."""
    config = load_case_config(TorchConfig, case, {})
    generator = numpy.random.default_rng(7)
    weights = {
        name: (generator.standard_normal(tuple(tensor.shape)) * 0.05 + (tensor.ndim == 1)).astype(numpy.float32)
        for name, tensor in Bert(config).named_parameters()
    }
    torch.save({name: torch.from_numpy(array) for name, array in weights.items()}, folder / "weights.pt")
    saving = pytest.importorskip("safetensors.numpy")
    saving.save_file(weights, folder / "weights.safetensors")


@pytest.mark.nightly
@needs_paddle
@pytest.mark.parametrize("optimizer", ["lamb", "adamw", "adam"])
def test_a_training_is_that_of_torch(tmp_path: Path, optimizer: str) -> None:
    """20 steps from the same weights: Paddle on two ranks that accumulate, and torch on one."""
    losses: dict[str, list[float]] = {}
    keys: dict[str, dict[Event, set[str]]] = {}
    case = tmp_path / "case.py"
    case.write_text(PARITY + f"optimizer = {optimizer!r}\n")
    _weights(tmp_path, case)
    runs: Mapping[str, tuple[Any, ...]] = {
        "pytorch": (sys.executable, 1, "torchrun", "weights.pt", 32, 1),
        "paddle": (PADDLE, 2, "processes", "weights.safetensors", 8, 2),
    }
    for framework, (python, ranks, launcher, weights, batch, accumulation) in runs.items():
        workload = [
            f"training.benchmarks.bert.{framework}.run_pretraining",
            "--vendor",
            "cpu",
            "--config_file",
            str(case),
        ]
        workload += ["--set", f"init_checkpoint='{tmp_path / weights}'", "--set", f"train_batch_size={batch}"]
        workload += ["--set", f"gradient_accumulation_steps={accumulation}"]
        done = _launched(tmp_path / framework, python, ranks, workload, launcher)
        assert done.returncode == 0, done.stdout + done.stderr
        records = _records(tmp_path / framework)
        assert check_sequence(records) == []
        steps = [record.value for record in records if record.event is Event.STEP_END]
        losses[framework] = [float(str(value["loss"])) for value in steps if isinstance(value, dict)]
        keys[framework] = _keys(records)
    assert len(losses["paddle"]) == 20
    numpy.testing.assert_allclose(losses["paddle"], losses["pytorch"], rtol=2e-4)
    assert losses["paddle"][-1] < losses["paddle"][0]
    # One rank has no losses by rank; Paddle names its version beside torch's, which is empty.
    keys["paddle"][Event.STEP_END] -= {"rank_losses"}
    keys["paddle"][Event.SUBMIT_INFO] -= {"paddle"}
    assert keys["paddle"] == keys["pytorch"]


# Three updates of a matrix and a vector by given gradients, with the rates of the case.
UPDATES = """
import sys
import numpy, paddle
from pathlib import Path
from protocol.case_config import load_case_config
from training.benchmarks.bert.paddle.config import Config
from training.benchmarks.bert.paddle.trainer import _optimizer
from training.benchmarks.driver.training.settings.schedule import applied_rate
config = load_case_config(Config, Path(sys.argv[1]), {})
arrays = numpy.load(sys.argv[2])
layer = paddle.nn.Linear(3, 2)
layer.weight.set_value(arrays["weight"])
layer.bias.set_value(arrays["bias"])
optimizer = _optimizer(config, layer)
for update in (1, 2, 3):
    loss = (layer.weight * paddle.to_tensor(arrays[f"weight{update}"])).sum()
    (loss + (layer.bias * paddle.to_tensor(arrays[f"bias{update}"])).sum()).backward()
    optimizer.set_lr(applied_rate(config, update, config.max_steps))
    optimizer.step()
    optimizer.clear_grad()
numpy.savez(sys.argv[2], weight=layer.weight.numpy(), bias=layer.bias.numpy())
"""


@pytest.mark.nightly
@needs_paddle
def test_an_update_of_the_true_size_is_adamw_s(tmp_path: Path) -> None:
    """The shipped case's, against Loshchilov and Hutter's algorithm 2 in numpy; the first update has a rate of 0."""
    generator = numpy.random.default_rng(3)
    shapes = {"weight": (3, 2), "bias": (2,)}
    arrays: dict[str, Any] = {
        f"{name}{update}": generator.standard_normal(shape).astype(numpy.float32)
        for name, shape in shapes.items()
        for update in ("", 1, 2, 3)
    }
    file = tmp_path / "arrays.npz"
    numpy.savez(file, **arrays)
    shipped = ROOT / "vendors" / "nvidia" / "bert-paddle" / "config" / "config_A100x1x8.py"
    (tmp_path / "case.py").write_text(f"{shipped.read_text()}\nlearning_rate = 200.0\n")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    argv = [str(PADDLE), "-c", UPDATES, str(tmp_path / "case.py"), str(file)]
    subprocess.run(argv, env=environment, capture_output=True, text=True, check=True, timeout=300)
    found = numpy.load(file)
    for name, decay in (("weight", 0.01), ("bias", 0.0)):
        value, first, second = arrays[name].astype(float), numpy.zeros(()), numpy.zeros(())
        for update in (1, 2, 3):
            gradient = arrays[f"{name}{update}"].astype(float)
            rate = 200.0 * (update - 1) / 2000
            first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
            step = first / (1 - 0.9**update) / (numpy.sqrt(second / (1 - 0.999**update)) + 1e-6)
            value = value * (1 - rate * decay) - rate * step
        numpy.testing.assert_allclose(found[name], value, rtol=1e-4, err_msg=name)


@pytest.mark.nightly
@needs_paddle
def test_ranks_that_train_alone_are_found(tmp_path: Path) -> None:
    workload = ["tests.training.benchmarks.bert.paddle_sabotage", "--vendor", "cpu", "--config_file", str(CASE)]
    workload += ["--set", "max_steps=20", "--set", "eval_start_samples=0", "--set", "eval_interval_samples=640"]
    done = _launched(tmp_path, PADDLE, 2, workload, "processes")
    assert done.returncode != 0
    said = (tmp_path / "rank1.out.log").read_text(encoding="utf-8")
    assert "after step 10 rank 1 has other parameters than rank 0, first " in said


@pytest.mark.nightly
@needs_paddle
def test_bert_converges_on_two_ranks_through_run_py(tmp_path: Path) -> None:
    conf = tmp_path / "test_conf.py"
    conf.write_text(
        f"""VENDOR, RUNTIME, PYTHON = "cpu", "process", {str(PADDLE)!r}
FLAGPERF_LOG_PATH_HOST = {str(tmp_path / "result")!r}
CASES = {{"bert:paddle:CPU:1:2:1": ""}}
"""
    )
    argv = [sys.executable, "run_benchmarks/run.py", "--test-conf", str(conf)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (exit_file,) = tmp_path.glob("result/run*/*/round1/*/node_exit.json")
    record = exit_record(exit_file.parent)
    assert record.failures == [] and record.torch is None
    (round_file,) = tmp_path.glob("result/run*/*/round1/round.json")
    metrics = json.loads(round_file.read_text(encoding="utf-8"))["metrics"]
    assert metrics["converged"] is True and metrics["final_mlm_accuracy"] >= 0.67
    assert metrics["one_training"] is True and metrics["throughput(sps)_no_eval"] > 0


@pytest.mark.nightly
@needs_paddle
def test_ranks_of_two_nodes_meet_at_the_master(tmp_path: Path) -> None:
    """Two launchers with two ranks each, as on two hosts: node 1 is told no more than the master's address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    workload = ["-m", "training.benchmarks.bert.paddle.run_pretraining", "--vendor", "cpu", "--config_file", str(CASE)]
    workload += ["--set", "max_steps=5", "--set", "target_mlm_accuracy=None", "--set", "log_freq=1"]
    workload += ["--set", "eval_start_samples=0", "--set", "eval_interval_samples=None"]
    started = []
    for node in range(2):
        argv = [str(PADDLE), "-m", "training.benchmarks.driver.launch", "--launcher", "processes"]
        argv += ["--log_dir", str(tmp_path / str(node)), "--nproc_per_node", "2", "--nnodes", "2"]
        argv += ["--node_rank", str(node), "--master_addr", "127.0.0.1", "--master_port", str(port), "--", *workload]
        started.append(subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    said = [process.communicate(timeout=300)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0], said
    for rank in range(4):
        records = _records(tmp_path / str(rank // 2), rank)
        assert check_sequence(records) == []
        (finished,) = (record.value for record in records if record.event is Event.FINISHED)
        assert (
            isinstance(finished, dict) and finished["one_training"] is True and finished["num_trained_samples"] == 640
        )
