"""Checks that the sizes of a case fit in memory, before anything is measured."""

from common.units import format_size
from training.benchmarks.driver.workload.memory import smallest_available_bytes
from training.benchmarks.driver.workload.run_context import WorkloadContext
from training.benchmarks.driver.workload.usage import UnusableSettingsError
from training.benchmarks.network.pytorch.config import Config
from training.benchmarks.network.pytorch.operations.collectives import Collective


def fitting_sizes(run: WorkloadContext[Config], collective: Collective) -> tuple[tuple[int, ...], dict[str, str]]:
    """The case's sizes, in bytes, that fit in every rank's memory, and by the name of each other one why it does not.

    Raises:
        UnusableSettingsError: none fits.
    """
    available = smallest_available_bytes(run.group)
    reasons = {
        size: f"{need / 1e9:.1f} GB a rank are needed, {available / 1e9:.1f} GB are free"
        for size in run.config.size_list
        if (need := collective.memory_bytes(size)) > available
    }
    fitting = tuple(size for size in run.config.size_list if size not in reasons)
    if not fitting:
        refuse_too_large(run, collective)
    return fitting, {format_size(size): reason for size, reason in reasons.items()}


def refuse_too_large(run: WorkloadContext[Config], collective: Collective) -> None:
    """Check on every rank that all sizes fit in every rank's memory.

    Raises:
        UnusableSettingsError: some need more memory than some rank has; the message names the sizes.
    """
    available = smallest_available_bytes(run.group)
    too_large = [size for size in run.config.size_list if collective.memory_bytes(size) > available]
    if too_large:
        names = ", ".join(format_size(size) for size in too_large)
        need = format(max(collective.memory_bytes(size) for size in too_large) / 1e9, ".1f")
        raise UnusableSettingsError(
            f"sizes = {run.config.sizes!r}: {names} does not fit: up to {need} GB a rank are needed,"
            f" {available / 1e9:.1f} GB a rank are free; lower the end of sizes"
        )
