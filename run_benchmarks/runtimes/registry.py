"""Makes the runtime that a run names: the only place where one is constructed."""

import importlib
from collections.abc import Callable

from run_benchmarks.runtimes.base import MAX_OUTPUT_BYTES, Runtime
from run_benchmarks.settings.runtime_names import RUNTIMES


def make_runtime(name: str, warn: Callable[[str], None], output_bytes: int = MAX_OUTPUT_BYTES) -> Runtime:
    """The runtime of that name in RUNTIMES.

    Args:
        warn: receives what a host does not permit a task.
        output_bytes: approximate limit of a task's own output that is kept.
    """
    runtime: Runtime = importlib.import_module(RUNTIMES[name].module).make(warn, output_bytes)
    return runtime
