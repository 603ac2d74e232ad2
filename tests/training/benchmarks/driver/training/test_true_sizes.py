"""The shipped true-size cases: published batch sizes, steps and rates, and that a step fits into a device's memory."""

import csv
import json
import math
import subprocess
import sys
from itertools import count, islice
from pathlib import Path
from typing import Any

import h5py  # type: ignore[import-untyped]
import numpy as np
import pytest
import torch

from protocol.case_config import load_case_config
from protocol.config_file import config_file
from tests.training.benchmarks.driver.launch.launching import ROOT
from tests.training.benchmarks.driver.training.tiny import MODELS, benchmark_of, config_of
from training.benchmarks.bert.paddle.config import Config as PaddleConfig
from training.benchmarks.driver.training.layout.auto_layout import choose_layout
from training.benchmarks.driver.training.layout.memory_estimate import RESERVED, activation_bytes, step_bytes
from training.benchmarks.driver.training.model.model import parameter_count
from training.benchmarks.driver.training.settings.schedule import TrainingSchedule, applied_rate, learning_rate
from training.benchmarks.driver.training.settings.settings import TrainingConfig

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
    path = config_file(ROOT / "vendors" / "nvidia" / f"{model}-pytorch" / "config", f"config_{device}x{shape}")
    config: TrainingConfig = load_case_config(MODELS[model][1], Path(path), {})
    return config


def _is_left_to_nightly(device: str, shape: str) -> bool:
    """Each takes seconds: devices with more memory than A100, and more of them than one."""
    return device != "A100" or shape != "1x1"


@pytest.mark.parametrize(
    ("model", "device", "shape"),
    [pytest.param(*case, marks=pytest.mark.nightly if _is_left_to_nightly(*case[1:]) else ()) for case in CASES],
)
def test_a_step_fits_into_the_devices_memory(model: str, device: str, shape: str) -> None:
    config, benchmark = _config(model, device, shape), benchmark_of(model)
    if config.layout == "auto":
        memory = int(MEMORY[device])
        choice = choose_layout(
            benchmark, config, world_size=RANKS[shape], per_node=min(8, RANKS[shape]), device_bytes=memory
        )
        config = choice.applied(config)
    needed = step_bytes(benchmark, config, RANKS[shape])
    assert needed * (1 + RESERVED) < MEMORY[device], f"{needed / 1e9:.1f} GB"


@pytest.mark.parametrize("model", MODELS)
def test_the_settings_count_the_parameters_of_the_model(model: str) -> None:
    """The shipped cases, and models of odd sizes: the head node knows their number without torch."""
    odd = {"num_layers": 3, "hidden_size": 36, "num_attention_heads": 6, "vocab_size": 211}
    narrow = {"max_position_embeddings": 57, "max_seq_length": 40, "ffn_hidden_size": 50, "num_key_value_heads": 2}
    config = _config(model, "A100", "1x8")
    fitting = {name: value for name, value in (odd | narrow).items() if name in type(config).model_fields}
    for each in (config, config.model_copy(update=fitting)):
        with torch.device("meta"):
            assert each.parameters() == parameter_count(benchmark_of(model).build_model(each))
    # Touvron et al. 2023: 6.7B; of LLaMA-2's published weights, 6,738,415,616.
    assert model != "llama" or config.parameters() == 6_738_415_616


@pytest.mark.parametrize("model", PUBLISHED)
@pytest.mark.parametrize("shape", RANKS)
def test_a_step_takes_the_published_samples_on_every_device(model: str, shape: str) -> None:
    for device in MEMORY:
        config = _config(model, device, shape)
        assert config.train_batch_size * config.gradient_accumulation_steps == PUBLISHED[model][shape], device


