"""The plainest training of the same model in one process: no wrapper, no accumulation, no autocast, torch's own parts.

Nothing of the trainer is used but the model, its data and the learning rate of a step.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from tests.training.benchmarks.driver.training.tiny import GLOBAL_BATCH, benchmark_of
from training.benchmarks.driver.training.model.model import BenchmarkModel
from training.benchmarks.driver.training.settings.schedule import learning_rate
from training.benchmarks.driver.training.settings.settings import TrainingConfig


def model_with(model: str, config: TrainingConfig, weights: dict[str, Tensor]) -> BenchmarkModel:
    """The model on the CPU with these weights."""
    built: BenchmarkModel = benchmark_of(model).build_model(config)
    built.load_state_dict(weights)
    built.make_constants(torch.device("cpu"))
    return built


def train(
    model: str, config: TrainingConfig, weights: dict[str, Tensor], steps: int, norms: list[float] | None = None
) -> tuple[list[float], dict[str, Tensor]]:
    """Losses of `steps` steps of GLOBAL_BATCH samples by AdamW, and the weights after them; `norms` gets those of the
    gradients.
    """
    net = model_with(model, config, weights).train()
    losses = train_net(net, lambda batch: net(batch)["loss"], model, config, steps, norms)
    return losses, {name: parameter.detach() for name, parameter in net.named_parameters()}


def train_net(
    net: nn.Module,
    loss_of: Callable[[dict[str, Tensor]], Tensor],
    model: str,
    config: TrainingConfig,
    steps: int,
    norms: list[float] | None = None,
) -> list[float]:
    """Losses of `steps` steps of any module whose loss of a batch is `loss_of(batch)`, on the data of `model`.

    The norms of its gradients are appended to `norms`.
    """
    samples = benchmark_of(model).synthetic_data(config).train
    matrices = [p for p in net.parameters() if p.ndim > 1]
    others = [p for p in net.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}],
        betas=(config.beta1, config.beta2),
        eps=config.eps,
    )
    per_epoch = len(samples) // GLOBAL_BATCH
    losses = []
    for step in range(steps):
        epoch, place = divmod(step, per_epoch)
        order = torch.randperm(len(samples), generator=torch.Generator().manual_seed((config.seed << 20) + epoch))
        batch = samples[order[place * GLOBAL_BATCH : (place + 1) * GLOBAL_BATCH].tolist()]
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(config, step + 1, steps)
        optimizer.zero_grad()
        loss = loss_of(batch)
        torch.autograd.backward(loss)
        if config.max_grad_norm is not None:
            norm = torch.nn.utils.clip_grad_norm_(net.parameters(), config.max_grad_norm)
            if norms is not None:
                norms.append(float(norm))
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses
