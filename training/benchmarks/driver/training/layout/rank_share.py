"""Cuts a model down to what one tensor-parallel or expert-parallel rank computes, without a process group.

Collectives are replaced by operations whose results take as much memory: a gather by a concatenation of copies, a sum
over ranks by a copy, a sum that is divided over the sequence by a copy of a part, tokens that are sent to experts by a
copy. Values are meaningless: sizes count.
"""

import functools
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, PrepareModuleInput, RowwiseParallel

from training.benchmarks.driver.training.model.experts import Counts, Exchange, mixtures
from training.benchmarks.driver.training.model.model import BenchmarkModel

SEQUENCE = 1


class EvenExchange(Exchange):
    """Every expert of one of `ranks` expert-parallel ranks gets as many rows as the others."""

    def __init__(self, counts: Tensor, ranks: int) -> None:
        self._own, self._ranks = len(counts) // ranks, ranks

    def there(self, rows: Tensor) -> tuple[Tensor, Counts]:
        each, rest = divmod(len(rows), self._own)
        return self._sent(rows), [each + (number < rest) for number in range(self._own)]

    def back(self, rows: Tensor) -> Tensor:
        return self._sent(rows)

    def _sent(self, rows: Tensor) -> Tensor:
        """Sent, and sorted."""
        return rows if self._ranks == 1 else rows.clone().index_select(0, torch.arange(len(rows)))


def cut_experts_to_one_rank(model: BenchmarkModel, ranks: int) -> None:
    """Leave in `model` the share of one of `ranks` expert-parallel ranks, in place; tokens are spread evenly."""
    for layer in mixtures(model):
        layer.exchange = functools.partial(EvenExchange, ranks=ranks)
        for name, weight in list(layer.experts.named_parameters()):
            own = nn.Parameter(weight.chunk(ranks)[0].clone(), weight.requires_grad)
            layer.experts.register_parameter(name, own)


def cut_to_one_rank(model: BenchmarkModel, ranks: int, sequence_parallel: bool) -> None:
    """Leave in `model` the share of one of `ranks` tensor-parallel ranks, in place."""
    if ranks == 1:
        return
    plan: Mapping[str, ParallelStyle] = model.tensor_parallel_plan(sequence_parallel)
    modules = dict(model.named_modules())
    for name, style in plan.items():
        module = modules.get(name)
        if module is None:
            continue
        if isinstance(style, PrepareModuleInput):
            gathered = any(layout == Shard(SEQUENCE) for layout in style.input_layouts or ())
            _gather_input(module, ranks if gathered else 1)
        elif isinstance(style, ColwiseParallel):
            _gather_input(module, ranks if style.input_layouts[0] == Shard(SEQUENCE) else 1)
            _cut(module, 0, ranks)
            if not isinstance(style.output_layouts[0], Shard):
                module.register_forward_hook(lambda _module, _inputs, result: torch.cat([result] * ranks, dim=-1))
        elif isinstance(style, RowwiseParallel):
            _cut(module, 0 if isinstance(module, nn.Embedding) else 1, ranks)
            _sum_output(module, ranks if style.output_layouts[0] == Shard(SEQUENCE) else 1)


def _cut(module: nn.Module, dimension: int, ranks: int) -> None:
    weight = module.get_parameter("weight")
    module.weight = nn.Parameter(weight.chunk(ranks, dimension)[0].clone(), weight.requires_grad)
    bias = getattr(module, "bias", None)
    if bias is not None and dimension == 0:
        module.bias = nn.Parameter(bias.chunk(ranks)[0].clone(), bias.requires_grad)


def _gather_input(module: nn.Module, ranks: int) -> None:
    if ranks > 1:
        module.register_forward_pre_hook(
            lambda _module, inputs: (torch.cat([inputs[0]] * ranks, dim=SEQUENCE), *inputs[1:])
        )


def _sum_output(module: nn.Module, parts: int) -> None:
    def summed(_module: nn.Module, _inputs: tuple[Tensor, ...], result: Tensor) -> Tensor:
        return result.chunk(parts, dim=SEQUENCE)[0].clone()

    module.register_forward_hook(summed)
