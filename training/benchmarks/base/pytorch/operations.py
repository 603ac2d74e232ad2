"""Matrix products and copies that are timed on a device, each with a check of its result."""

from typing import Protocol

import torch
from torch import Tensor

from training.benchmarks.base.pytorch import products, twins
from training.benchmarks.base.pytorch.config import Config
from training.benchmarks.driver.workload.accelerator import accelerators, is_accelerator
from training.benchmarks.driver.workload.usage import UnusableSettingsError

_GIGA = 1e9
HOST_SIZE = 2048
"""Rows of the matrices of host_matmul at most: a host's processors are hundreds of times slower than its devices."""


class Operation(Protocol):
    """One test on one device: `run` is timed; its result is `work` / seconds / `scale`, in `unit`."""

    unit: str
    work: float
    scale: float

    def run(self) -> None:
        """Run once; on an accelerator the work is queued on the current stream."""
        ...

    def is_correct(self) -> bool:
        """Whether the last run left the correct result."""
        ...

    def digests(self) -> dict[str, int]:
        """Digests of results that devices of one kind share bit by bit, from -2**63 to 2**63 - 1."""
        ...


class Copy:
    """A buffer that is copied into another; the copy is compared with the original, and its digest with the peers'."""

    unit, scale = "GB/s", _GIGA

    def __init__(self, source: Tensor, target: Tensor, *, accesses: int) -> None:
        self._source, self._target = source, target
        self.work = float(accesses * source.numel() * source.element_size())

    def run(self) -> None:
        """Queue one copy of the source into the target."""
        self._target.copy_(self._source, non_blocking=True)

    def is_correct(self) -> bool:
        """Whether the target equals the source."""
        return torch.equal(self._source, self._target.to(self._source.device))

    def digests(self) -> dict[str, int]:
        """The digest of the bits of the target: what was wrong in the source already is wrong there, too."""
        return {"copy": int(twins.bits_of(self._target))}


def create(test: str, config: Config, device: torch.device) -> Operation:
    """The operation of that name. `memory` counts each byte twice, read and written, the others count it once.

    On the CPU host and device share their memory: the host copies are copies within it that count each byte once.

    Raises:
        UnusableSettingsError: the device cannot do it; the message says why.
    """
    if test.startswith(products.PREFIX):
        return products.create(test, config.matmul_size, device, config.seed)
    if test == "host_matmul":
        return products.create("matmul_fp32", min(config.matmul_size, HOST_SIZE), device, config.seed)
    if test == twins.TEST:
        return twins.Training(config.matmul_size, device, config.seed)
    count = config.copy_bytes // 8
    pin = is_accelerator(device)
    values = torch.arange(config.seed, config.seed + count, dtype=torch.int64)
    if test in ("memory", "host_memory"):
        return Copy(values.to(device), torch.zeros(count, dtype=torch.int64, device=device), accesses=2)
    if test == "peer":
        return Copy(values.to(device), torch.zeros(count, dtype=torch.int64, device=peer_of(device)), accesses=1)
    on_host = values.pin_memory() if pin else values
    if test == "host_to_device":
        return Copy(on_host, torch.zeros(count, dtype=torch.int64, device=device), accesses=1)
    target = torch.zeros(count, dtype=torch.int64, pin_memory=pin)
    return Copy(values.to(device), target, accesses=1)


def to_device_after(step: int, config: Config, device: torch.device) -> Copy:
    """A copy to the device `step` places after this one; over the host's memory where they do not reach each other."""
    peer = torch.device(device.type, (device.index + step) % accelerators(device).count())
    count = config.copy_bytes // 8
    values = torch.arange(config.seed, config.seed + count, dtype=torch.int64)
    return Copy(values.to(device), torch.zeros(count, dtype=torch.int64, device=peer), accesses=1)


def peer_of(device: torch.device) -> torch.device:
    """The next device of this host, the first after the last: all together they copy around a ring.

    Raises:
        UnusableSettingsError: there is none, or the two cannot reach each other's memory.
    """
    if not is_accelerator(device):
        raise UnusableSettingsError("tests: peer copies between two accelerators of a host; the CPU has no such peer")
    devices = accelerators(device)
    peer = torch.device(device.type, (device.index + 1) % devices.count())
    if peer == device:
        raise UnusableSettingsError("tests: peer copies between two accelerators of a host; this process sees one")
    if not devices.reaches(device, peer):
        raise UnusableSettingsError(
            f"tests: peer: {device} has no access to the memory of {peer}, so copies would take the host's"
        )
    return peer
