"""Copies to a device from the host memory of one NUMA node: which node is near the device, and what the others cost."""

import contextlib
from collections.abc import Iterator

import numpy as np
import torch

from training.benchmarks.base.pytorch.config import Config
from training.benchmarks.base.pytorch.operations import Copy
from training.benchmarks.driver.launch.numa_nodes import pinned_to


@contextlib.contextmanager
def copy_from_node(cpus: frozenset[int], config: Config, device: torch.device) -> Iterator[Copy | None]:
    """A copy to the device of memory that a thread on the processors `cpus` has touched first, and runs there; None
    where this process may not use any of them.

    On CUDA the memory is pinned where it lies, by cudaHostRegister: torch's own pinned memory comes from a cache, so it
    may lie on another node. numpy fills it, in this thread alone.
    """
    with pinned_to(cpus) as is_there:
        if not is_there:
            yield None
            return
        count = config.copy_bytes // 8
        source = torch.from_numpy(np.arange(config.seed, config.seed + count, dtype=np.int64))
        target = torch.zeros(count, dtype=torch.int64, device=device)
        with _page_locked(source) if device.type == "cuda" else contextlib.nullcontext():
            yield Copy(source, target, accesses=1)


@contextlib.contextmanager
def _page_locked(tensor: torch.Tensor) -> Iterator[None]:
    runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    torch.cuda.check_error(int(runtime.cudaHostRegister(tensor.data_ptr(), tensor.numel() * tensor.element_size(), 0)))
    try:
        yield
    finally:
        torch.cuda.synchronize()
        torch.cuda.check_error(int(runtime.cudaHostUnregister(tensor.data_ptr())))
