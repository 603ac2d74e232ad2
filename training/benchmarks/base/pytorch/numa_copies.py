"""Copies to a device from the host memory of one NUMA node: which node is near the device, and what the others cost."""

import contextlib
from collections.abc import Iterator

import numpy as np
import torch

from training.benchmarks.base.pytorch.config import Config
from training.benchmarks.base.pytorch.operations import Copy
from training.benchmarks.driver.launch.numa_nodes import pinned_to
from training.benchmarks.driver.workload.accelerator import accelerators, is_accelerator


@contextlib.contextmanager
def copy_from_node(cpus: frozenset[int], config: Config, device: torch.device) -> Iterator[Copy | None]:
    """A copy to the device of memory that a thread on the processors `cpus` has touched first, and runs there; None
    where this process may not use any of them.

    The memory is locked where it lies, if the device's vendor can: torch's own pinned memory comes from a cache, so it
    may lie on another node. numpy fills it, in this thread alone.
    """
    with pinned_to(cpus) as is_there:
        if not is_there:
            yield None
            return
        count = config.copy_bytes // 8
        source = torch.from_numpy(np.arange(config.seed, config.seed + count, dtype=np.int64))
        target = torch.zeros(count, dtype=torch.int64, device=device)
        with accelerators(device).page_locked(source) if is_accelerator(device) else contextlib.nullcontext():
            yield Copy(source, target, accesses=1)
