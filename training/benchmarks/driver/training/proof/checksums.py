"""Computes checksums of the bits of tensors on their device: a change of one element always changes them."""

from collections.abc import Iterable

import torch
from torch import Tensor

from training.benchmarks.driver.workload.accelerator import is_accelerator

# Elements that are widened to int64 at a time, so that a check needs 24 MiB beside the tensor, and 192 MiB on an
# accelerator: in smaller parts 7 billion parameters keep an H200 waiting for its host for half a second.
_CHUNK = 1 << 20
_CHUNK_ON_ACCELERATOR = 1 << 23
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
# Odd, and therefore without loss modulo 2**64; the fraction of the golden ratio.
_MULTIPLIER = -7046029254386353131


def checksum(tensor: Tensor) -> Tensor:
    """Sum of bits[i] * (2 i + 1) modulo 2**64 over all elements of `tensor`, of any shape and type: int64, 0-d.

    Two tensors that differ in one element have different sums: the difference of the bits is below 2**64 and not zero,
    and an odd factor has an inverse modulo 2**64.
    """
    flat = tensor.detach().reshape(-1)
    bits = flat.view(_INTEGERS[flat.element_size()])
    total = torch.zeros((), dtype=torch.int64, device=flat.device)
    chunk = min(_CHUNK_ON_ACCELERATOR if is_accelerator(flat.device) else _CHUNK, len(bits))
    factors = torch.arange(1, 2 * chunk + 1, 2, device=flat.device)
    for begin in range(0, len(bits), max(chunk, 1)):
        part = bits[begin : begin + chunk].to(torch.int64)
        total += (part * (factors[: len(part)] + 2 * begin)).sum()
    return total


def combined(checksums: Iterable[Tensor], device: torch.device) -> Tensor:
    """One checksum, int64 and 0-d, of several ones on `device` in their order; a change of one of them changes it."""
    total = torch.zeros((), dtype=torch.int64, device=device)
    for each in checksums:
        total = total * _MULTIPLIER + each
    return total
