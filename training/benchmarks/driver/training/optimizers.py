"""The optimizer of a run, LAMB, and gradient clipping, for plain and for sharded (DTensor) parameters alike."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Adam, AdamW, Optimizer

from training.benchmarks.driver.training.settings import TrainingConfig


def build(model: nn.Module, config: TrainingConfig, device: torch.device) -> Optimizer:
    """The optimizer that `config` names over all parameters of `model`; matrices are decayed, biases and norms not."""
    groups = [
        {"params": parameters, "weight_decay": config.weight_decay if decayed else 0.0}
        for (decayed, _), parameters in _alike(model.parameters()).items()
    ]
    betas = (config.beta1, config.beta2)
    if config.optimizer == "lamb":
        return Lamb(groups, lr=config.learning_rate, betas=betas, eps=config.eps)
    kind = AdamW if config.optimizer == "adamw" else Adam
    fused = {"fused": True} if device.type == "cuda" else {"foreach": True}
    return kind(groups, lr=config.learning_rate, betas=betas, eps=config.eps, **fused)


def set_learning_rate(optimizer: Optimizer, rate: float) -> None:
    """Use `rate` for all parameters."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def clip_gradients(model: nn.Module, max_norm: float) -> Tensor:
    """Scale all gradients so that their common 2-norm is at most `max_norm`; returns the norm before, 0-d.

    torch.nn.utils.clip_grad_norm_ for parameters that are sharded in different ways or not at all.
    """
    groups = list(_alike(p for p in model.parameters() if p.grad is not None).values())
    norms = [nn.utils.get_total_norm([p.grad for p in group if p.grad is not None]) for group in groups]
    whole = [norm.full_tensor() if isinstance(norm, DTensor) else norm for norm in norms]
    total: Tensor = torch.linalg.vector_norm(torch.stack(whole))
    for group in groups:
        nn.utils.clip_grads_with_norm_(group, max_norm, total)
    return total


def _alike(parameters: Iterable[nn.Parameter]) -> dict[tuple[bool, object], list[nn.Parameter]]:
    """Parameters by (is a matrix, device mesh): torch's multi-tensor operations take no mixture of meshes."""
    groups: dict[tuple[bool, object], list[nn.Parameter]] = {}
    for parameter in parameters:
        mesh = parameter.device_mesh if isinstance(parameter, DTensor) else None
        groups.setdefault((parameter.ndim > 1, mesh), []).append(parameter)
    return groups


class Lamb(Optimizer):
    """LAMB: Adam's update with decoupled weight decay, scaled for each parameter by |parameter| / |update|.

    You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes" (2020), algorithm 2, with phi
    the identity, and bias correction. As in the published BERT runs the ratio is 1 for parameters that are not decayed;
    the scaling of the gradients to a global norm of 1 is the setting max_grad_norm, not done here.
    """

    def __init__(self, params: Iterable[dict[str, Any]], *, lr: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            if parameters:
                self._update(parameters, group)
        return loss

    def _update(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        for parameter in parameters:
            state = self.state[parameter]
            if not state:
                state["step"] = torch.zeros((), dtype=torch.float32)
                state["exp_avg"] = torch.zeros_like(parameter)
                state["exp_avg_sq"] = torch.zeros_like(parameter)
            state["step"] += 1
        gradients = [p.grad for p in parameters if p.grad is not None]
        first = [self.state[p]["exp_avg"] for p in parameters]
        second = [self.state[p]["exp_avg_sq"] for p in parameters]
        step = int(self.state[parameters[0]]["step"])
        torch._foreach_lerp_(first, gradients, 1 - beta1)
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, gradients, gradients, 1 - beta2)
        denominators = torch._foreach_sqrt(second)
        torch._foreach_div_(denominators, (1 - beta2**step) ** 0.5)
        torch._foreach_add_(denominators, group["eps"])
        updates = torch._foreach_div(first, denominators)
        torch._foreach_div_(updates, 1 - beta1**step)
        if group["weight_decay"]:
            torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
            scale_by_ratio(updates, parameters)
        torch._foreach_add_(parameters, updates, alpha=-group["lr"])


def scale_by_ratio(updates: Sequence[Tensor], parameters: Sequence[Tensor]) -> None:
    """Multiply each update by |parameter| / |update|, or by 1 where either is 0."""
    sizes = [_whole(norm) for norm in torch._foreach_norm([*parameters])]
    lengths = [_whole(norm) for norm in torch._foreach_norm([*updates])]
    for update, size, length in zip(updates, sizes, lengths, strict=True):
        ratio = torch.where((size > 0) & (length > 0), size / length, torch.ones_like(size))
        local = update.to_local() if isinstance(update, DTensor) else update
        local.mul_(ratio)


def _whole(norm: Tensor) -> Tensor:
    return norm.full_tensor() if isinstance(norm, DTensor) else norm
