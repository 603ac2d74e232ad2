"""Notes on the device when a rank first computes a loss or a gradient that is not finite, before any sum over ranks."""

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

# Numbers that stay on the device before all are looked at: between two steps each call of torch is dear.
_FOLDED_AT = 1024


class Finiteness:
    """The first step in which this rank's own loss, or its gradient of the first block's output, was not finite.

    What happens in the backward pass of any later block reaches that gradient; a sum over the ranks does not. Nothing
    waits for the device but a look, which a comparison of the ranks takes. `block` is the first block; None with fp16,
    whose scaled gradients may overflow.
    """

    def __init__(self, block: nn.Module | None) -> None:
        self._block = block
        self._step = self._first = 0
        self._kept: list[tuple[int, Tensor]] = []

    def begin(self, step: int) -> None:
        """Begin the step of that number, from 1."""
        self._step = step
        if len(self._kept) >= _FOLDED_AT:
            self._fold()

    def note_loss(self, loss: Tensor) -> None:
        """Note this rank's loss, 0-d, in nats."""
        self._kept.append((2 * self._step, loss.detach()))

    def watch(self, block: object, output: Tensor) -> None:
        """Note, in the backward pass, the gradient of a block's output, of any shape, if it is the first block."""
        if block is self._block and output.requires_grad:
            output.register_hook(self._note_gradient)  # type: ignore[no-untyped-call]

    def first(self) -> int:
        """Twice the step of the first number that was not finite, and one more if it was a gradient; 0 for none. Waits
        for the device.
        """
        self._fold()
        return self._first

    @torch.no_grad()
    def _note_gradient(self, gradient: Tensor) -> None:
        own = gradient.to_local() if isinstance(gradient, DTensor) else gradient
        if self._step and own.numel():
            largest = torch.linalg.vector_norm(own, ord=float("inf"))
            self._kept.append((2 * self._step + 1, largest))

    @torch.no_grad()
    def _fold(self) -> None:
        if not self._kept or self._first:
            self._kept.clear()
            return
        numbers = torch.stack([number.float() for _, number in self._kept])
        are_finite = torch.isfinite(numbers).tolist()
        broken = [moment for (moment, _), is_finite in zip(self._kept, are_finite, strict=True) if not is_finite]
        self._first = min(broken, default=0)
        self._kept.clear()
