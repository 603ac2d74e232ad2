"""Computes a mixture of experts: routing, grouped products, and the exchange of tokens among expert-parallel ranks."""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

Counts = Tensor | list[int]
"""Rows of each expert, shape (experts,): on the device, or known here."""


class Exchange(Protocol):
    """The way of one layer's rows to the ranks of their experts, and back."""

    def there(self, rows: Tensor) -> tuple[Tensor, Counts]:
        """`rows`, shape (n, hidden_size), are sorted by expert; those of this rank's experts, sorted, and counted."""

    def back(self, rows: Tensor) -> Tensor:
        """The results of the rows that `there` returned, in the order of those that it got, of their shape."""


class NoExchange(Exchange):
    """All experts are on this rank."""

    def __init__(self, counts: Tensor) -> None:
        self._counts = counts

    def there(self, rows: Tensor) -> tuple[Tensor, Counts]:
        return rows, self._counts

    def back(self, rows: Tensor) -> Tensor:
        return rows


class AllToAll(Exchange):
    """Each rank of `group` has as many experts as the others, in their order; `counts` are the rows of all experts."""

    def __init__(self, counts: Tensor, group: dist.ProcessGroup) -> None:
        self._group = group
        received = torch.empty_like(counts)
        dist.all_to_all_single(received, counts, group=group)
        sent_to, received_of = counts.view(group.size(), -1), received.view(group.size(), -1)
        # Sizes have to be known here: the only wait for the device.
        self._sent, self._received = torch.stack([sent_to.sum(1), received_of.sum(1)]).tolist()
        self._counts = received_of.sum(0)
        experts = torch.arange(received_of.shape[1], device=counts.device).repeat(group.size())
        of_rows = experts.repeat_interleave(received, output_size=sum(self._received))
        self._order = of_rows.argsort(stable=True)

    def there(self, rows: Tensor) -> tuple[Tensor, Counts]:
        """The rows of this rank's experts, shape (received, hidden_size), sorted by expert, and counted.

        They arrive sorted by rank, and of each rank by expert.
        """
        received = all_to_all_single_autograd(rows, self._received, self._sent, self._group)
        return received.index_select(0, self._order), self._counts

    def back(self, rows: Tensor) -> Tensor:
        by_rank = rows.index_select(0, self._order.argsort())
        return all_to_all_single_autograd(by_rank, self._sent, self._received, self._group)


class Experts(nn.Module):
    """Feed-forward layers of equal size, each with a gate, as in SwiGLU. Names are Hugging Face's.

    `is_grouped`: the experts' products are one kernel. Of divided parameters only this rank's experts are computed.
    """

    def __init__(self, count: int, hidden_size: int, ffn_size: int) -> None:
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.empty(count, 2 * ffn_size, hidden_size))
        self.down_proj = nn.Parameter(torch.empty(count, hidden_size, ffn_size))
        self.is_grouped = False
        self.ranks = 1

    def forward(self, rows: Tensor, counts: Counts) -> Tensor:
        """`rows`, shape (n, hidden_size), are sorted by expert, as their results are."""
        gate, up = self._product(rows, self.gate_up_proj, counts).chunk(2, dim=-1)
        return self._product(nn.functional.silu(gate) * up, self.down_proj, counts)

    def _product(self, rows: Tensor, weight: Tensor, counts: Counts) -> Tensor:
        """Each row times the transposed matrix of its expert."""
        weight = self._own(weight)
        if torch.is_autocast_enabled(rows.device.type):
            dtype = torch.get_autocast_dtype(rows.device.type)
            rows, weight = rows.to(dtype), weight.to(dtype)
        if self.is_grouped and isinstance(counts, Tensor) and len(rows):
            ends = counts.cumsum(0, dtype=torch.int32)
            return _grouped_mm(rows, weight.transpose(1, 2), ends)
        sizes = counts.tolist() if isinstance(counts, Tensor) else counts
        parts = zip(torch.split(rows, sizes), weight.unbind(), strict=True)
        return torch.cat([nn.functional.linear(part, matrix) for part, matrix in parts])

    def _own(self, parameter: Tensor) -> Tensor:
        """This rank's part. It sees the tokens of all ranks, over which others' gradients are averaged."""
        if not isinstance(parameter, DTensor):
            return parameter
        own = parameter.to_local()
        if own.requires_grad:
            own.register_hook(lambda gradient: gradient / self.ranks)  # type: ignore[no-untyped-call]
        return own


