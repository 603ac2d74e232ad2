"""Takes a device's memory until there is no more, and says how much of it can be used and whether it keeps its content.

Every 8 bytes hold their own number, which is compared once all is taken: a broken address line shows as another's.
"""

import torch
from torch import Tensor

from common.host_memory import available_bytes
from training.benchmarks.base.pytorch.config import Config
from training.benchmarks.base.pytorch.twins import bits_of, signed
from training.benchmarks.driver.workload.accelerator import accelerators, is_accelerator
from training.benchmarks.driver.workload.process_group import ProcessGroup
from training.benchmarks.driver.workload.usage import UnusableSettingsError

CPU_BYTES = 256 << 20  # of a CPU's memory where the case sets no bound
LARGEST, SMALLEST = 1 << 30, 16 << 20  # bytes of a piece; torch takes up to 10 MiB from the device in lots of 20 MiB
_COMPARED = 16 << 20
_SHARE_OF_HOST = 0.5


class Capacity:
    """The usable bytes of one device, in `pieces` that are held until `release`."""

    def __init__(self, device: torch.device, limit: int | None) -> None:
        self._device, self._limit = device, limit
        self._pieces: list[Tensor] = []
        # What the comparison needs of a full device, taken first and given back for it.
        self._spare = self._new(3 * _COMPARED) if is_accelerator(device) else None
        self._first = 0 if self._spare is None else self._spare.numel()

    def take(self) -> int:
        """Take all there is, at most `limit`; returns the bytes."""
        held = self._first * 8
        piece = LARGEST
        while piece >= SMALLEST:
            room = piece if self._limit is None else min(piece, self._limit - held)
            taken = self._new(room) if room >= SMALLEST else None
            if taken is None:
                piece //= 2
                continue
            torch.arange(held // 8, held // 8 + taken.numel(), out=taken)
            self._pieces.append(taken)
            held += taken.numel() * 8
        return held

    def make_room(self) -> None:
        """Give the spare part back: what follows on a full device needs some memory, the ranks' barrier too."""
        self._spare = None

    def is_correct(self) -> bool:
        """Whether everything that was taken still holds its numbers. The spare part is not compared."""
        first = self._first
        step = _COMPARED // 8
        for piece in self._pieces:
            for begin in range(0, piece.numel(), step):
                part = piece[begin : begin + step]
                start = first + begin
                if not torch.equal(part, torch.arange(start, start + part.numel(), device=self._device)):
                    return False
            first += piece.numel()
        return bool(self._pieces)

    def digests(self) -> dict[str, int]:
        """By how much the sum of all bits that were taken differs from that of their numbers: 0, whatever the size."""
        count = sum(piece.numel() for piece in self._pieces)
        numbers = count * (2 * self._first + count - 1) // 2
        return {"content": signed(sum(int(bits_of(piece)) for piece in self._pieces) - numbers)}

    def release(self) -> None:
        """Give everything back to the device."""
        self._pieces.clear()
        self._spare = None
        if is_accelerator(self._device):
            accelerators(self._device).give_back()

    def _new(self, size: int) -> Tensor | None:
        """A buffer of `size` bytes in whole numbers of 8; None if the device has no room for it."""
        if self._limit is not None:
            size = min(size, self._limit)
        try:
            return torch.empty(size // 8, dtype=torch.int64, device=self._device)
        except torch.OutOfMemoryError:
            return None
        except RuntimeError:  # of the CPU's allocator; on a device another error than a lack of memory
            if is_accelerator(self._device):
                raise
            return None


def limit_of(config: Config, group: ProcessGroup) -> int | None:
    """The most bytes that a rank may take; None: all of its device.

    Raises:
        UnusableSettingsError: the ranks of a CPU host would take more than half of what is free.
    """
    if is_accelerator(group.device):
        accelerators(group.device).give_back()
        return config.capacity_bytes
    limit = config.capacity_bytes or CPU_BYTES
    free = available_bytes()
    if free is None:
        raise UnusableSettingsError("tests: memory_capacity: /proc/meminfo does not tell how much memory is free")
    ranks = group.placement.local_world_size
    if limit * ranks > _SHARE_OF_HOST * free:
        raise UnusableSettingsError(
            f"capacity_bytes = {limit}: {ranks} ranks would take {limit * ranks / 1e9:.2f} GB of the host's memory, of"
            f" which {free / 1e9:.2f} GB are free; allowed: half of that, {int(_SHARE_OF_HOST * free) // ranks} each"
        )
    return limit
