"""The sweep of one collective over message sizes: times, bandwidths, and whether the received data is right."""

import time
from typing import Any

import psutil
import torch
import torch.distributed as dist

from training.benchmarks.driver.perflog import Event
from training.benchmarks.driver.process_group import ProcessGroup
from training.benchmarks.driver.run_context import RunContext, UnusableSettingsError, open_run
from training.benchmarks.network import table
from training.benchmarks.network.bandwidth import CONVENTION, algbw_gbps, busbw_gbps
from training.benchmarks.network.pytorch import collectives
from training.benchmarks.network.pytorch.collectives import Collective
from training.benchmarks.network.pytorch.config import ELEMENT_BYTES, Config
from training.benchmarks.network.pytorch.timing import MICROSECONDS, Measurement, measure
from training.benchmarks.network.sizes import format_size


def main() -> None:
    """Entry of every rank. Leaves with exit code 1 if received data was wrong, with 2 if sizes do not fit in memory."""
    begin = time.perf_counter()
    with open_run("network", "pytorch", Config) as run:
        config = run.config
        collective = collectives.create(config.collective, run.group, getattr(torch, config.dtype), config.seed)
        _refuse_too_large(config, collective, run.group)
        run.logger.log(Event.INIT_END)
        results = _sweep(run, collective)
        run.logger.log(Event.FINISHED, _summary(results, time.perf_counter() - begin))
    failed = [format_size(result["size_bytes"]) for result in results if result["correct"] == "fail"]
    if failed:
        raise SystemExit(f"network: {config.collective} delivered wrong data at {', '.join(failed)}")


def _sweep(run: RunContext[Config], collective: Collective) -> list[dict[str, Any]]:
    """Measure every size. All ranks log the same steps, rank 0 with the measurements and the table."""
    config, logger, rank = run.config, run.logger, run.group.placement.rank
    sizes = config.size_list
    logger.log(Event.TRAIN_START, {"total_steps": len(sizes)})
    if rank == 0:
        device = run.group.backend if run.group.device.type == "cpu" else torch.cuda.get_device_name(run.group.device)
        print(table.header(config.collective, run.group.placement.world_size, device, CONVENTION))
    results = []
    for step, size in enumerate(sizes, start=1):
        place = {"step": step, "total_steps": len(sizes), "collective": config.collective, "size_bytes": size}
        logger.log(Event.STEP_BEGIN, place)
        collective.prepare(size)
        measured = measure(
            collective, run.group, warmup=config.warmup_iterations, iterations=config.iterations, check=config.check
        )
        result = place | _result(config, run.group, size, measured)
        results.append(result)
        if rank == 0:
            print(table.row(result))
        logger.log(Event.STEP_END, result if rank == 0 else place | {"correct": result["correct"]})
    logger.log(Event.TRAIN_END)
    return results


def _result(config: Config, group: ProcessGroup, size: int, measured: Measurement) -> dict[str, Any]:
    world_size = group.placement.world_size
    seconds = measured.time_us.p50 / MICROSECONDS
    wrong = measured.wrong_elements
    return {
        "count": size // ELEMENT_BYTES[config.dtype],
        "dtype": config.dtype,
        "in_place": config.in_place,
        "world_size": world_size,
        "iterations": config.iterations,
        "time_us": measured.time_us.rounded(),
        "algbw_GBps": algbw_gbps(size, seconds),
        "busbw_GBps": busbw_gbps(config.collective, size, seconds, world_size),
        "correct": measured.verdict,
        "checked_iterations": measured.checked_iterations,
        "wrong_elements": None if wrong is None else sum(wrong),
        "wrong_ranks": None if wrong is None else [rank for rank, count in enumerate(wrong) if count],
        "convention": CONVENTION,
    }


def _summary(results: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    best = max(results, key=lambda result: float(result["busbw_GBps"]))
    verdicts = [str(result["correct"]) for result in results]
    return {
        "e2e_time": seconds,
        "correct": "fail" if "fail" in verdicts else verdicts[0],
        "max_busbw_GBps": best["busbw_GBps"],
        "peak_size_bytes": best["size_bytes"],
        "avg_busbw_GBps": sum(result["busbw_GBps"] for result in results) / len(results),
        "max_algbw_GBps": max(result["algbw_GBps"] for result in results),
    }


def _refuse_too_large(config: Config, collective: Collective, group: ProcessGroup) -> None:
    """Raise UnusableSettingsError on every rank, naming the sizes, if some need more memory than some rank has."""
    available = torch.tensor(_available_bytes(group), dtype=torch.int64, device=group.device)
    dist.all_reduce(available, op=dist.ReduceOp.MIN)
    too_large = [size for size in config.size_list if collective.memory_bytes(size) > int(available)]
    if too_large:
        names = ", ".join(format_size(size) for size in too_large)
        need = format(max(collective.memory_bytes(size) for size in too_large) / 1e9, ".1f")
        raise UnusableSettingsError(
            f"sizes = {config.sizes!r}: {names} does not fit: up to {need} GB a rank are needed,"
            f" {int(available) / 1e9:.1f} GB a rank are free; lower the end of sizes"
        )


def _available_bytes(group: ProcessGroup) -> int:
    """Free memory of this rank's device; that of a host is shared by its ranks."""
    if group.device.type == "cuda":
        return int(torch.cuda.mem_get_info(group.device)[0])
    return int(psutil.virtual_memory().available) // group.placement.local_world_size
