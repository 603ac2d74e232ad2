"""Notes on the device when a rank first computes a loss or a gradient that is not finite, before any sum over ranks."""

import torch
from torch import Tensor

# Numbers that stay on the device before all are looked at: between two steps each call of torch is dear.
_FOLDED_AT = 1024


class Finiteness:
    """The first step in which this rank's own loss, or a gradient of it, was not finite.

    A gradient is looked at before it is summed over the data-parallel ranks. Nothing waits for the device but a look,
    which a comparison of the ranks takes.
    """

    def __init__(self) -> None:
        self._step = self._first = 0
        self._may_overflow: Tensor | bool = False
        self._sum: Tensor | None = None
        self._kept: list[tuple[int, Tensor]] = []

    def begin(self, step: int, may_overflow: Tensor | bool) -> None:
        """Begin the step of that number, from 1. may_overflow: whether its gradients are scaled up, so that one that is
        not finite says nothing; 0-d where only the device knows.
        """
        self._keep_gradients()
        self._step, self._may_overflow = step, may_overflow
        if len(self._kept) >= _FOLDED_AT:
            self._fold()

    def note_loss(self, loss: Tensor) -> None:
        """Note this rank's loss, 0-d, in nats."""
        self._kept.append((2 * self._step, loss.detach()))

    @torch.no_grad()
    def note_gradients(self, gradients: Tensor) -> None:
        """Note gradients of this rank, of any shape, that are about to be summed over the ranks. Their sum stands for
        them: it is finite only if all are, and much faster than their largest.
        """
        if not self._step or not gradients.numel() or self._may_overflow is True:
            return
        total = gradients.sum(dtype=torch.float32)
        self._sum = total if self._sum is None else self._sum + total

    def first(self) -> int:
        """Twice the step of the first number that was not finite, and one more if it was a gradient; 0 for none. Waits
        for the device.
        """
        self._fold()
        return self._first

    def _keep_gradients(self) -> None:
        if self._sum is None:
            return
        total, self._sum = self._sum, None
        if isinstance(self._may_overflow, Tensor):
            total = torch.where(self._may_overflow, torch.zeros_like(total), total)
        self._kept.append((2 * self._step + 1, total))

    @torch.no_grad()
    def _fold(self) -> None:
        self._keep_gradients()
        if not self._kept or self._first:
            self._kept.clear()
            return
        numbers = torch.stack([number.float() for _, number in self._kept])
        are_finite = torch.isfinite(numbers).tolist()
        broken = [moment for (moment, _), is_finite in zip(self._kept, are_finite, strict=True) if not is_finite]
        self._first = min(broken, default=0)
        self._kept.clear()
