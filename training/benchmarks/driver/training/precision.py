"""Mixed precision: autocast around the forward pass, and a loss scaler for fp16."""

import contextlib

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from training.benchmarks.driver.training.settings import TrainingConfig


class Precision:
    """What a step does differently in fp32, bf16 and fp16."""

    def __init__(self, config: TrainingConfig, device: torch.device) -> None:
        self._device = device
        self._dtype = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[config.precision]
        self.scaler = GradScaler(device.type, init_scale=config.init_loss_scale, enabled=config.precision == "fp16")
        if device.type == "cuda":
            torch.backends.cuda.matmul.allow_tf32 = config.tf32
            torch.backends.cudnn.allow_tf32 = config.tf32

    def autocast(self) -> contextlib.AbstractContextManager[object]:
        """Around every forward pass."""
        if self._dtype is None:
            return contextlib.nullcontext()
        return torch.autocast(self._device.type, dtype=self._dtype)

    def backward(self, loss: Tensor) -> None:
        """Backward pass of the loss, scaled in fp16."""
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]

    def unscale(self, optimizer: Optimizer) -> None:
        """Bring the gradients back to their true size, for clipping."""
        self.scaler.unscale_(optimizer)

    def step(self, optimizer: Optimizer) -> None:
        """The update; in fp16 left out when a gradient overflowed, and the scale adapted."""
        self.scaler.step(optimizer)
        self.scaler.update()

    @property
    def loss_scale(self) -> float | None:
        """The present scale of fp16, else None. Waits for the device."""
        return float(self.scaler.get_scale()) if self.scaler.is_enabled() else None