# FlagPerf's learning rates at ten steps, computed by hand from its schedulers and the settings of its A100 configs.
RATES: dict[tuple[str, str], dict[int, float]] = {
    ("cpm", "1x1"): {1: 8.333333333e-07, 600: 5e-4, 601: 4.998333333e-4, 3000: 1e-4},
    ("cpm", "1x8"): {
        1: 6.25e-07, 2: 1.25e-06, 100: 6.25e-05, 799: 4.99375e-4, 800: 5e-4, 801: 4.99875e-4, 2000: 3.5e-4,
        3000: 2.25e-4, 3397: 1.75375e-4, 4000: 1e-4,
    },
    ("cpm", "2x8"): {1: 1.25e-06, 400: 5e-4, 2000: 1e-4},
    ("glm", "1x8"): {
        1: 2.305209774e-08, 2: 4.610419548e-08, 100: 2.305209774e-06, 433: 9.981558322e-06, 434: 9.999538958e-06,
        435: 9.997233748e-06, 2000: 6.389580452e-06, 4338: 1e-06, 4339: 1e-06, 80000: 1e-06,
    },
    ("bert", "1x1"): {1: 3.499985417e-4, 46875: 2.81640625e-4},
    ("bert", "1x8"): {
        1: 3.499883333e-4, 2: 3.499766667e-4, 10: 3.498833333e-4, 100: 3.488333333e-4, 500: 3.441666667e-4,
        1000: 3.383333333e-4, 2000: 3.266666667e-4, 2604: 3.1962e-4, 4000: 3.033333333e-4, 5859: 2.81645e-4,
    },
    ("bert", "2x8"): {1: 3.499825e-4, 2929: 2.987425e-4},
    ("llama", "1x8"): dict.fromkeys((1, 2, 3, 10, 50, 100, 500, 1000, 2000, 3000), 1e-5),
}  # fmt: skip
# What ends a run: steps where max_samples or max_steps comes first, for a training set of any size.
ENDS = {
    ("bert", "1x1"): 46_875, ("bert", "1x8"): 5_859, ("bert", "2x8"): 2_929,
    ("cpm", "1x1"): 3000, ("cpm", "1x8"): 4000, ("cpm", "2x8"): 2000,
    ("glm", "1x1"): 1508, ("glm", "1x8"): 86_766, ("glm", "2x8"): 43_383,
}  # fmt: skip
SETTINGS: dict[str, dict[str, Any]] = {
    "bert": {"optimizer": "lamb", "seed": 9031, "weight_decay": 0.01, "eps": 1e-6, "beta1": 0.9, "beta2": 0.999,
             "max_grad_norm": 1.0, "max_samples": 4_500_000, "target_mlm_accuracy": 0.71},
    "cpm": {"optimizer": "adamw", "seed": 23333, "weight_decay": 0.05, "eps": 1e-8, "beta1": 0.9, "beta2": 0.999,
            "max_grad_norm": None, "hidden_dropout": 0.5, "attention_dropout": 0.5, "target_embedding_average": 0.92,
            "target_loss": 3.2, "eval_interval_samples": 20_000, "precision": "fp16"},
    "glm": {"optimizer": "adamw", "seed": 10483, "weight_decay": 0.1, "eps": 1e-8, "beta1": 0.9, "beta2": 0.999,
            "max_grad_norm": 1.0, "eval_interval_samples": 19_200, "target_accuracy": 0.8},
    "llama": {"optimizer": "adamw", "weight_decay": 0.1, "eps": 1e-5, "beta1": 0.9, "beta2": 0.95, "max_grad_norm": 1.0,
              "learning_rate": 1e-5},
}  # fmt: skip
OF_SHAPE: dict[str, dict[str, dict[str, Any]]] = {
    "bert": {"1x1": {"max_steps": 240_000}, "1x8": {"max_steps": 30_000}, "2x8": {"max_steps": 20_000}},
    "cpm": {"1x1": {"max_steps": 3000, "max_samples": 439_126_000},
            "1x8": {"max_steps": 4000, "max_samples": 4_391_260},
            "2x8": {"max_steps": 2000, "max_samples": 43_912_600}},
    "glm": {"1x1": {"max_samples": 24_135}, "1x8": {"max_samples": 5_553_080}, "2x8": {"max_samples": 5_553_080}},
    "llama": {"1x8": {"max_epochs": 1, "eval_file": None, "train_file": "openwebtext_llama2_100M.npy"}},
}  # fmt: skip


@pytest.mark.parametrize("device", MEMORY)
@pytest.mark.parametrize(("model", "shape"), RATES)
def test_the_learning_rates_are_the_published_ones(model: str, shape: str, device: str) -> None:
    config = _config(model, device, shape)
    steps = ENDS.get((model, shape), 3000)
    found = {step: learning_rate(config, step, steps) for step in RATES[model, shape]}
    assert found == pytest.approx(RATES[model, shape], rel=1e-9)


@pytest.mark.parametrize("device", MEMORY)
@pytest.mark.parametrize("model", SETTINGS)
def test_the_settings_are_the_published_ones(model: str, device: str) -> None:
    for shape, of_shape in OF_SHAPE[model].items():
        wanted = SETTINGS[model] | of_shape
        config = _config(model, device, shape).model_dump()
        assert {key: config[key] for key in wanted} == wanted, shape


@pytest.mark.parametrize(("model", "shape"), ENDS)
def test_a_run_has_the_published_number_of_steps(model: str, shape: str) -> None:
    schedule = TrainingSchedule.of(_config(model, "A100", shape), dp_size=RANKS[shape], train_samples=10_000_000)
    assert schedule.total_steps == ENDS[model, shape]


