"""Trains two steps of each recomputation on the CPU, and prints the most memory that a step takes, in bytes, as JSON.

Run with MALLOC_MMAP_THRESHOLD_ small: every buffer is then mapped from the kernel and given back at once, so that what
is resident is what is held.
"""

import gc
import json
import sys
from pathlib import Path

import torch

from tests.training.benchmarks.driver.training.tiny import MODELS, benchmark_of
from training.benchmarks.driver.training.layout.memory_estimate import step_bytes
from training.benchmarks.driver.training.model import optimizers
from training.benchmarks.driver.training.settings.settings import TrainingConfig

STATUS = Path("/proc/self/status")


def resident(name: str) -> int:
    """VmRSS or VmHWM of this process."""
    return next(int(line.split()[1]) * 1024 for line in STATUS.read_text().splitlines() if line.startswith(f"{name}:"))


def peak_of(model_name: str, config: TrainingConfig) -> int:
    """The most that a step takes above what the process had before the model."""
    benchmark = benchmark_of(model_name)
    batch = benchmark.synthetic_data(config).train[list(range(config.train_batch_size))]
    gc.collect()
    before = resident("VmRSS")
    model = benchmark.build_model(config).train()
    model.make_constants(torch.device("cpu"))
    model.recompute = config.recompute
    optimizer = optimizers.build(model, config, "foreach")
    for step in range(2):
        if step == 1:
            Path("/proc/self/clear_refs").write_text("5")
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=config.precision == "bf16"):
            loss = model(batch)["loss"]
        torch.autograd.backward(loss)
        del loss
        if step < 1:
            optimizer.step()
    return resident("VmHWM") - before


def main() -> None:
    """Print for each case the measured and the estimated bytes."""
    torch.set_num_threads(1)
    cases: list[tuple[str, dict[str, object]]] = json.loads(sys.argv[1])
    found = []
    for name, settings in cases:
        config = MODELS[name][1].model_validate(settings)
        estimate = step_bytes(benchmark_of(name), config, 1, on_cpu=True)
        found.append([peak_of(name, config), int(estimate)])
    print(json.dumps(found))


if __name__ == "__main__":
    main()
