"""What the trainer adds to a training step, against the barest loop of the same model beside it.

One rank runs both in turn, in blocks of some steps, so that whatever else happens on the machine hits both. Trainer: a
whole run of a case with its loader, schedule, clock and log lines; evaluation is left out. Bare loop: index the data,
zero_grad, forward, backward, step. The ratio is the median over pairs of blocks of trainer time / bare time.
"""

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.performance.rows import Row

if TYPE_CHECKING:  # torch is imported by the rank alone
    import torch

    from training.benchmarks.driver.process_group import ProcessGroup
    from training.benchmarks.driver.training.model import BenchmarkModel
    from training.benchmarks.driver.training.settings import TrainingConfig
    from training.benchmarks.driver.training.trainer import Trainer

ROOT = Path(__file__).resolve().parents[2]
CASE = ROOT / "vendors" / "cpu" / "llama-pytorch" / "config" / "config_CPUx1x2.py"
# The shipped case, whose steps are as short as steps get, and one whose steps are as long as a small GPU step.
SIZES: dict[str, dict[str, Any]] = {
    "2 layers of 64": {},
    "4 layers of 256": {"num_layers": 4, "hidden_size": 256, "ffn_hidden_size": 512, "train_batch_size": 8},
}
PAIRS, STEPS = 20, 20
GOAL = 1.02
_MARK = "training-performance "


def measure() -> list[Row]:
    """A row for each size, from one run of one rank."""
    argv = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "1", "-m", "tests.performance.training"]
    result = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    lines = [line for line in result.stdout.splitlines() if line.startswith(_MARK)]
    if result.returncode or len(lines) != 1:
        raise RuntimeError(f"{' '.join(argv)} left with {result.returncode}: {result.stderr[-2000:]}")
    found: dict[str, dict[str, float]] = json.loads(lines[0].removeprefix(_MARK))
    return [
        Row(
            what=f"trainer: one step of LLaMA, {name}, 1 rank on one core",
            measured=f"{times['trainer_ms']:.2f} ms",
            baseline=f"{times['bare_ms']:.2f} ms in a bare loop",
            ratio=times["ratio"],
            goal="within 2 % of the bare loop",
            met=times["ratio"] < GOAL,
        )
        for name, times in found.items()
    ]


def _trainer(config: "TrainingConfig", group: "ProcessGroup") -> "Trainer":
    import io

    from training.benchmarks.driver.perflog import PerfLogger
    from training.benchmarks.driver.run_context import RunContext
    from training.benchmarks.driver.training.benchmark import prepare
    from training.benchmarks.driver.training.kernels import Libraries, choose
    from training.benchmarks.driver.training.trainer import Trainer
    from training.benchmarks.llama.pytorch.run_pretraining import LlamaBenchmark

    run = RunContext(config=config, logger=PerfLogger(0, io.StringIO()), group=group, data_dir=None)
    kernels = choose(config, LlamaBenchmark.attentions, Libraries(group.device))
    return Trainer(LlamaBenchmark(), run, prepare(LlamaBenchmark(), config, None, kernels))


def _bare_seconds(
    model: "BenchmarkModel", optimizer: "torch.optim.Optimizer", tokens: "torch.Tensor", config: "TrainingConfig"
) -> float:
    """Seconds of a step: what anybody would write."""
    import torch

    order = torch.randperm(len(tokens))
    begin = time.perf_counter()
    for step in range(STEPS):
        batch = tokens[order[step * config.train_batch_size : (step + 1) * config.train_batch_size]].long()
        optimizer.zero_grad()
        loss = model({"tokens": batch})["loss"]
        loss.backward()
        if config.max_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.max_grad_norm)
        optimizer.step()
    return (time.perf_counter() - begin) / STEPS


def _compare(settings: dict[str, Any], group: "ProcessGroup") -> dict[str, float]:
    import torch

    from training.benchmarks.driver.config import load_case_config
    from training.benchmarks.llama.pytorch.config import Config
    from training.benchmarks.llama.pytorch.data import synthetic
    from training.benchmarks.llama.pytorch.model import Llama

    limits = {"max_steps": STEPS, "eval_interval_samples": None, "target_loss": None, "eval_samples": 8}
    config = load_case_config(Config, CASE, {**settings, **limits})
    tokens = synthetic(config).train[list(range(config.train_samples))]["tokens"].int()
    model = Llama(config).train()
    model.make_constants(torch.device("cpu"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, foreach=True)

    def trainer_seconds() -> float:
        trainer = _trainer(config, group)
        trainer.train()
        return trainer.progress().times.no_eval / STEPS

    def bare_seconds() -> float:
        return _bare_seconds(model, optimizer, tokens, config)

    trainer_seconds(), bare_seconds()
    pairs = []
    for index in range(PAIRS):
        first, second = (trainer_seconds, bare_seconds) if index % 2 else (bare_seconds, trainer_seconds)
        values = (first(), second())
        pairs.append(values if index % 2 else values[::-1])
    return {
        "ratio": statistics.median(trainer / bare for trainer, bare in pairs),
        "trainer_ms": statistics.median(trainer for trainer, _ in pairs) * 1e3,
        "bare_ms": statistics.median(bare for _, bare in pairs) * 1e3,
    }


def _main() -> None:
    """The rank that `measure` starts."""
    import torch

    from training.benchmarks.driver.process_group import init

    torch.set_num_threads(1)
    with init("gloo", timeout_s=120) as group:
        found = {name: _compare(settings, group) for name, settings in SIZES.items()}
    print(_MARK + json.dumps(found), flush=True)


if __name__ == "__main__":
    _main()
