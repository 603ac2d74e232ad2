"""Notes on the device when a rank first computes a loss or a gradient that is not finite, before any sum over ranks."""

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor


class Finiteness:
    """The first step in which this rank's own loss, or its gradient of the first block's output, was not finite.

    What happens in the backward pass of any later block reaches that gradient; a sum over the ranks does not. Nothing
    waits for the device. `block` is the first block; None with fp16, whose scaled gradients may overflow.
    """

    def __init__(self, device: torch.device, block: nn.Module | None) -> None:
        self._first = torch.zeros((), dtype=torch.int64, device=device)
        self._block = block
        self._step = 0

    def begin(self, step: int) -> None:
        """Begin the step of that number, from 1."""
        self._step = step

    def note_loss(self, loss: Tensor) -> None:
        """Note this rank's loss, 0-d, in nats."""
        self._note(loss.detach(), 2 * self._step)

    def watch(self, block: object, output: Tensor) -> None:
        """Note, in the backward pass, the gradient of a block's output, of any shape, if it is the first block."""
        if block is self._block and output.requires_grad:
            output.register_hook(self._note_gradient)

    def first(self) -> int:
        """Twice the step of the first number that was not finite, and one more if it was a gradient; 0 for none. Waits
        for the device.
        """
        return int(self._first)

    def _note_gradient(self, gradient: Tensor) -> None:
        own = gradient.to_local() if isinstance(gradient, DTensor) else gradient
        if self._step and own.numel():
            self._note(torch.linalg.vector_norm(own, ord=float("inf")), 2 * self._step + 1)

    @torch.no_grad()
    def _note(self, number: Tensor, moment: int) -> None:
        is_first = ~torch.isfinite(number) & ((self._first == 0) | (self._first > moment))
        self._first.masked_fill_(is_first, moment)
