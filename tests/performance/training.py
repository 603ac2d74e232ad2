"""What the trainer adds to a training step, against the barest loop of the same model beside it.

The ranks run both in turn, a few steps each, so that whatever else happens on the machine hits both; a block of steps
begins at a barrier and takes as long as its slowest rank. Trainer: the loop of a whole run with its loader, schedule,
clock, and one logged step in every block; evaluation is left out. Bare loop: index the data, zero_grad, forward,
backward, clip, step, by the same optimizer, in torch's DDP where there are several ranks. Both are built anew many
times: where a model lies in memory makes a percent or two. The ratio is the median over pairs of blocks of trainer
time / bare time, with the interval that holds the true median with 95 % (order statistics: Binomial(pairs, 1/2)).
"""

import gc
import itertools
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.performance.rows import Row

if TYPE_CHECKING:  # torch is imported by the ranks alone
    from training.benchmarks.driver.process_group import ProcessGroup
    from training.benchmarks.driver.training.benchmark import TrainingBenchmark
    from training.benchmarks.driver.training.settings import TrainingConfig
    from training.benchmarks.driver.training.trainer import Trainer

ROOT = Path(__file__).resolve().parents[2]
# The shipped cases, whose steps are as short as steps get, and one whose steps are as long as a small GPU step.
# Model, settings, and the steps of a block: the trainer logs one of them, more often than the shipped cases do.
CASES: dict[str, tuple[str, dict[str, Any], int]] = {
    "BERT, 2 layers of 64": ("bert", {}, 10),
    "LLaMA, 2 layers of 64": ("llama", {}, 10),
    "LLaMA, 4 layers of 256": (
        "llama",
        {"num_layers": 4, "hidden_size": 256, "ffn_hidden_size": 512, "train_batch_size": 8},
        5,
    ),
}
BUILDS, PAIRS = 16, 4  # pairs of blocks after each building
GOAL = 1.02
CONFIDENCE = 0.95
_MARK = "training-performance "


def measure() -> list[Row]:
    """A row for each case, of one rank and of two under DDP."""
    return [row for ranks in (1, 2) for row in _measure(ranks)]


def _measure(ranks: int) -> list[Row]:
    argv = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(ranks)]
    argv += ["-m", "tests.performance.training"]
    result = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
    lines = [line for line in result.stdout.splitlines() if line.startswith(_MARK)]
    if result.returncode or len(lines) != 1:
        raise RuntimeError(f"{' '.join(argv)} left with {result.returncode}: {result.stderr[-2000:]}")
    found: dict[str, dict[str, float]] = json.loads(lines[0].removeprefix(_MARK))
    place = "1 rank" if ranks == 1 else f"{ranks} ranks, DDP over gloo"
    return [
        Row(
            what=f"trainer: one step of {name}, {place}, a core each",
            measured=f"{times['trainer_ms']:.2f} ms",
            baseline=f"{times['bare_ms']:.2f} ms in a bare loop",
            ratio=times["ratio"],
            goal=f"within 2 % of the bare loop (95 % interval {times['low']:.3f} to {times['high']:.3f})",
            met=times["ratio"] < GOAL,
        )
        for name, times in found.items()
    ]


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """The narrowest pair of order statistics, equally far from both ends, that holds the median with CONFIDENCE."""
    ordered, count = sorted(values), len(values)
    below, rank = 0.0, 0
    while below + math.comb(count, rank) / 2**count <= (1 - CONFIDENCE) / 2:
        below += math.comb(count, rank) / 2**count
        rank += 1
    first = max(rank - 1, 0)
    return ordered[first], ordered[count - 1 - first]


