"""Prints what layout = "auto" would choose for a case, without its devices: `python -m ...layout_preview < case.json`.

The case is {"model", "framework", "config", "nnodes", "nproc", "hardware"}. The answer is a list of [memory, layout] in
words: one row for the memory that the case sets, for the host of this process where the hardware is CPU, else for each
capacity of the devices of that name in the datasheets.
"""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

from common.host_memory import total_bytes
from protocol.case_file import config_of
from training.benchmarks import catalog
from training.benchmarks.driver.training.benchmark import TrainingBenchmark
from training.benchmarks.driver.training.layout.auto_layout import choose_layout
from training.benchmarks.driver.training.settings.settings import TrainingConfig
from training.benchmarks.driver.workload.usage import UnusableSettingsError
from vendors.datasheets import datasheets

USABLE = 0.985  # of the capacity on a datasheet, what a program sees of an A100 of 40 GB and, at least, of the others


def preview(case: dict[str, Any]) -> list[tuple[str, str]]:
    """The rows for a case.

    Raises:
        UnusableSettingsError: the benchmark is no training, or nothing tells the device's memory.
    """
    found = catalog.benchmark(case["model"], case["framework"])
    config = config_of(case["config"], found.config_class, Path("case.json"))
    module = importlib.import_module(found.entry_module)
    kinds = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, TrainingBenchmark)]
    kinds = [kind for kind in kinds if kind is not TrainingBenchmark]
    if len(kinds) != 1 or not isinstance(config, TrainingConfig):
        raise UnusableSettingsError(f"{found.entry_module} has no training of the shared trainer")
    benchmark = kinds[0]()
    ranks = {"world_size": case["nnodes"] * case["nproc"], "per_node": case["nproc"]}
    on_cpu = case["hardware"].upper() == "CPU"
    rows = []
    for words, size in memories(config, case["hardware"], case["nproc"]):
        try:
            choice = choose_layout(benchmark, config, device_bytes=size, on_cpu=on_cpu, **ranks)
            said = f"{choice.layout_words}; {choice.chosen.bytes / 1e9:.1f} GB estimated"
        except UnusableSettingsError as error:
            said = str(error)
        rows.append((f"{size / 1e9:.1f} GB ({words})", said))
    return rows


def memories(config: TrainingConfig, hardware: str, nproc: int) -> list[tuple[str, int]]:
    """Where a device's memory is told, in words, and its bytes.

    Raises:
        UnusableSettingsError: nothing tells it.
    """
    if config.device_memory_bytes is not None:
        return [("device_memory_bytes", config.device_memory_bytes)]
    total = total_bytes()
    if hardware.upper() == "CPU" and total is not None:
        return [(f"this host's, shared by {nproc}", total // nproc)]
    sheets = [sheet for sheet in datasheets() if sheet.name.split()[0].upper() == hardware.upper()]
    found = {sheet.memory_GiB: sheet for sheet in sheets}
    if not found:
        raise UnusableSettingsError(f"no datasheet tells the memory of {hardware or 'the device'}")
    return [(f"{hardware} of {size:g} GB", int(USABLE * found[size].memory_bytes)) for size in sorted(found)]


def main() -> None:
    """Read the case from standard input; exits with code 2 and a sentence if there is nothing to tell."""
    try:
        print(json.dumps(preview(json.load(sys.stdin))))
    except UnusableSettingsError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(2) from error


if __name__ == "__main__":
    main()
