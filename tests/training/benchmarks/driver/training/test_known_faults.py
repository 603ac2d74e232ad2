"""Faults that FlagPerf's training benchmarks had, one test each: none of them may come back here."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from protocol.case_config import load_case_config
from tests.training.benchmarks.driver.training.tiny import MODELS, benchmark_of, config_of
from training.benchmarks import catalog
from training.benchmarks.driver.training.data.micro_batches import MicroBatches
from training.benchmarks.driver.training.data.sharded_set import ShardedSet
from training.benchmarks.driver.training.measuring import report
from training.benchmarks.driver.training.measuring.log_values import TrainingProgress
from training.benchmarks.driver.training.measuring.rates import Times
from training.benchmarks.driver.training.model import optimizers
from training.benchmarks.driver.training.model.model import Batch
from training.benchmarks.driver.training.settings.schedule import TrainingSchedule, learning_rate
from training.benchmarks.driver.training.settings.settings import PHASES, TrainingConfig

CPU = torch.device("cpu")


class _Shards(ShardedSet):
    """Files named by their numbers, each with as many samples as its number says."""

    def __init__(self, lengths: list[int]) -> None:
        self.loaded: list[int] = []
        super().__init__(lengths, lengths)  # type: ignore[arg-type]

    def load(self, path: Any) -> dict[str, Any]:
        self.loaded.append(path)
        return {"file": path}

    def batch(self, rows: Any) -> Batch:
        return {"sample": torch.tensor([[shard["file"], row] for shard, row in rows])}


def _schedule(config: TrainingConfig, dp_size: int, samples: int) -> TrainingSchedule:
    return TrainingSchedule.of(config, dp_size=dp_size, train_samples=samples)


def test_no_shard_is_skipped_and_the_last_one_ends_nothing() -> None:
    """BERT's loader lost the shard that it was fetching ahead, and failed after the last one."""
    shards = _Shards([3, 5, 4])
    config = config_of("bert", train_batch_size=2, max_steps=100)
    sampler = MicroBatches(shards, _schedule(config, 1, 12), micro_batch=2, dp_rank=0, dp_size=1, seed=1)
    for epoch in range(3):
        sampler.start(epoch, 0)
        seen = [tuple(row) for indices in sampler for row in shards[indices]["sample"].tolist()]
        assert sorted(seen) == [(length, row) for length in (3, 4, 5) for row in range(length)]


def test_ranks_of_two_nodes_train_different_samples() -> None:
    """LLaMA's sampler took the local rank, so that every node trained the same data."""
    config = config_of("llama", train_batch_size=4, gradient_accumulation_steps=2)
    samples = benchmark_of("llama").synthetic_data(config).train
    parts = []
    for dp_rank in range(4):  # two nodes of two
        schedule = _schedule(config, 4, len(samples))
        sampler = MicroBatches(samples, schedule, micro_batch=4, dp_rank=dp_rank, dp_size=4, seed=1)
        parts.append({index for indices in sampler for index in indices})
    assert sum(map(len, parts)) == len(set().union(*parts)) == 128


def _finished(model: str, steps: int, *, world_size: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(report, "_largest", lambda value, device: value)
    config = config_of(model, peak_tflops=1.0)
    placement = SimpleNamespace(world_size=world_size)
    run: Any = SimpleNamespace(config=config, group=SimpleNamespace(device=CPU, placement=placement))
    times = Times(raw=10.0, no_eval=8.0, pure_compute=5.0)
    progress = TrainingProgress(step=steps, steps_done=steps, global_batch_size=16, total_steps=steps, times=times)
    unit = benchmark_of(model).throughput_unit
    work = (config.tokens_per_sample(), config.flops_per_sample())
    return report.finished(progress, run, unit, {}, steady=None, parameters=1_000_000, work=work)


def test_every_step_counts_for_the_throughput(monkeypatch: pytest.MonkeyPatch) -> None:
    """BERT's samples were those of one step less."""
    found = _finished("bert", 5, world_size=2, monkeypatch=monkeypatch)
    names = ("raw", "no_eval", "pure_compute")
    assert [found[f"throughput(sps)_{name}"] for name in names] == [80 / 10, 80 / 8, 80 / 5]


def test_figures_of_a_device_are_the_runs_by_all_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """LLaMA's tokens a second of a chip were multiplied by the number of nodes."""
    one, four = (_finished("llama", 5, world_size=size, monkeypatch=monkeypatch) for size in (1, 4))
    for key in ("tokens_per_second_per_device", "mfu"):
        assert one[key] == pytest.approx(4 * four[key])


@pytest.mark.parametrize("model", MODELS)
def test_every_metric_of_the_outcome_is_measured(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit on a metric that no run has would always be broken."""
    declared = catalog.benchmark(model, "pytorch").outcome.metrics({})
    of_the_process = {"e2e_time", "init_time", *(f"phase_{name}" for name in PHASES)}
    expected = {each.name for each in declared if not each.name.startswith("final_")} - of_the_process
    assert _finished(model, 5, world_size=1, monkeypatch=monkeypatch).keys() >= expected
    assert [each.name for each in declared if each.is_key] == [f"throughput({benchmark_of(model).throughput_unit})_raw"]
    targets = {target.metric.replace("eval_", "final_") for target in config_of(model).targets()}
    assert targets <= {each.name for each in declared}


@pytest.mark.parametrize("model", MODELS)
def test_mfu_follows_from_the_model_that_is_trained(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """LLaMA's MFU was that of 7 billion parameters whatever the model's size."""
    found = _finished(model, 5, world_size=1, monkeypatch=monkeypatch)
    assert found["mfu"] == pytest.approx(config_of(model).flops_per_sample() * 80 / 8 / 1e12)
    assert config_of(model, num_layers=4).flops_per_sample() > 1.3 * config_of(model).flops_per_sample()


@pytest.mark.parametrize("name", ["adamw", "adam", "lamb"])
def test_betas_and_eps_reach_the_optimizer(name: str) -> None:
    """CPM's settings of them were read and never used."""
    config = config_of("cpm", optimizer=name, beta1=0.7, beta2=0.8, eps=1e-3)
    model = benchmark_of("cpm").build_model(config)
    for implementation in ("foreach",) if name == "lamb" else ("foreach", "fused"):
        for group in optimizers.build(model, config, implementation).param_groups:
            assert (group["betas"], group["eps"]) == ((0.7, 0.8), 1e-3)


def test_the_rate_depends_on_the_step_alone() -> None:
    """BERT's schedule counted the optimizer's calls, which a skipped step of fp16 or a resumed run upsets."""
    config = config_of("bert")
    assert learning_rate(config, 7, 20) == learning_rate(config_of("bert", precision="fp16"), 7, 20)
    assert learning_rate(config, 7, 20) != learning_rate(config, 8, 20)


def test_none_overrides_a_setting() -> None:
    """A configuration's None could not replace a value."""
    path = config_of("cpm", target_loss=1.0)
    assert path.targets()
    config = load_case_config(MODELS["cpm"][1], None, path.model_dump() | {"target_loss": None})
    assert config.targets() == ()


def test_a_weak_target_stands_not_alone() -> None:
    """CPM's embedding average is met by an untrained model."""
    with pytest.raises(ValueError, match="target_embedding_average alone tells little"):
        config_of("cpm", target_embedding_average=0.92)
    (similarity, loss) = config_of("cpm", target_embedding_average=0.92, target_loss=1.0).targets()
    untrained = {"eval_embedding_average": 0.93, "eval_loss": 4.2}
    assert similarity.met(untrained) and not loss.met(untrained)
