"""The shipped true-size cases: published batch sizes, steps and rates, and that a step fits into a device's memory."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py  # type: ignore[import-untyped]
import numpy as np
import pytest

from tests.training.benchmarks.driver.launch.launching import ROOT
from tests.training.benchmarks.trainer.memory import RESERVED, activation_bytes, step_bytes
from tests.training.benchmarks.trainer.tiny import MODELS, benchmark_of, config_of
from training.benchmarks.driver.protocol.case_config import load_case_config
from training.benchmarks.driver.training.schedule import TrainingSchedule, learning_rate
from training.benchmarks.driver.training.settings import TrainingConfig

# Bytes that the devices show: 40 GB (the smallest A100), 80 GB, 141 GB.
MEMORY = {"A100": 42.4e9, "H100": 85.0e9, "H200": 150.0e9}
RANKS = {"1x1": 1, "1x8": 8, "2x8": 16}
CASES = [(model, device, shape) for model in MODELS for device in MEMORY for shape in RANKS]
# FlagPerf's samples a step on each device: BERT 24 in 4 micro-batches.
PUBLISHED = {
    "bert": {"1x1": 96, "1x8": 96, "2x8": 96},
    "glm": {"1x1": 16, "1x8": 8, "2x8": 8},
    "cpm": {"1x1": 32, "1x8": 32, "2x8": 192},
}


def _config(model: str, device: str, shape: str) -> TrainingConfig:
    path = ROOT / "vendors" / "nvidia" / f"{model}-pytorch" / "config" / f"config_{device}x{shape}.py"
    config: TrainingConfig = load_case_config(MODELS[model][1], Path(path), {})
    return config


@pytest.mark.parametrize(("model", "device", "shape"), CASES)
def test_a_step_fits_into_the_devices_memory(model: str, device: str, shape: str) -> None:
    needed = step_bytes(benchmark_of(model), _config(model, device, shape), RANKS[shape])
    assert needed * (1 + RESERVED) < MEMORY[device], f"{needed / 1e9:.1f} GB"


@pytest.mark.parametrize("model", PUBLISHED)
@pytest.mark.parametrize("shape", RANKS)
def test_a_step_takes_the_published_samples_on_every_device(model: str, shape: str) -> None:
    for device in MEMORY:
        config = _config(model, device, shape)
        assert config.train_batch_size * config.gradient_accumulation_steps == PUBLISHED[model][shape], device


@pytest.mark.parametrize(
    ("model", "samples", "steps", "peak_at", "lowest"),
    [
        ("bert", 10_000_000, 5859, 1, 0.0),  # 4,500,000 samples / 768
        ("glm", 100_000, 86_766, 434, 0.1),  # 5,553,080 / 64; the rate falls over 4338 steps
        ("cpm", 100_000, 4000, 800, 0.0),
    ],
)
def test_the_schedule_of_eight_devices_is_the_published_one(
    model: str, samples: int, steps: int, peak_at: int, lowest: float
) -> None:
    config = _config(model, "A100", "1x8")
    schedule = TrainingSchedule.of(config, dp_size=8, train_samples=samples)
    assert schedule.total_steps == steps
    rates = [learning_rate(config, step, steps) / config.learning_rate for step in range(1, steps + 1)]
    assert rates[peak_at - 1] == pytest.approx(1.0, abs=2e-3) == max(rates)
    assert rates[-1] == pytest.approx(lowest, abs=1e-3)
    decayed = config.lr_decay_steps or steps
    assert rates[(peak_at + decayed) // 2] == pytest.approx((1 + lowest) / 2, abs=2e-3), "it falls linearly"


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_every_layer_keeps_as_much_as_the_second(model: str, precision: str) -> None:
    config: Any = config_of(model, precision=precision)
    one, two, five = (activation_bytes(benchmark_of(model), config, layers) for layers in (1, 2, 5))
    assert two > one > 0
    assert five == one + 4 * (two - one)


def test_every_true_size_case_can_be_planned(tmp_path: Path) -> None:
    cases = {
        f"{model}:pytorch:{d}:{shape.replace('x', ':')}:1": "/data" for model, d, shape in CASES if model != "llama"
    }
    cases |= {f"llama:pytorch:{d}:{shape.replace('x', ':')}:1": "/data" for d in MEMORY for shape in ("1x8", "2x8")}
    (tmp_path / "cluster_conf.py").write_text('HOSTS = ["gpu01", "gpu02"]\n')
    (tmp_path / "test_conf.py").write_text(f'VENDOR, RUNTIME = "nvidia", "process"\nCASES = {cases!r}\n')
    options = [f"--{name}-conf={tmp_path / name}_conf.py" for name in ("cluster", "test")]
    argv = [sys.executable, "run_benchmarks/run.py", *options, "plan"]
    result = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert [case["name"] for case in json.loads(result.stdout)["cases"]] == list(cases)


def _write(path: Path, arrays: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        for key, array in arrays.items():
            file.create_dataset(key, data=array)


def _bert_files(folder: Path) -> None:
    ones = np.ones((3, 512), dtype=np.int32)
    arrays: dict[str, Any] = dict.fromkeys(("input_ids", "input_mask", "segment_ids"), ones)
    arrays |= dict.fromkeys(("masked_lm_positions", "masked_lm_ids"), np.ones((3, 76), dtype=np.int32))
    arrays["next_sentence_labels"] = np.zeros(3, dtype=np.int32)
    for name in ("2048_shards_uncompressed/part_00000.hdf5", "eval_set_uncompressed/part_eval_10k.hdf5"):
        _write(folder / name, arrays)


def _glm_files(folder: Path) -> None:
    rows = np.ones((6, 512), dtype=np.int64)
    arrays: dict[str, Any] = dict.fromkeys(("text", "target", "logit_mask"), rows)
    arrays |= {"position": np.ones((12, 512), dtype=np.int64), "mask": np.full((1, 6), 500)}
    arrays |= {"choice_start_end": np.array([[0, 2], [2, 6]]), "answer_start_end": np.array([[0, 1], [1, 2]])}
    arrays["answer_idx"] = np.array([[0, 3]])
    for kind in ("train", "eval"):
        _write(folder / f"ReCoRD/glm_train_eval_hdf5_sparse/{kind}_hdf5/{kind}_sparse.hdf5", arrays)


def _llama_files(folder: Path) -> None:
    for name in ("train.npy", "eval.npy"):
        np.save(folder / name, np.zeros(3 * 4096 + 5, dtype=np.uint16))


@pytest.mark.parametrize(
    ("model", "write", "samples"), [("bert", _bert_files, 3), ("glm", _glm_files, 2), ("llama", _llama_files, 3)]
)
def test_the_readers_take_files_of_the_true_sizes(model: str, write: Any, samples: int, tmp_path: Path) -> None:
    write(tmp_path)
    sets = benchmark_of(model).open_files(_config(model, "A100", "1x8"), tmp_path)
    assert len(sets.train) == len(sets.evaluation) == samples
    assert all(len(tensor) == samples for tensor in sets.train[list(range(samples))].values())
