"""Finds the free memory for a workload's buffers, on every rank the same."""

import psutil
import torch
import torch.distributed as dist

from training.benchmarks.driver.workload.accelerator import accelerators, is_accelerator
from training.benchmarks.driver.workload.process_group import ProcessGroup


def smallest_available_bytes(group: ProcessGroup) -> int:
    """Free memory, in bytes, of the rank that has the least; the same on every rank."""
    available = torch.tensor(_available_bytes(group), dtype=torch.int64, device=group.device)
    dist.all_reduce(available, op=dist.ReduceOp.MIN)
    return int(available)


def _available_bytes(group: ProcessGroup) -> int:
    """Free memory of this rank's device in bytes; the ranks of a host share the host's."""
    if is_accelerator(group.device):
        return accelerators(group.device).free_memory(group.device)
    return int(psutil.virtual_memory().available) // group.placement.local_world_size
