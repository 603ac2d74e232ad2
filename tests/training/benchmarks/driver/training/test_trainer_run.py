"""Training as the controller starts it: ranks through driver.launch, their events, verdicts and refusals."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import torch.distributed as dist

from protocol.perflog import Event, PerfLogRecord, check_sequence, parse_line
from tests.training.benchmarks.claimed import contradictions
from tests.training.benchmarks.driver.launch.launching import ALONE, exit_record, plain_processes, run
from tests.training.benchmarks.driver.training.tiny import MODELS, benchmark_of, config_of
from training.benchmarks.bert.pytorch.config import Config as BertConfig
from training.benchmarks.bert.pytorch.run_pretraining import BertBenchmark
from training.benchmarks.cpm.pytorch.outcome import OUTCOME
from training.benchmarks.driver.training.data.data_error import DataError
from training.benchmarks.driver.training.data.data_identity import DataIdentity, refuse_repeated
from training.benchmarks.driver.training.data.loader import NoSamples
from training.benchmarks.driver.training.rank_entry import run_training
from training.benchmarks.driver.training.settings.settings import Target
from training.benchmarks.llama.pytorch import data
from training.benchmarks.llama.pytorch.config import Config as LlamaConfig
from training.benchmarks.llama.pytorch.run_pretraining import LlamaBenchmark

Single = Callable[[str, dict[str, Any], Path | None], list[PerfLogRecord]]
MODULE = "training.benchmarks.{}.pytorch.run_pretraining"
# What FlagPerf's readers look for.
STEP_KEYS = {
    "loss", "epoch", "end_training", "global_steps", "num_trained_samples", "pure_compute_time", "no_eval_time",
    "learning_rate", "seq/s",
}  # fmt: skip
FINISHED_KEYS = {
    "e2e_time", "global_steps", "num_trained_samples", "training_sequences_per_second", "converged", "raw_train_time",
    "init_time", "pure_training_computing_time", "train_no_eval_time", "train_time",
}  # fmt: skip


@dataclass(frozen=True)
class Run:
    """A run that has ended."""

    code: int
    folder: Path

    def records(self, rank: int) -> list[PerfLogRecord]:
        return _records((self.folder / f"rank{rank}.out.log").read_text(encoding="utf-8"))

    def values(self, event: Event, rank: int = 0) -> list[Any]:
        return [record.value for record in self.records(rank) if record.event is event]

    @property
    def message(self) -> str:
        return exit_record(self.folder).failures[0].message


def _records(text: str) -> list[PerfLogRecord]:
    return [record for record in map(parse_line, text.splitlines()) if record is not None]


def arguments_of(folder: Path, model: str, settings: dict[str, Any]) -> list[str]:
    config = folder / "config.py"
    folder.mkdir(exist_ok=True)
    defaults = config_of(model).model_dump() | settings  # base.py applies below a config file
    config.write_text("".join(f"{key} = {value!r}\n" for key, value in defaults.items()))
    return ["--config_file", str(config), "--vendor", "cpu"]


def _run(folder: Path, model: str, settings: dict[str, Any]) -> Run:
    workload = [MODULE.format(model), *arguments_of(folder, model, settings)]
    code, _ = run(folder, plain_processes(2), workload, OMP_NUM_THREADS="1")
    return Run(code, folder)


@dataclass(frozen=True)
class Rank:
    """A rank that failed in this process: what it left with, said and logged."""

    code: int | str
    message: str
    events: list[Event]


@pytest.fixture
def alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Iterator[Callable[..., Rank]]:
    """Runs the only rank of a run that fails, without a launcher: the tests' own process has torch already."""
    for name, value in ALONE.items():
        monkeypatch.setenv(name, value)

    def rank(model: str, settings: dict[str, Any]) -> Rank:
        with pytest.raises(SystemExit) as caught:
            run_training(benchmark_of(model), MODELS[model][1], arguments_of(tmp_path, model, settings))
        output = capsys.readouterr()
        assert caught.value.code is not None
        return Rank(caught.value.code, output.err, [record.event for record in _records(output.out)])

    yield rank
    assert not dist.is_initialized(), "the group must be left"


