"""FusedLAMB and FusedAdam by their documented arguments and formulas, in plain torch: parameter by parameter.

As in apex the step is counted in the group, zero_grad takes no argument, and FusedLAMB clips to a norm of its own.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch.optim import Optimizer


class _Fused(Optimizer):
    def zero_grad(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        scale = self.gradient_scale()
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.move(parameter, parameter.grad / scale, group)

    def gradient_scale(self) -> float:
        return 1.0

    def adams_direction(self, parameter: torch.Tensor, gradient: torch.Tensor, group: dict[str, Any]) -> torch.Tensor:
        state, (beta1, beta2) = self.state[parameter], group["betas"]
        if not state:
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        state["exp_avg"] = beta1 * state["exp_avg"] + (1 - beta1) * gradient
        state["exp_avg_sq"] = beta2 * state["exp_avg_sq"] + (1 - beta2) * gradient * gradient
        unbiased = state["exp_avg_sq"] / (1 - beta2 ** group["step"])
        direction: torch.Tensor = state["exp_avg"] / (1 - beta1 ** group["step"]) / (unbiased.sqrt() + group["eps"])
        return direction

    def move(self, parameter: torch.Tensor, gradient: torch.Tensor, group: dict[str, Any]) -> None:
        raise NotImplementedError


class FusedLAMB(_Fused):
    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        max_grad_norm: float = 1.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self.max_grad_norm = max_grad_norm

    def gradient_scale(self) -> float:
        gradients = [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]
        return max(float(torch.stack([each.norm() for each in gradients]).norm()) / self.max_grad_norm, 1.0)

    def move(self, parameter: torch.Tensor, gradient: torch.Tensor, group: dict[str, Any]) -> None:
        update = self.adams_direction(parameter, gradient, group) + group["weight_decay"] * parameter
        size, length = float(parameter.norm()), float(update.norm())
        ratio = size / length if group["weight_decay"] and size and length else 1.0
        parameter -= group["lr"] * ratio * update


class FusedAdam(_Fused):
    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        adam_w_mode: bool = True,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self.adam_w_mode = adam_w_mode

    def move(self, parameter: torch.Tensor, gradient: torch.Tensor, group: dict[str, Any]) -> None:
        decay = group["weight_decay"] * parameter
        if self.adam_w_mode:
            parameter -= group["lr"] * (self.adams_direction(parameter, gradient, group) + decay)
        else:
            parameter -= group["lr"] * self.adams_direction(parameter, gradient + decay, group)
