"""LAMB against its formula, decay of matrices alone, and clipping against torch's."""

import pytest
import torch
from torch import nn

from tests.training.benchmarks.driver.training.tiny import config_of
from training.benchmarks.driver.training.model import optimizers

WEIGHT_DECAY, LEARNING_RATE, EPS, BETAS = 0.1, 0.05, 1e-6, (0.9, 0.99)


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.Linear(7, 3))


def _gradients(model: nn.Module, step: int) -> None:
    generator = torch.Generator().manual_seed(step)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)


def _lamb_by_hand(weight: torch.Tensor, decayed: bool, index: int, steps: int) -> torch.Tensor:
    """The paper's algorithm 2 in float64, one parameter at a time."""
    shapes = [p.shape for p in _model().parameters()]
    x, m, v = weight.double(), torch.zeros(()), torch.zeros(())
    for step in range(1, steps + 1):
        generator = torch.Generator().manual_seed(step)
        g = [torch.randn(shape, generator=generator) for shape in shapes][index].double()
        m = BETAS[0] * m + (1 - BETAS[0]) * g
        v = BETAS[1] * v + (1 - BETAS[1]) * g * g
        r = (m / (1 - BETAS[0] ** step)) / ((v / (1 - BETAS[1] ** step)).sqrt() + EPS)
        if decayed:
            r = r + WEIGHT_DECAY * x
            r = r * (x.norm() / r.norm() if x.norm() > 0 else 1.0)
        x = x - LEARNING_RATE * r
    return x


def test_lamb_follows_its_formula() -> None:
    model = _model()
    start = [parameter.detach().clone() for parameter in model.parameters()]
    config = config_of(
        "llama", optimizer="lamb", weight_decay=WEIGHT_DECAY, learning_rate=LEARNING_RATE, eps=EPS, beta2=BETAS[1]
    )
    optimizer = optimizers.build(model, config, "foreach")
    for step in range(1, 6):
        _gradients(model, step)
        optimizer.step()
    for index, parameter in enumerate(model.parameters()):
        expected = _lamb_by_hand(start[index], parameter.ndim > 1, index, 5)
        torch.testing.assert_close(parameter.detach().double(), expected, atol=1e-5, rtol=1e-5)


def test_lamb_moves_a_weight_of_zeros() -> None:
    weight = nn.Parameter(torch.zeros(4, 4))
    optimizer = optimizers.Lamb([{"params": [weight], "weight_decay": 0.1}], lr=0.1, betas=BETAS, eps=EPS)
    weight.grad = torch.ones(4, 4)
    assert optimizer.step(lambda: 3.0) == 3.0
    torch.testing.assert_close(weight.detach(), torch.full((4, 4), -0.1), atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", ["adamw", "adam", "lamb"])
def test_only_matrices_are_decayed(name: str) -> None:
    model = _model()
    config = config_of("llama", optimizer=name, weight_decay=0.5)
    groups = optimizers.build(model, config, "foreach").param_groups
    decayed = {id(p) for group in groups for p in group["params"] if group["weight_decay"] == 0.5}
    plain = {id(p) for group in groups for p in group["params"] if group["weight_decay"] == 0.0}
    assert decayed == {id(p) for p in model.parameters() if p.ndim > 1}
    assert plain == {id(p) for p in model.parameters() if p.ndim <= 1}


@pytest.mark.parametrize("max_norm", [0.5, 1e3])
def test_clipping_is_torchs(max_norm: float) -> None:
    model, other = _model(), _model()
    for each in (model, other):
        _gradients(each, 1)
    expected = nn.utils.clip_grad_norm_(other.parameters(), max_norm)
    assert float(optimizers.GradientClipper(model, max_norm).clip()) == pytest.approx(float(expected))
    for parameter, reference in zip(model.parameters(), other.parameters(), strict=True):
        assert parameter.grad is not None and reference.grad is not None
        torch.testing.assert_close(parameter.grad, reference.grad)


def test_a_parameter_without_gradient_is_left_alone() -> None:
    model = _model()
    optimizer = optimizers.build(model, config_of("llama", optimizer="lamb"), "foreach")
    first, *_ = model.parameters()
    first.grad = torch.ones_like(first)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    assert float(optimizers.GradientClipper(model, 1e9).clip()) == pytest.approx(first.numel() ** 0.5)
    optimizer.step()
    changed = [not torch.equal(a, b.detach()) for a, b in zip(before, model.parameters(), strict=True)]
    assert changed == [True] + [False] * (len(changed) - 1)
