"""What the trainer adds to a training step, against the barest loop of the same model beside it.

The ranks run both in turn, in blocks of some steps, so that whatever else happens on the machine hits both. Trainer: a
whole run of a case with its loader, schedule, clock and log lines; evaluation is left out. Bare loop: index the data,
zero_grad, forward, backward, clip, step, by the same optimizer, in torch's DDP where there are several ranks. The ratio
is the median over pairs of blocks of trainer time / bare time, with the interval that holds the true median with 95 %
(order statistics: Binomial(pairs, 1/2)).
"""

import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
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
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "BERT, 2 layers of 64": ("bert", {}),
    "LLaMA, 2 layers of 64": ("llama", {}),
    "LLaMA, 4 layers of 256": (
        "llama",
        {"num_layers": 4, "hidden_size": 256, "ffn_hidden_size": 512, "train_batch_size": 8},
    ),
}
PAIRS, STEPS = 30, 20
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
    """What anybody would write; like the trainer's, each block begins with a new model and a new optimizer."""

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

    def seconds(self) -> float:
        """Seconds of a step."""
        import torch

        order = torch.randperm(self._count)
        begin = time.perf_counter()
        for step in range(STEPS):
            at = (step * self._ranks + self._rank) * self._batch_size
            chosen = order[at : at + self._batch_size]
            batch = {name: tensor[chosen].long() for name, tensor in self._data.items()}
            self._optimizer.zero_grad()
            loss = self._model(batch)["loss"]
            loss.backward()
            if self._max_norm is not None:
                torch.nn.utils.clip_grad_norm_(self._parameters, self._max_norm)
            self._optimizer.step()
        return (time.perf_counter() - begin) / STEPS


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


def _case(model: str, settings: dict[str, Any]) -> "tuple[TrainingBenchmark[Any], TrainingConfig]":
    from training.benchmarks.bert.pytorch.config import Config as BertConfig
    from training.benchmarks.bert.pytorch.run_pretraining import BertBenchmark
    from training.benchmarks.driver.config import load_case_config
    from training.benchmarks.llama.pytorch.config import Config as LlamaConfig
    from training.benchmarks.llama.pytorch.run_pretraining import LlamaBenchmark

    path = ROOT / "vendors" / "cpu" / f"{model}-pytorch" / "config" / "config_CPUx1x2.py"
    limits = {"max_steps": STEPS, "eval_interval_samples": None, "eval_samples": 8, "train_samples": 4096, **settings}
    if model == "bert":
        return BertBenchmark(), load_case_config(BertConfig, path, {"target_mlm_accuracy": None, **limits})
    return LlamaBenchmark(), load_case_config(LlamaConfig, path, {"target_loss": None, **limits})


def _compare(model: str, settings: dict[str, Any], group: "ProcessGroup") -> dict[str, float]:
    import torch.distributed as dist

    benchmark, config = _case(model, settings)

    def trainer_seconds() -> float:
        trainer = _trainer(benchmark, config, group)
        dist.barrier()
        trainer.train()
        return trainer.progress().times.no_eval / STEPS

    def bare_seconds() -> float:
        bare = _BareLoop(benchmark, config, group)
        dist.barrier()
        return bare.seconds()

    trainer_seconds(), bare_seconds()
    pairs = []
    for index in range(PAIRS):
        first, second = (trainer_seconds, bare_seconds) if index % 2 else (bare_seconds, trainer_seconds)
        values = (first(), second())
        pairs.append(values if index % 2 else values[::-1])
    ratios = [trainer / bare for trainer, bare in pairs]
    low, high = median_interval(ratios)
    return {
        "ratio": statistics.median(ratios),
        "low": low,
        "high": high,
        "trainer_ms": statistics.median(trainer for trainer, _ in pairs) * 1e3,
        "bare_ms": statistics.median(bare for _, bare in pairs) * 1e3,
    }


def _main() -> None:
    """A rank that `measure` starts."""
    import torch

    from training.benchmarks.driver.process_group import init

    torch.set_num_threads(1)
    with init("gloo", timeout_s=120) as group:
        found = {name: _compare(model, settings, group) for name, (model, settings) in CASES.items()}
        if group.placement.rank == 0:
            print(_MARK + json.dumps(found), flush=True)


if __name__ == "__main__":
    _main()