class _BareLoop:
    """What anybody would write."""

    def __init__(self, benchmark: "TrainingBenchmark[Any]", config: "TrainingConfig", group: "ProcessGroup") -> None:
        import torch

        samples = benchmark.synthetic_data(config).train
        self._data = {name: tensor.int() for name, tensor in samples[list(range(len(samples)))].items()}
        self._count = len(samples)
        model = benchmark.build_model(config).train()
        model.make_constants(torch.device("cpu"))
        matrices = [p for p in model.parameters() if p.ndim > 1]
        others = [p for p in model.parameters() if p.ndim <= 1]
        groups = [{"params": matrices, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]
        self._optimizer = torch.optim.AdamW(groups, lr=config.learning_rate, fused=True)
        self._parameters = [*model.parameters()]
        self._ranks, self._rank = group.placement.world_size, group.placement.rank
        self._model: Any = model
        if self._ranks > 1:
            self._model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
        self._batch_size, self._max_norm = config.train_batch_size, config.max_grad_norm

    def steps(self) -> Iterator[None]:
        """One training step after the other, without end."""
        import torch

        step_size = self._ranks * self._batch_size
        while True:
            order = torch.randperm(self._count)
            for begin in range(self._rank * self._batch_size, self._count - step_size + 1, step_size):
                chosen = order[begin : begin + self._batch_size]
                batch = {name: tensor[chosen].long() for name, tensor in self._data.items()}
                self._optimizer.zero_grad()
                loss = self._model(batch)["loss"]
                loss.backward()
                if self._max_norm is not None:
                    torch.nn.utils.clip_grad_norm_(self._parameters, self._max_norm)
                self._optimizer.step()
                yield


def _trainer(benchmark: "TrainingBenchmark[Any]", config: "TrainingConfig", group: "ProcessGroup") -> "Trainer":
    import io

    from training.benchmarks.driver.perflog import PerfLogger
    from training.benchmarks.driver.run_context import RunContext
    from training.benchmarks.driver.training.benchmark import prepare
    from training.benchmarks.driver.training.kernels import Libraries, choose
    from training.benchmarks.driver.training.trainer import Trainer

    run = RunContext(config=config, logger=PerfLogger(0, io.StringIO()), group=group, data_dir=None)
    kernels = choose(config, benchmark.attentions, Libraries(group.device))
    return Trainer(benchmark, run, prepare(benchmark, config, None, kernels))


def _case(model: str, settings: dict[str, Any], block: int) -> "tuple[TrainingBenchmark[Any], TrainingConfig]":
    from training.benchmarks.bert.pytorch.config import Config as BertConfig
    from training.benchmarks.bert.pytorch.run_pretraining import BertBenchmark
    from training.benchmarks.driver.config import load_case_config
    from training.benchmarks.llama.pytorch.config import Config as LlamaConfig
    from training.benchmarks.llama.pytorch.run_pretraining import LlamaBenchmark

    path = ROOT / "vendors" / "cpu" / f"{model}-pytorch" / "config" / "config_CPUx1x2.py"
    limits = {
        "max_steps": (PAIRS + 1) * block + 1,  # a run is evaluated after its last step, which none comes to here
        "eval_interval_samples": None,
        "eval_samples": 8,
        "train_samples": 4096,
        "log_freq": block,
        **settings,
    }
    if model == "bert":
        return BertBenchmark(), load_case_config(BertConfig, path, {"target_mlm_accuracy": None, **limits})
    return LlamaBenchmark(), load_case_config(LlamaConfig, path, {"target_loss": None, **limits})


def _seconds(steps: Iterator[object], count: int) -> float:
    """Seconds of one of the next `count` steps on this rank."""
    import torch.distributed as dist

    dist.barrier()
    begin = time.perf_counter()
    for _ in itertools.islice(steps, count):
        pass
    return (time.perf_counter() - begin) / count


def _compare(model: str, settings: dict[str, Any], block: int, group: "ProcessGroup") -> dict[str, float]:
    import torch
    import torch.distributed as dist

    benchmark, config = _case(model, settings, block)
    pairs = []
    for _ in range(BUILDS):
        trainer, bare = _trainer(benchmark, config, group).steps(), _BareLoop(benchmark, config, group).steps()
        gc.collect()  # what was built before
        _seconds(trainer, block), _seconds(bare, block)
        for index in range(PAIRS):
            first, second = (trainer, bare) if index % 2 else (bare, trainer)
            values = (_seconds(first, block), _seconds(second, block))
            pairs.append(values if index % 2 else values[::-1])
    times = torch.tensor(pairs, dtype=torch.float64)
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    ratios = (times[:, 0] / times[:, 1]).tolist()
    low, high = median_interval(ratios)
    trainer_ms, bare_ms = (times.quantile(0.5, dim=0) * 1e3).tolist()
    ratio = statistics.median(ratios)
    return {"ratio": ratio, "low": low, "high": high, "trainer_ms": trainer_ms, "bare_ms": bare_ms}


def _main() -> None:
    """A rank that `measure` starts."""
    import torch

    from training.benchmarks.driver.process_group import init

    torch.set_num_threads(1)
    with init("gloo", timeout_s=120) as group:
        found = {name: _compare(*case, group) for name, case in CASES.items()}
        if group.placement.rank == 0:
            print(_MARK + json.dumps(found), flush=True)


if __name__ == "__main__":
    _main()
