"""Mixed precision: autocast around the forward pass, and a loss scaler for fp16."""

import contextlib
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.amp.grad_scaler import GradScaler
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from training.benchmarks.driver.training.settings.settings import TrainingConfig
from training.benchmarks.driver.workload.accelerator import accelerators, is_accelerator

_NOTHING = contextlib.nullcontext()


class _Scaler(GradScaler):
    """Torch's GradScaler for parameters that are sharded, sharded differently, and whole.

    Torch accepts no mixture of these in one call, and reduces the overflow flag over the ranks according to the first
    gradient: ranks would skip different steps. Each parameter group of the optimizer is of one kind (optimizers.build).
    """

    def _unscale_grads_(
        self, optimizer: Any, inv_scale: Tensor, found_inf: Tensor, allow_fp16: bool
    ) -> dict[torch.device, Tensor]:
        is_sharded = False
        for group in optimizer.param_groups:
            one = SimpleNamespace(param_groups=[group])
            for found in super()._unscale_grads_(one, inv_scale, torch.zeros_like(found_inf), allow_fp16).values():  # type: ignore[arg-type]
                found_inf = torch.maximum(found_inf, found)
            is_sharded = is_sharded or isinstance(group["params"][0], DTensor)
        if is_sharded:
            dist.all_reduce(found_inf, op=dist.ReduceOp.MAX)
        return {found_inf.device: found_inf}


DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Precision:
    """The parts of a step that differ between fp32, bf16 and fp16."""

    def __init__(self, config: TrainingConfig, device: torch.device) -> None:
        self._device = device
        self._dtype = None if config.precision == "fp32" else DTYPES[config.precision]
        self._scales = config.precision == "fp16"
        self.scaler = _Scaler(device.type, init_scale=config.init_loss_scale, enabled=self._scales)
        if is_accelerator(device):
            accelerators(device).set_tf32(config.tf32)

    def autocast(self) -> contextlib.AbstractContextManager[object]:
        """Context of every forward pass."""
        if self._dtype is None:
            return _NOTHING
        return torch.autocast(self._device.type, dtype=self._dtype)

    def backward(self, loss: Tensor) -> None:
        """Backward pass of `loss`, 0-d, scaled in fp16."""
        scaled = self.scaler.scale(loss) if self._scales else loss
        scaled.backward()  # type: ignore[no-untyped-call]

    def unscale(self, optimizer: Optimizer) -> None:
        """Remove the loss scale from the gradients, for clipping."""
        if self._scales:
            self.scaler.unscale_(optimizer)

    def step(self, optimizer: Optimizer) -> None:
        """Update the parameters; in fp16 the update is skipped after an overflow, and the scale is adapted."""
        if not self._scales:
            optimizer.step()
            return
        self.scaler.step(optimizer)
        self.scaler.update()

    def may_overflow(self) -> Tensor | bool:
        """Whether fp16 scales the next step's gradients up, which may overflow; 0-d on the device if it alone knows."""
        scale = self.scaler._scale if self._scales else None
        return self._scales if scale is None else scale > 1

    @property
    def loss_scale(self) -> float | None:
        """The present scale of fp16 (dimensionless), else None. Waits for the device."""
        return float(self.scaler.get_scale()) if self._scales else None