class MixtureOfExperts(nn.Module):
    """Sends each token to `chosen` of `count` experts and adds their results, weighted by a softmax over the chosen.

    Source: Jiang et al., "Mixtral of Experts" (2024), section 2.1.
    """

    def __init__(self, count: int, chosen: int, hidden_size: int, ffn_size: int) -> None:
        super().__init__()
        self.chosen = chosen
        self.gate = nn.Linear(hidden_size, count, bias=False)
        self.experts = Experts(count, hidden_size, ffn_size)
        self.exchange: Callable[[Tensor], Exchange] = NoExchange

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Takes shape (..., hidden_size), and returns it with the sums over all tokens of the experts' probabilities
        and of the experts that were chosen, each of shape (count,).
        """
        tokens = hidden.flatten(0, -2)
        probabilities = self.gate(tokens).float().softmax(-1)
        weights, chosen = probabilities.topk(self.chosen, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        chosen = chosen.flatten()
        # Not bincount, which waits for the device.
        counts = (chosen[:, None] == torch.arange(probabilities.shape[1], device=chosen.device)).sum(0)
        order = chosen.argsort(stable=True)
        exchange = self.exchange(counts)
        results = exchange.back(self.experts(*exchange.there(tokens.index_select(0, order // self.chosen))))
        results = results.index_select(0, order.argsort()).view(*weights.shape, -1)
        result = (results * weights.to(results.dtype).unsqueeze(-1)).sum(1)
        return result.view_as(hidden), probabilities.sum(0), counts


def balance(probabilities: Sequence[Tensor], counts: Tensor, tokens: int, group: dist.ProcessGroup | None) -> Tensor:
    """The auxiliary loss, 0-d, that is least, the number of chosen experts, where all experts get equally many tokens.

    `probabilities` and the rows of `counts` (layers, experts) are those of MixtureOfExperts for the `tokens` tokens of
    this rank; `counts` becomes the sum over the ranks of `group`, for the mean of their losses to be all tokens'.

    Source: Fedus et al., "Switch Transformers" (2021), equations 4 to 6, over all layers together, as in Hugging
    Face's Mixtral.
    """
    layers, experts = counts.shape
    if group is not None:
        dist.all_reduce(counts, group=group)
    ranks = 1 if group is None else group.size()
    shares = counts.sum(0) / (layers * tokens * ranks)
    means = torch.stack(list(probabilities)).sum(0) / (layers * tokens)
    return experts * (shares * means).sum()


def mixtures(model: nn.Module) -> list[MixtureOfExperts]:
    """The mixtures of experts of a model, layer by layer."""
    return [module for module in model.modules() if isinstance(module, MixtureOfExperts)]


def divide_experts(model: nn.Module, mesh: DeviceMesh) -> None:
    """Leave each rank of `mesh`, which has one dimension, its part of the experts of every layer."""
    group = mesh.get_group()
    for layer in mixtures(model):
        for name, parameter in list(layer.experts.named_parameters()):
            divided = distribute_tensor(parameter, mesh, [Shard(0)], src_data_rank=None)
            layer.experts.register_parameter(name, nn.Parameter(divided))
        layer.experts.ranks = group.size()
        layer.exchange = lambda counts: AllToAll(counts, group)


def _grouped_mm(rows: Tensor, matrices: Tensor, ends: Tensor) -> Tensor:
    """torch's product of each group of rows, up to its end, with its matrix; before torch 2.10 it is private."""
    public = getattr(nn.functional, "grouped_mm", None)
    result: Tensor = (torch._grouped_mm if public is None else public)(rows, matrices, offs=ends)
    return result


def has_grouped_products(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether torch multiplies rows by the matrices of their groups there, forward and backward: it is tried."""
    with torch.enable_grad():
        rows = torch.zeros(8, 16, device=device, dtype=dtype, requires_grad=True)
        matrices = torch.zeros(1, 16, 16, device=device, dtype=dtype, requires_grad=True)
        ends = torch.tensor([8], device=device, dtype=torch.int32)
        try:
            result = _grouped_mm(rows, matrices.transpose(1, 2), ends)
            result.square().sum().backward()  # type: ignore[no-untyped-call]  # the gradient of a sum alone has no strides
        except (AttributeError, RuntimeError):  # this torch lacks it; this device does
            return False
    return True
