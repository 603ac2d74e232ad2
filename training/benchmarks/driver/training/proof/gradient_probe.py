"""Proves before the training that gradients are averaged over all ranks that train one model, by one shared sample."""

from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from training.benchmarks.driver.training.model.experts import mixtures
from training.benchmarks.driver.training.model.model import LOSS, Batch
from training.benchmarks.driver.training.model.parallel import Layout, ParallelModel
from training.benchmarks.driver.training.model.precision import Precision
from training.benchmarks.driver.training.proof.replicas import Departure
from training.benchmarks.driver.workload.accelerator import is_accelerator

# A change of the averaged gradient, relative to its norm, that rounding does not explain.
_TOLERANCE = 0.1


def unsynchronized(
    model: ParallelModel, layout: Layout, precision: Precision, sample: Batch, seed: int
) -> Departure | None:
    """The first rank that lacks the others' gradients, or None; all call it with the same `sample`, tensors (1, ...).

    All ranks compute the gradient of the sample, with the same dropout. Then those with an odd place count nothing and
    the others as much more as keeps the average: where gradients are averaged the result is the same, without that
    each rank finds its own part alone. With HSDP the places among the replicas and within one count, each by itself:
    the average over the ranks of one replica alone changes, and so does that over the same shards of all replicas;
    likewise with the ranks that have the same experts, and those that have others.

    Of the ranks that divide a sequence the first alone counts, both times. Its tokens see none of the others, which
    have no gradient but what they get from it: a rank without any is not averaged with it.
    Nothing of the training's state changes.
    """
    if layout.averaged_size == 1:
        return None
    of_first = 1.0
    if layout.context_mesh is not None:
        of_first = 0.0 if layout.context_mesh.get_local_rank("cp") else float(layout.cp_size)
    factor = _factor(layout.dp_rank, layout.dp_size)
    within = (layout.shard_size if layout.expert_mesh is None else layout.expert_mesh.shape[1]) // layout.cp_size
    if 1 < within < layout.dp_size:
        replica, place = divmod(layout.dp_rank, within)
        factor = _factor(replica, layout.dp_size // within) * _factor(place, within)
    device = next(model.module.parameters()).device
    forked = (
        torch.random.fork_rng([device], device_type=device.type)
        if is_accelerator(device)
        else torch.random.fork_rng([])
    )
    with forked, torch.compiler.set_stance("force_eager"):
        first = {name: each.clone() for name, each in _gradients(model, precision, sample, of_first, seed).items()}
        second = _gradients(model, precision, sample, of_first * factor, seed)
        changed = _norm([first[name] - each for name, each in second.items()], device)
        norm = torch.where(_norm(_shared(model, first), device) > 0, _norm([*first.values()], device), 0.0)
    model.clear_gradients()
    own = torch.stack([changed, norm])
    every = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(every, own)
    for rank, (difference, size) in enumerate(torch.stack(every).tolist()):
        if size == 0 or difference > _TOLERANCE * size:
            return Departure(
                rank=rank,
                sentence=f"rank {rank} trains alone: its gradient is not the average over the data-parallel ranks",
            )
    return None


def _shared(model: ParallelModel, gradients: Mapping[str, Tensor]) -> list[Tensor]:
    """The gradients of all but experts, which have one of whatever rank has sent them tokens."""
    experts = {id(each) for layer in mixtures(model.module) for each in layer.experts.parameters()}
    return [each for name, each in gradients.items() if id(model.module.get_parameter(name)) not in experts]


def _factor(place: int, size: int) -> float:
    """How much the place of `size` counts: nothing if it is odd; 1 on the average."""
    return size / -(-size // 2) if place % 2 == 0 else 0.0


def _norm(tensors: Sequence[Tensor], device: torch.device) -> Tensor:
    """The norm of all elements of `tensors`, 0-d."""
    norms = [torch.linalg.vector_norm(tensor.float()) for tensor in tensors]
    norm: Tensor = torch.linalg.vector_norm(torch.stack([*norms, torch.zeros((), device=device)]))
    return norm


def _gradients(
    model: ParallelModel, precision: Precision, sample: Batch, factor: float, seed: int
) -> dict[str, Tensor]:
    """This rank's parts of the averaged gradients of `factor` times the loss, by the parameters' names."""
    torch.manual_seed(seed)
    model.clear_gradients()
    if model.pipeline is not None:
        model.pipeline.train_on_one(sample, precision.autocast, factor)
    else:
        with precision.autocast():
            loss = model(sample)[LOSS]
        scaled: Tensor = loss * factor
        scaled.backward()  # type: ignore[no-untyped-call]
    return {
        name: parameter.grad.to_local() if isinstance(parameter.grad, DTensor) else parameter.grad
        for name, parameter in model.module.named_parameters()
        if parameter.grad is not None
    }
