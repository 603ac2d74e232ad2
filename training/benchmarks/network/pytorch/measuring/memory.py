"""Checks that the sizes of a case fit in memory, before anything is measured."""

from collections.abc import Sequence

from common.units import format_size
from training.benchmarks.driver.workload.memory import smallest_available_bytes
from training.benchmarks.driver.workload.run_context import WorkloadContext
from training.benchmarks.driver.workload.usage import UnusableSettingsError
from training.benchmarks.network.pytorch.config import Config
from training.benchmarks.network.pytorch.operations.collectives import Collective


def _need(config: Config, collectives: Sequence[Collective], size: int) -> int:
    """Bytes that one rank needs for a size with the most demanding of these collectives.

    The timing of nccl-tests fills the largest size once more with copies, beside the buffers that are timed one by one.
    """
    held = 2 if config.timing == "nccl-tests" else 1
    return held * max(collective.memory_bytes(size) for collective in collectives)


def fitting_sizes(run: WorkloadContext[Config], *collectives: Collective) -> tuple[tuple[int, ...], dict[str, str]]:
    """The case's sizes, in bytes, that fit in every rank's memory with each of the collectives that ranks run, and by
    the name of each other size why it does not.

    Raises:
        UnusableSettingsError: none fits.
    """
    available = smallest_available_bytes(run.group)
    reasons = {
        size: f"{need / 1e9:.1f} GB a rank are needed, {available / 1e9:.1f} GB are free"
        for size in run.config.size_list
        if (need := _need(run.config, collectives, size)) > available
    }
    fitting = tuple(size for size in run.config.size_list if size not in reasons)
    if not fitting:
        refuse_too_large(run, *collectives)
    return fitting, {format_size(size): reason for size, reason in reasons.items()}


def refuse_too_large(run: WorkloadContext[Config], *collectives: Collective) -> None:
    """Check on every rank that all sizes fit in every rank's memory.

    Raises:
        UnusableSettingsError: some need more memory than some rank has; the message names the sizes.
    """
    available = smallest_available_bytes(run.group)
    needs = {size: _need(run.config, collectives, size) for size in run.config.size_list}
    too_large = [size for size, need in needs.items() if need > available]
    if too_large:
        names = ", ".join(format_size(size) for size in too_large)
        need = format(max(needs[size] for size in too_large) / 1e9, ".1f")
        raise UnusableSettingsError(
            f"sizes = {run.config.sizes!r}: {names} does not fit: up to {need} GB a rank are needed,"
            f" {available / 1e9:.1f} GB a rank are free; lower the end of sizes"
        )