@pytest.fixture
def single(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Single:
    """Runs the only rank of a run that succeeds on the files of a folder, without a launcher."""
    for name, value in ALONE.items():
        monkeypatch.setenv(name, value)

    def rank(model: str, settings: dict[str, Any], data_dir: Path | None) -> list[PerfLogRecord]:
        arguments = arguments_of(tmp_path, model, settings)
        if data_dir is not None:
            arguments += ["--data_dir", str(data_dir)]
        run_training(benchmark_of(model), MODELS[model][1], arguments)
        return _records(capsys.readouterr().out)

    return rank


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """20 of 1000 steps, 8 an epoch, evaluated every 4: the target is met after more than one epoch."""
    folder = tmp_path_factory.mktemp("healthy")
    settings = {
        "max_steps": 60,
        "lr_decay_steps": 60,
        "eval_interval_samples": 64,
        "log_freq": 5,
        "target_embedding_average": 0.5,
        "target_loss": 2.5,
        "learning_rate": 1e-2,
        "checkpoint_dir": str(folder / "checkpoints"),
        "checkpoint_interval_steps": 8,
        "peak_tflops": 0.1,
        "warmup_steps": 3,
    }
    return _run(folder, "cpm", settings)


def test_a_run_that_meets_its_target_ends_well(healthy: Run) -> None:
    assert healthy.code == 0
    for rank in range(2):
        assert check_sequence(healthy.records(rank)) == []
        (finished,) = healthy.values(Event.FINISHED, rank)
        assert finished["converged"] is True
    events = [record.event for record in healthy.records(0)]
    assert events[:6] == [
        Event.SUBMIT_INFO,
        Event.LAUNCH_TRAINING,
        Event.INIT_START,
        Event.INIT_EVALUATION,
        Event.INIT_END,
        Event.TRAIN_START,
    ]
    (launch,) = healthy.values(Event.LAUNCH_TRAINING)
    assert set(launch["fused"]) == {"flash_attn", "apex", "transformer_engine"}
    assert [launch["kernels"][key]["used"] for key in ("attention", "optimizer")] == ["sdpa", "fused"]
    assert healthy.values(Event.LAUNCH_TRAINING, 1) == [{"kernels": launch["kernels"]}]
    assert launch["kernels"]["layers"]["why"].endswith("needs precision 'bf16' or 'fp16', which is 'fp32'")
    assert [healthy.values(event)[0]["layers"] for event in (Event.INIT_END, Event.FINISHED)] == ["torch", "torch"]
    assert healthy.values(Event.TRAIN_START) == [{"total_steps": 60}]


def test_epochs_have_their_numbers_and_steps_their_places(healthy: Run) -> None:
    (finished,) = healthy.values(Event.FINISHED)
    last = finished["global_steps"]
    assert 8 < last < 60 and last % 4 == 0, "it ended at an evaluation, in a later epoch, before the last step"
    epochs = [value["epoch"] for value in healthy.values(Event.EPOCH_BEGIN)]
    assert epochs == list(range(-(-last // 8)))
    assert epochs == [value["epoch"] for value in healthy.values(Event.EPOCH_END)]
    ends = healthy.values(Event.STEP_END)
    wanted = [step for step in range(1, last + 1) if step == 1 or step % 5 == 0 or step % 4 == 0]
    assert [value["step"] for value in ends] == wanted == [v["step"] for v in healthy.values(Event.STEP_BEGIN)]
    for value in ends:
        assert value.keys() >= STEP_KEYS
        assert (value["total_steps"], value["global_steps"]) == (60, value["step"])
        assert value["epoch"] == (value["step"] - 1) // 8
        assert value["num_trained_samples"] == value["step"] * 16
        assert value["end_training"] is (value["step"] == last)
        assert value["tokens/s"] == pytest.approx(16 * value["seq/s"])
        assert value.get("embedding_average") == value.get("eval_embedding_average")
    for before, value in pairwise(ends):
        samples = value["num_trained_samples"] - before["num_trained_samples"]
        rate = samples / (value["no_eval_time"] - before["no_eval_time"])
        assert value["seq/s_interval"] == pytest.approx(rate)
        assert value["tokens/s_interval"] == pytest.approx(16 * rate)
    assert ends[0]["seq/s_interval"] == ends[0]["seq/s"]
    assert "embedding_average" in ends[-1] and "embedding_average" not in ends[0], "once there is one"
    assert [a["no_eval_time"] < b["no_eval_time"] for a, b in pairwise(ends)] == [True] * (len(ends) - 1)


def test_evaluations_and_the_result_agree(healthy: Run) -> None:
    (finished,) = healthy.values(Event.FINISHED)
    evaluations = healthy.values(Event.EVALUATE)
    assert [value["global_steps"] for value in evaluations] == list(range(4, finished["global_steps"] + 1, 4))
    (first,) = healthy.values(Event.INIT_EVALUATION)
    assert first["eval_loss"] > 3.5 > 2.5 >= evaluations[-1]["eval_loss"] == finished["final_loss"]
    assert finished["final_embedding_average"] == evaluations[-1]["eval_embedding_average"]
    assert finished["final_mlm_accuracy"] == finished["final_embedding_average"], "FlagPerf's name"
    assert all(value["eval_loss"] > 2.5 for value in evaluations[:-1])
    assert evaluations == [
        value | {"time": own["time"]} for value, own in zip(healthy.values(Event.EVALUATE, 1), evaluations, strict=True)
    ], "all ranks know the same"


def test_throughput_mfu_and_memory(healthy: Run) -> None:
    (finished,) = healthy.values(Event.FINISHED)
    assert finished.keys() >= FINISHED_KEYS
    assert finished.keys() >= {metric.name for metric in OUTCOME.metrics({})}
    samples = finished["global_steps"] * 16
    assert finished["num_trained_samples"] == samples
    for name, key in (
        ("raw", "raw_train_time"),
        ("no_eval", "train_no_eval_time"),
        ("pure_compute", "pure_training_computing_time"),
    ):
        assert finished[f"throughput(ips)_{name}"] == pytest.approx(samples / finished[key])
    times = [
        finished[key] for key in ("pure_training_computing_time", "train_no_eval_time", "raw_train_time", "e2e_time")
    ]
    assert times == sorted(times)
    rate = finished["throughput(ips)_no_eval"]
    assert finished["tokens_per_second_per_device"] == pytest.approx(rate * 16 / 2)
    assert finished["warmup_steps"] == 3 and finished["steady_steps"] == finished["global_steps"] - 3
    steady = finished["throughput(ips)_steady"]
    assert finished["tokens_per_second_per_device_steady"] == pytest.approx(steady * 16 / 2)
    assert 0 < finished["step_time_p50"] <= finished["step_time_p99"] and finished["warmup_time"] > 0
    assert finished["mfu_of"] == "steady state"
    flops, parameters = config_of("cpm").flops_per_sample(), finished["parameters"]
    assert finished["mfu"] == pytest.approx(steady * flops / (2 * 0.1e12))
    assert finished["mfu_6n"] == pytest.approx(steady * 6 * parameters * 16 / (2 * 0.1e12))
    if finished["steady_steps"] >= 20:
        ends = [finished[f"throughput(ips)_steady{end}"] for end in ("_low", "", "_high")]
        assert ends == sorted(ends)
    assert finished["peak_memory_bytes"] > 50e6
    assert finished["targets"] == ["eval_embedding_average >= 0.5", "eval_loss <= 2.5"]


def test_a_run_goes_on_from_its_checkpoint_and_a_missed_target_fails_it(healthy: Run, tmp_path: Path) -> None:
    saved = sorted(path.name for path in (healthy.folder / "checkpoints").iterdir())
    last = healthy.values(Event.FINISHED)[0]["global_steps"]
    assert saved == [f"step-{step:08d}" for step in range(8, last + 1, 8)]
    begin = int(saved[-1].removeprefix("step-"))
    settings = {
        "max_steps": begin + 3,
        "lr_decay_steps": 60,
        "target_embedding_average": 0.5,
        "target_loss": 0.01,
        "learning_rate": 1e-2,
        "checkpoint_dir": str(healthy.folder / "checkpoints"),
        "resume": True,
        "log_freq": 1,
    }
    # The targets are no part of what must be equal.
    result = _run(tmp_path / "resumed", "cpm", settings)
    assert result.code == 1
    assert result.values(Event.TRAIN_START) == [{"total_steps": begin + 3, "resumed_after_step": begin}]
    assert [value["step"] for value in result.values(Event.STEP_END)] == [begin + 1, begin + 2, begin + 3]
    for rank in range(2):
        assert check_sequence(result.records(rank)) == []
        assert result.values(Event.FINISHED, rank)[0]["converged"] is False
    assert f"cpm: target missed after {begin + 3} steps: wanted eval_loss <= 0.01, found eval_loss" in result.message


def test_missing_data_is_named_before_anything_is_taken(
    single: Single, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with pytest.raises(SystemExit) as end:
        single("llama", {"data": "files"}, data)
    output = capsys.readouterr()
    assert end.value.code == 2 and not dist.is_initialized()
    events = [record.event for record in _records(output.out)]
    assert events == [Event.SUBMIT_INFO, Event.LAUNCH_TRAINING], "no process group, no device"
    assert f"{data}/train.npy: no such file" in output.err


@pytest.mark.nightly
@pytest.mark.parametrize(
    "layout",
    [
        {"pipeline_parallel_size": 2, "gradient_accumulation_steps": 4, "train_batch_size": 4},
        {"context_parallel_size": 2, "train_batch_size": 16},
    ],
)
def test_ranks_that_share_samples_count_them_once(tmp_path: Path, layout: dict[str, Any]) -> None:
    settings = layout | {"peak_tflops": 1e-3, "warmup_steps": 2, "log_freq": 1, "max_steps": 10}
    result = _run(tmp_path, "llama", settings)
    assert result.code == 0, result.message
    finished = result.values(Event.FINISHED)[0]
    config = config_of("llama")
    assert (finished["num_trained_samples"], finished["parameters"]) == (10 * 16, config.parameters())
    rate = finished["throughput(ips)_steady"] * config.flops_per_sample()
    assert finished["mfu"] == pytest.approx(rate / 2e9), "both ranks work on each sample"
    rate = finished["throughput(ips)_steady"] * config.tokens_per_sample()
    assert finished["tokens_per_second_per_device_steady"] == pytest.approx(rate / 2)
    assert [check_sequence(result.records(rank)) for rank in range(2)] == [[], []]
    assert contradictions(tmp_path, "llama", 2) == []


def test_padding_counts_neither_for_tokens_nor_for_mfu(single: Single) -> None:
    settings: dict[str, Any] = {"synthetic_lengths": "wikipedia", "unpad": True, "max_steps": 4, "peak_tflops": 1e-3}
    settings |= {"max_seq_length": 64, "max_position_embeddings": 64, "warmup_steps": 1, "train_samples": 32}
    records = single("bert", settings, None)
    config = config_of("bert", **settings)
    assert isinstance(config, BertConfig)
    samples = benchmark_of("bert").synthetic_data(config).train[list(range(32))]  # four steps of eight: each once
    _, tokens, flops = (float(found) / 32 for found in BertBenchmark().work_of(config, [samples]))
    assert tokens < 50 and flops < 0.8 * config.flops_per_sample()
    finished: Any = records[-1].value
    assert (finished["tokens_per_sample"], finished["flops_per_sample"]) == pytest.approx((tokens, flops))
    rate = finished["throughput(sps)_steady"]
    assert finished["mfu"] == pytest.approx(rate * flops / 1e9)
    assert finished["mfu_6n"] == pytest.approx(rate * 6 * finished["parameters"] * tokens / 1e9)
    assert finished["tokens_per_second_per_device_steady"] == pytest.approx(rate * tokens)
    last: Any = [record.value for record in records if record.event is Event.STEP_END][-1]
    assert last["tokens/s"] == pytest.approx(last["seq/s"] * tokens)


def test_a_run_without_an_evaluation_file_measures_speed_alone(single: Single, tmp_path: Path) -> None:
    np.save(tmp_path / "train.npy", (np.arange(16 * 32) % 64).astype(np.uint16))
    records = single("llama", {"data": "files", "eval_file": None, "max_steps": 3, "log_freq": 2}, tmp_path)
    assert check_sequence(records) == []
    events = [record.event for record in records]
    assert Event.INIT_EVALUATION not in events and Event.EVALUATE not in events
    assert [record.step for record in records if record.event is Event.STEP_BEGIN] == [1, 2, 3]
    finished = records[-1].value
    assert isinstance(finished, dict) and finished["converged"] is None
    assert not [key for key in finished if key.startswith("final_")]


@pytest.mark.parametrize(
    ("repeated", "message"),
    [
        (
            "eval.npy",
            "eval.npy: the run also trains train.npy, which has the same content: it evaluates on what it trains",
        ),
        ("train.npy", "the run also trains this file: it evaluates on what it trains"),
    ],
)
def test_an_evaluation_on_what_is_trained_is_refused(
    repeated: str, message: str, single: Single, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("train.npy", repeated):
        np.save(tmp_path / name, (np.arange(16 * 32) % 40).astype(np.uint16))
    settings = {"data": "files", "eval_file": repeated, "max_steps": 3}
    with pytest.raises(SystemExit) as end:
        single("llama", settings, tmp_path)
    assert end.value.code == 2 and f"{message}; identify_data = False allows it" in capsys.readouterr().err
    assert single("llama", settings | {"identify_data": False}, tmp_path)[-1].event is Event.FINISHED


def test_a_shard_that_stands_twice_is_refused(tmp_path: Path) -> None:
    first, second, other = (tmp_path / name for name in ("a.hdf5", "b.hdf5", "c.hdf5"))
    digests = {first: "1", second: "1", other: "2"}
    files: dict[str, dict[str, str | int]] = {
        path.name: {"size": 3, "sha256": digest} for path, digest in digests.items()
    }
    identity = DataIdentity(files=files)
    refuse_repeated(identity, tmp_path, [first], [other])
    with pytest.raises(DataError, match=r"b.hdf5: the run also trains a.hdf5, .*: its samples would count twice"):
        refuse_repeated(identity, tmp_path, [first, second], [other])


class _Misnamed(LlamaBenchmark):
    """A benchmark whose names of metrics are wrong."""

    step_names: ClassVar[Mapping[str, str]] = {"accuracy": "eval_acuracy"}
    final_names: ClassVar[Mapping[str, str]] = {"final_perplexity": "eval_perplexity"}


class _MisnamedConfig(LlamaConfig):
    """Settings whose target is about a metric that the model has not."""

    def targets(self) -> tuple[Target, ...]:
        return (Target(metric="eval_los", bound=1.0, at_least=False),)


@pytest.mark.parametrize(
    ("benchmark", "config_class", "settings", "message"),
    [
        (LlamaBenchmark, _MisnamedConfig, {}, "the target eval_los <= 1 is about 'eval_los'"),
        (
            _Misnamed,
            LlamaConfig,
            {},
            "step_names['accuracy'] is about 'eval_acuracy'; final_names['final_perplexity'] is",
        ),
    ],
)
def test_a_metric_that_the_model_has_not_is_named_before_the_training(
    benchmark: type[LlamaBenchmark],
    config_class: type[LlamaConfig],
    settings: dict[str, Any],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    for name, value in ALONE.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as caught:
        run_training(benchmark(), config_class, arguments_of(tmp_path, "llama", settings))
    output = capsys.readouterr()
    assert caught.value.code == 2
    assert message in output.err and output.err.endswith("; the metrics of llama are eval_loss\n")
    assert [record.event for record in _records(output.out)][-1] is Event.INIT_EVALUATION


def test_a_target_without_an_evaluation_is_refused(alone: Callable[..., Rank], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        LlamaBenchmark, "synthetic_data", lambda self, config: replace(data.synthetic(config), evaluation=NoSamples())
    )
    found = alone("llama", {"target_loss": 1.0})
    assert found.code == 2
    assert "the target eval_loss <= 1 is about 'eval_loss'; the metrics of llama are none" in found.message


def test_kernels_that_cannot_be_had_are_named_before_anything_is_taken(alone: Callable[..., Rank]) -> None:
    found = alone("llama", {"precision": "bf16", "attention": "flash_attention_2"})
    assert (found.code, found.events) == (2, [Event.SUBMIT_INFO])
    assert "attention = 'flash_attention_2': needs an accelerator, this rank has cpu" in found.message


def test_data_below_one_step_is_refused(alone: Callable[..., Rank]) -> None:
    found = alone("llama", {"train_samples": 5})
    assert (found.code, found.events[-1]) == (2, Event.INIT_START)
    assert "one step takes 8 samples" in found.message and "the training set has 5" in found.message


def test_a_run_that_diverges_fails_with_the_step(alone: Callable[..., Rank], tmp_path: Path) -> None:
    model = benchmark_of("llama").build_model(config_of("llama"))
    weights = {name: torch.full_like(parameter, torch.nan) for name, parameter in model.named_parameters()}
    torch.save(weights, tmp_path / "nan.pt")
    found = alone("llama", {"init_checkpoint": str(tmp_path / "nan.pt"), "log_freq": 3})
    assert found.code == "the loss is nan at step 1: training has diverged"
    assert found.events[-1] is Event.STEP_END


def test_weights_that_cannot_be_written_leave_the_result(
    single: Single, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "weights.partial").touch()  # where the folder is to be made
    with pytest.raises(FileExistsError):
        single("llama", {"save_weights": str(tmp_path / "weights"), "max_steps": 2, "target_loss": None}, None)
    assert _records(capsys.readouterr().out)[-1].event is Event.FINISHED
