"""Builds the optimizer of a run, LAMB, and gradient clipping, for plain and for sharded (DTensor) parameters."""

import importlib
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Adam, AdamW, Optimizer

from training.benchmarks.driver.training.settings.settings import TrainingConfig


def build(model: nn.Module, config: TrainingConfig, implementation: str) -> Optimizer:
    """The optimizer that `config` names over all parameters of `model`; weight decay applies to matrices only.

    `implementation` is apex, fused or foreach, the resolved value of the setting optimizer_impl.
    """
    groups = groups_of(model, config)
    betas = (config.beta1, config.beta2)
    if implementation == "apex":
        return _of_apex(groups, config, betas)
    if config.optimizer == "lamb":
        return Lamb(groups, lr=config.learning_rate, betas=betas, eps=config.eps)
    kind = AdamW if config.optimizer == "adamw" else Adam
    return kind(groups, lr=config.learning_rate, betas=betas, eps=config.eps, **{implementation: True})


def groups_of(model: nn.Module, config: TrainingConfig) -> list[dict[str, Any]]:
    """All parameters in groups of one kind, each with its weight decay."""
    return [
        {"params": parameters, "weight_decay": config.weight_decay if decayed else 0.0}
        for (decayed, _), parameters in _alike(model.parameters()).items()
    ]


def _of_apex(groups: list[dict[str, Any]], config: TrainingConfig, betas: tuple[float, float]) -> Optimizer:
    """NVIDIA apex's FusedLAMB or FusedAdam, equivalent to Lamb here and to torch's Adam.

    FusedLAMB would also scale the gradients to a norm of its own, which is left to GradientClipper.
    """
    library = importlib.import_module("apex.optimizers")
    is_lamb = config.optimizer == "lamb"
    kind: type[Optimizer] = library.FusedLAMB if is_lamb else library.FusedAdam

    class ApexOptimizer(kind):  # type: ignore[valid-type, misc]
        """As torch's optimizers are called, by its checkpoints among others; apex's zero_grad takes no argument."""

        def zero_grad(self, set_to_none: bool = True) -> None:
            """Drop all gradients."""
            super().zero_grad()

    own = {"max_grad_norm": math.inf} if is_lamb else {"adam_w_mode": config.optimizer == "adamw"}
    return ApexOptimizer(groups, lr=config.learning_rate, betas=betas, eps=config.eps, **own)


def set_learning_rate(optimizer: Optimizer, rate: float) -> None:
    """Set the learning rate of all parameters to `rate` (dimensionless)."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def updates_made(optimizer: Optimizer) -> int:
    """How many updates the optimizer has counted: torch's of each parameter, added up; apex's of each group."""
    counts = [state["step"] for state in optimizer.state.values() if "step" in state]
    if counts:
        return int(torch.stack([torch.as_tensor(_local(count)) for count in counts]).double().sum())
    return sum(int(group.get("step", 0)) for group in optimizer.param_groups)


def updates_of_each(optimizer: Optimizer) -> int:
    """The fewest updates that the optimizer has counted of a parameter (apex: of a group), 0 before the first."""
    counts = [state["step"] for state in optimizer.state.values() if "step" in state]
    if counts:
        return int(torch.stack([torch.as_tensor(_local(count)) for count in counts]).min())
    return min((int(group.get("step", 0)) for group in optimizer.param_groups), default=0)


class GradientClipper:
    """Scales all gradients of a model so that their common 2-norm is at most `max_norm`.

    torch.nn.utils.clip_grad_norm_ for parameters that are sharded in different ways or not at all. The ranks of the
    group `pipeline` have parts of the model.
    """

    def __init__(self, model: nn.Module, max_norm: float, pipeline: dist.ProcessGroup | None = None) -> None:
        self._max_norm = max_norm
        self._pipeline = pipeline
        meshes: dict[object, list[nn.Parameter]] = {}
        for parameter in model.parameters():
            meshes.setdefault(_mesh_of(parameter), []).append(parameter)
        self._groups = [*meshes.values()]

    def clip(self) -> Tensor:
        """Scale the gradients; returns the norm before it, 0-d."""
        if len(self._groups) == 1 and self._pipeline is None:
            return _whole(nn.utils.clip_grad_norm_(self._groups[0], self._max_norm))
        norms = [nn.utils.get_total_norm([p.grad for p in group if p.grad is not None]) for group in self._groups]
        total: Tensor = torch.linalg.vector_norm(torch.stack([_whole(norm) for norm in norms]))
        if self._pipeline is not None:
            total = total.square()
            dist.all_reduce(total, group=self._pipeline)
            total = total.sqrt()
        for group in self._groups:
            nn.utils.clip_grads_with_norm_(group, self._max_norm, total)
        return total


def _whole(norm: Tensor) -> Tensor:
    return norm.full_tensor() if isinstance(norm, DTensor) else norm


def _mesh_of(parameter: nn.Parameter) -> object:
    return parameter.device_mesh if isinstance(parameter, DTensor) else None


def _alike(parameters: Iterable[nn.Parameter]) -> dict[tuple[bool, object], list[nn.Parameter]]:
    """Parameters by (is a matrix, device mesh): torch's multi-tensor operations accept one mesh per call."""
    groups: dict[tuple[bool, object], list[nn.Parameter]] = {}
    for parameter in parameters:
        groups.setdefault((parameter.ndim > 1, _mesh_of(parameter)), []).append(parameter)
    return groups


class Lamb(Optimizer):
    """LAMB: Adam's update with decoupled weight decay, scaled for each parameter by |parameter| / |update|.

    Source: You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes" (2020), algorithm 2,
    with phi the identity, and bias correction. As the documentation of apex's FusedLAMB in the published BERT runs
    states: gradients enter the first moment with 1 - beta1 (grad_averaging), decay is decoupled (adam_w_mode), the
    ratio is 1 for parameters without decay (no use_nvlamb). Its scaling of gradients to a global norm is max_grad_norm.
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
        torch._foreach_add_([self.state[p]["step"] for p in parameters], 1)
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
    """Multiply each update by |parameter| / |update|, or by 1 where either is 0; both lists have equal shapes.

    Source: You et al. (2020), algorithm 2: the trust ratio of LAMB.
    """
    sizes, lengths = norms(parameters), norms(updates)
    ratios = torch.where((sizes > 0) & (lengths > 0), sizes / lengths, torch.ones_like(sizes))
    torch._foreach_mul_([_local(update) for update in updates], [*ratios.unbind()])


def norms(tensors: Sequence[Tensor]) -> Tensor:
    """The 2-norm of each tensor, shape (n,); for sharded tensors of the whole, with one all-reduce per mesh dimension.

    All tensors are on one mesh, or none is sharded.
    """
    result = torch.stack(torch._foreach_norm([_local(tensor) for tensor in tensors]))
    placements = [tensor.placements for tensor in tensors if isinstance(tensor, DTensor)]
    if not placements:
        return result
    first = tensors[0]
    assert isinstance(first, DTensor) and len(placements) == len(tensors)
    squares = result.square()
    for dimension in range(first.device_mesh.ndim):
        is_sharded = torch.tensor([each[dimension].is_shard() for each in placements], device=squares.device)
        total = squares.clone()
        dist.all_reduce(total, group=first.device_mesh.get_group(dimension))
        squares = torch.where(is_sharded, total, squares)
    return squares.sqrt()


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