def test_an_update_of_cpm_and_glm_takes_the_rate_of_the_step_before_it() -> None:
    """FlagPerf's trainers call the scheduler, whose rate they log, after the optimizer."""
    for model, end in (("cpm", 4000), ("glm", 86_766), ("bert", 5859)):
        config = _config(model, "A100", "1x8")
        lag = 0 if model == "bert" else 1
        for step in (2, 433, 800, 2000):
            assert applied_rate(config, step, end) == learning_rate(config, step - lag, end)
        assert (applied_rate(config, 1, end) == 0) is bool(lag), "the first update of a warm-up changes nothing"


# BERT in Paddle: FlagPerf's configs of training/nvidia/bert-paddle, and what benchmarks/bert/paddle has in its code.
PADDLE: dict[str, Any] = {
    "optimizer": "adamw", "learning_rate": 1e-4, "weight_decay": 0.01, "beta1": 0.9, "beta2": 0.999, "eps": 1e-6,
    "max_grad_norm": None, "seed": 9031, "precision": "fp32", "target_mlm_accuracy": 0.67, "data": "files",
    "train_batch_size": 12, "gradient_accumulation_steps": 1, "eval_batch_size": 12, "num_layers": 24,
    "hidden_size": 1024, "max_seq_length": 512, "max_predictions_per_seq": 76,
    "init_checkpoint": "model.ckpt-28252.safetensors",
}  # fmt: skip
PADDLE_OF_SHAPE = {"1x1": (10_000_000, 450_000_000), "1x8": (10_000, 4_500_000), "2x8": (10_000, 4_500_000)}


def _paddle(device: str, shape: str) -> PaddleConfig:
    path = config_file(ROOT / "vendors" / "nvidia" / "bert-paddle" / "config", f"config_{device}x{shape}")
    return load_case_config(PaddleConfig, path, {})


@pytest.mark.parametrize("device", MEMORY)
@pytest.mark.parametrize("shape", PADDLE_OF_SHAPE)
def test_bert_in_paddle_is_flagperfs(device: str, shape: str) -> None:
    """Its loop, walked step by step: the samples before a step decide on evaluation, a multiple of the interval too."""
    config, (steps, samples) = _paddle(device, shape), PADDLE_OF_SHAPE[shape]
    wanted = PADDLE | {"max_steps": steps, "max_samples": samples}
    assert {key: config.model_dump()[key] for key in wanted} == wanted
    schedule = TrainingSchedule.of(config, dp_size=RANKS[shape], train_samples=10**9)
    assert schedule.total_steps == steps, "max_steps comes before max_samples"
    batch = 12 * RANKS[shape]
    assert schedule.global_batch_size == batch
    interval = int(0.05 * (230.23 * batch + 3_000_000) / 25_000) * 25_000
    evaluates = (n for n in count(1) if (n - 1) * batch >= 150_000 and n % math.ceil(interval / batch) == 0)
    mine = (n for n in count(1) if schedule.evaluates_after(n))
    wanted_steps = [n for n in islice(evaluates, 4) if n < steps]
    assert list(islice(mine, len(wanted_steps))) == wanted_steps != []
    # FlagPerf's scheduler counts the updates before this one.
    for update in (1, 2, 1000, 2000, 2001, 5000, steps):
        done = update - 1
        rate = 1e-4 * (done / 2000 if done < 2000 else 1 - done / steps)
        assert applied_rate(config, update, steps) == pytest.approx(rate, rel=1e-8), update


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("bert", "GELU by tanh"),
        ("glm", "weights of norms are decayed"),
        ("llama", "no rotary ones"),
        ("llama", "biases"),
        ("llama", "in bf16 (ds_config.json), activations are kept"),
    ],
)
def test_what_remains_different_from_flagperf_is_a_row_of_the_table(model: str, said: str) -> None:
    with (ROOT / "docs" / "data" / "flagperf-differences.csv").open(encoding="utf-8") as file:
        rows = [*csv.DictReader(file)]
    assert any(model in row["model"] and said in row["FlagPerf"] and row["here"] for row in rows)


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
    np.save(folder / "openwebtext_llama2_100M.npy", np.zeros(3 * 4096 + 5, dtype=np.uint16))


@pytest.mark.parametrize(
    ("model", "write", "samples"), [("bert", _bert_files, 3), ("glm", _glm_files, 2), ("llama", _llama_files, 3)]
)
def test_the_readers_take_files_of_the_true_sizes(model: str, write: Any, samples: int, tmp_path: Path) -> None:
    write(tmp_path)
    sets = benchmark_of(model).open_files(_config(model, "A100", "1x8"), tmp_path)
    assert len(sets.train) == samples
    assert len(sets.evaluation) == (0 if model == "llama" else samples)
    batch = sets.train[list(range(samples))]
    packed = {"token_places", "token_boundaries", "label_rows", "labels"} if model == "bert" else set()
    assert packed <= batch.keys() and all(len(batch[name]) == samples for name in batch.keys() - packed)
