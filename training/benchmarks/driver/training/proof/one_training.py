"""Proves that all ranks make one training: gathers their states now and then, and ends the run at a departure."""

import math
from collections.abc import Iterable, Sequence
from typing import NoReturn

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from protocol import pulse
from training.benchmarks.driver.training.benchmark import DataSets
from training.benchmarks.driver.training.data.data_order import DataOrder
from training.benchmarks.driver.training.data.micro_batches import EvaluationBatches
from training.benchmarks.driver.training.model.model import LOSS, Batch
from training.benchmarks.driver.training.model.optimizers import updates_made, updates_of_each
from training.benchmarks.driver.training.model.parallel import Layout, ParallelModel
from training.benchmarks.driver.training.model.precision import Precision
from training.benchmarks.driver.training.proof import replicas
from training.benchmarks.driver.training.proof.rank_comparison import SHOWN_DIGITS, RankComparison, generator_seed
from training.benchmarks.driver.training.settings.settings import TrainingConfig
from training.benchmarks.driver.workload.accelerator import accelerators, is_accelerator

# Numbers that stay on the device before all are looked at: between two steps each call of torch is dear.
_FOLDED_AT = 1024


class Finiteness:
    """The first step in which this rank's own loss, or a gradient of it, was not finite.

    A gradient is looked at before it is summed over the data-parallel ranks. Nothing waits for the device but a look,
    which a comparison of the ranks takes.
    """

    def __init__(self) -> None:
        self._step = self._first = 0
        self._may_overflow: Tensor | bool = False
        self._sum: Tensor | None = None
        self._kept: list[tuple[int, Tensor]] = []

    def begin(self, step: int, may_overflow: Tensor | bool) -> None:
        """Begin the step of that number, from 1. may_overflow: whether its gradients are scaled up, so that one that is
        not finite says nothing; 0-d where only the device knows.
        """
        self._keep_gradients()
        self._step, self._may_overflow = step, may_overflow
        if len(self._kept) >= _FOLDED_AT:
            self._fold()

    def note_loss(self, loss: Tensor) -> None:
        """Note this rank's loss, 0-d, in nats."""
        self._kept.append((2 * self._step, loss.detach()))

    @torch.no_grad()
    def note_gradients(self, gradients: Tensor) -> None:
        """Note gradients of this rank, of any shape, that are about to be summed over the ranks. Their sum stands for
        them: it is finite only if all are, and much faster than their largest.
        """
        if not self._step or not gradients.numel() or self._may_overflow is True:
            return
        total = gradients.sum(dtype=torch.float32)
        self._sum = total if self._sum is None else self._sum + total

    def first(self) -> int:
        """Twice the step of the first number that is not finite, + 1: a gradient; 0: none. Waits for the device."""
        self._fold()
        return self._first

    def _keep_gradients(self) -> None:
        if self._sum is None:
            return
        total, self._sum = self._sum, None
        if isinstance(self._may_overflow, Tensor):
            total = torch.where(self._may_overflow, torch.zeros_like(total), total)
        self._kept.append((2 * self._step + 1, total))

    @torch.no_grad()
    def _fold(self) -> None:
        self._keep_gradients()
        if not self._kept or self._first:
            self._kept.clear()
            return
        numbers = torch.stack([number.float() for _, number in self._kept])
        are_finite = torch.isfinite(numbers).tolist()
        broken = [moment for (moment, _), is_finite in zip(self._kept, are_finite, strict=True) if not is_finite]
        self._first = min(broken, default=0)
        self._kept.clear()


# Elements that are widened to int64 at a time, so that a check needs 24 MiB beside the tensor, and 192 MiB on an
# accelerator: in smaller parts 7 billion parameters keep an H200 waiting for its host for half a second.
_CHUNK = 1 << 20
_CHUNK_ON_ACCELERATOR = 1 << 23
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
# Odd, and therefore without loss modulo 2**64; the fraction of the golden ratio.
_MULTIPLIER = -7046029254386353131


def checksum(tensor: Tensor) -> Tensor:
    """Sum of bits[i] * (2 i + 1) modulo 2**64 over all elements of `tensor`, of any shape and type: int64, 0-d.

    Two tensors that differ in one element have different sums: the difference of the bits is below 2**64 and not zero,
    and an odd factor has an inverse modulo 2**64.
    """
    flat = tensor.detach().reshape(-1)
    bits = flat.view(_INTEGERS[flat.element_size()])
    total = torch.zeros((), dtype=torch.int64, device=flat.device)
    chunk = min(_CHUNK_ON_ACCELERATOR if is_accelerator(flat.device) else _CHUNK, len(bits))
    factors = torch.arange(1, 2 * chunk + 1, 2, device=flat.device)
    for begin in range(0, len(bits), max(chunk, 1)):
        part = bits[begin : begin + chunk].to(torch.int64)
        total += (part * (factors[: len(part)] + 2 * begin)).sum()
    return total


def combined(checksums: Iterable[Tensor], device: torch.device) -> Tensor:
    """One checksum, int64 and 0-d, of several ones on `device` in their order; a change of one of them changes it."""
    total = torch.zeros((), dtype=torch.int64, device=device)
    for each in checksums:
        total = total * _MULTIPLIER + each
    return total


class OneTraining(RankComparison):
    """The checks of one run. `departure` is the first that was found; `last_batch` is what the model got last,
    `evaluated` what it got first in the last evaluation.

    A parameter is compared over the ranks that hold the same part of it: whole ones over all ranks, others over those
    with the same place in each dimension of the mesh along which it is divided: shards of HSDP over the replicas.
    FSDP2's shards have no second copy; an error in them shows in the loss on the shared batch, from all of them.
    """

    def __init__(
        self,
        model: ParallelModel,
        layout: Layout,
        config: TrainingConfig,
        optimizer: Optimizer,
        total_steps: int,
        order: DataOrder,
        data: DataSets,
    ) -> None:
        self._model, self._layout, self._optimizer = model, layout, optimizer
        self._order, self._device = order, model.device
        self._data = data
        self._shared_batch: Batch | None = None
        self._evaluation_digests: tuple[int, int | None] | None = None
        self._losses: tuple[Tensor, dist.Work | None] | None = None
        groups: dict[frozenset[str], list[tuple[str, Tensor]]] = {}
        of_all = frozenset({"pp"} if layout.pp_size > 1 else ())
        for name, parameter in model.module.named_parameters():
            groups.setdefault(_divided(parameter) | of_all, []).append((name, _local(parameter)))
        # In one order on all ranks, whose parts of the model begin with different parameters.
        self._groups = dict(sorted(groups.items(), key=lambda group: sorted(group[0])))
        super().__init__([layout.place_of(rank) for rank in range(dist.get_world_size())], config, total_steps)
        self._last_scale: float | None = None
        self._last_updates = 0
        self.finiteness = Finiteness()
        model.watch_gradients(self.finiteness.note_gradients)
        self.last_batch: Batch = {}
        self.evaluated: Batch = {}

    @torch.no_grad()
    def check(self, step: int, precision: Precision, *, with_loss: bool = True) -> None:
        """Compare the ranks after `step`; all ranks call it. Leaves the model in training mode. `with_loss`: also by
        their loss on the shared batch, which takes a forward pass.
        """
        own = self._state(step, precision, with_loss=with_loss)
        self._states = [replicas.ReplicaState.of_numbers(numbers) for numbers in self._gathered(own.numbers())]
        tolerance = "tf32" if self._config.precision == "fp32" and self._is_tf32() else self._config.precision
        expected = replicas.Expectation(
            places=self._places,
            divided=[*self._groups],
            seeds=[generator_seed(self._config, place["dp"]) for place in self._places],
            loss_tolerance=replicas.LOSS_TOLERANCE[tolerance],
            rate=self._expected_rate(step),
            steps=0 if self._all_skipped(step, precision) else self._moving_steps(step),
        )
        self._note(step, own.parameters)
        self._last_scale, self._last_updates = precision.loss_scale, updates_of_each(self._optimizer)
        found = replicas.first_departure(self._states, expected)
        if found is not None:
            self.departure = self._with_details(found, step)

    def share_loss(self, loss: Tensor) -> None:
        """Begin to gather the losses of the ranks, `loss` being this rank's, 0-d, for the next `losses`; all ranks call
        it. What is done in between, such as the update, hides the time that this takes.
        """
        own = loss.detach().float().reshape(1)
        every = own
        work = None
        if len(self._places) > 1:
            every = own.new_empty(len(self._places))
            work = dist.all_gather([*every.chunk(len(every))], own, async_op=True)
        self._losses = every, work

    def losses(self) -> list[float]:
        """The loss of each data-parallel rank, the mean of those that divide its sequences, in the step of the last
        `share_loss`; all ranks call it.
        """
        assert self._losses is not None, "share_loss comes first"
        (every, work), self._losses = self._losses, None
        if work is not None:
            pulse.describe(lambda _: "all_gather")  # no function of torch's is on the stack while this waits
            work.wait()
            pulse.describe(None)
        of_rank: dict[int, dict[int, float]] = {}
        for place, value in zip(self._places, every.tolist(), strict=True):
            of_rank.setdefault(place["dp"], {})[place.get("cp", 0)] = value
        return [sum(shares.values()) / len(shares) for _, shares in sorted(of_rank.items())]

    def enforce(self) -> None:
        """End the run if a rank has departed: that rank with the sentence, and the others when it has left."""
        if self.departure is not None:
            self.end(self.departure)

    def end(self, departure: replicas.Departure) -> NoReturn:
        """End the run with this departure; all ranks call it."""
        self.departure = departure
        if dist.get_rank() != departure.rank:
            dist.barrier()
        raise SystemExit(departure.sentence)

    def _state(self, step: int, precision: Precision, *, with_loss: bool) -> replicas.ReplicaState:
        parameters = tuple(
            int(combined((checksum(part) for _, part in members), self._device)) for members in self._groups.values()
        )
        devices = accelerators(self._device) if is_accelerator(self._device) else None
        state = torch.get_rng_state() if devices is None else devices.random_state(self._device)
        return replicas.ReplicaState(
            step=step,
            updates=updates_made(self._optimizer),
            rate=float(self._optimizer.param_groups[0]["lr"]),
            seed=torch.initial_seed() if devices is None else devices.seed(),
            random=int(checksum(state)),
            order=int(self._order.digest()[:SHOWN_DIGITS], 16),
            balance=self._order.balance(),
            data=self._digest(self.last_batch),
            has_moved=parameters != self._last_parameters,
            loss=self._shared_loss(precision) if with_loss else math.nan,
            parameters=parameters,
            broken=self.finiteness.first(),
            missed=self._missed(step, precision),
            evaluated=self._what_is_evaluated() if with_loss and self.evaluated else 0,
        )

    def _what_is_evaluated(self) -> int:
        """A key of EVALUATED, or 0: whether this rank's first evaluation batch is that of the evaluation set."""
        if self._evaluation_digests is None:
            of_rank = EvaluationBatches(
                len(self._data.evaluation),
                batch_size=self._config.eval_batch_size,
                dp_rank=self._layout.dp_rank,
                dp_size=self._layout.dp_size,
            )
            indices = next(iter(of_rank))
            right = self._digest(self._data.evaluation[indices])
            trained = None
            # Without identify_data a user may evaluate what is trained.
            if self._config.identify_data and indices[-1] < len(self._data.train):
                trained = self._digest(self._data.train[indices])
            self._evaluation_digests = right, trained
        right, trained = self._evaluation_digests
        found = self._digest(self.evaluated)
        return replicas.TRAINED_SAMPLES if found == trained else replicas.OTHER_SAMPLES if found != right else 0

    def _digest(self, batch: Batch) -> int:
        return int(combined((checksum(tensor.to(self._device)) for tensor in batch.values()), self._device))

    def _shared_loss(self, precision: Precision) -> float:
        """The loss on the first samples of the evaluation set, without one of the training set."""
        if self._shared_batch is None:
            samples = self._data.evaluation if len(self._data.evaluation) else self._data.train
            first = samples[np.arange(min(self._config.eval_batch_size, len(samples)))]
            self._shared_batch = {name: tensor.to(self._device) for name, tensor in first.items()}
        self._model.module.eval()
        with precision.autocast():
            loss = self._model(self._shared_batch)[LOSS]
        self._model.module.train()
        return float(loss)

    def _gathered(self, numbers: Sequence[int]) -> list[list[int]]:
        """The numbers of every rank."""
        own = torch.tensor(numbers, dtype=torch.int64, device=self._device)
        every = [torch.empty_like(own) for _ in range(dist.get_world_size())]
        dist.all_gather(every, own)
        return torch.stack(every).tolist()

    def _with_details(self, departure: replicas.Departure, step: int) -> replicas.Departure:
        """The departure with the step, and the name of the first parameter that differs; all ranks call it."""
        sentence = f"after step {step} {departure.sentence}"
        if departure.group is not None:
            members = [*self._groups.values()][departure.group]
            own = {name: int(checksum(part)) for name, part in members}
            every = [own] * dist.get_world_size()
            dist.all_gather_object(every, own)
            divided = [*self._groups][departure.group]
            place = self._places[departure.rank]
            same = [r for r, p in enumerate(self._places) if all(p[name] == place[name] for name in divided)]
            for name in every[departure.rank]:
                if len({every[rank][name] for rank in same}) > 1:
                    sentence += f", first {name}"
                    break
        return replicas.Departure(rank=departure.rank, sentence=sentence)

    def _is_tf32(self) -> bool:
        return self._config.tf32 and is_accelerator(self._device) and accelerators(self._device).tf32

    def _missed(self, step: int, precision: Precision) -> int:
        """How many of the updates since the last check a parameter lacks, but for those that fp16 skips: each halves
        the loss scale, which doubles after so many steps without one.
        """
        if self._last_step is None:
            return 0
        steps = step - self._last_step
        missed = self._last_updates + steps - updates_of_each(self._optimizer)
        scale = precision.loss_scale
        if scale is not None and self._last_scale:
            halved = round(math.log2(self._last_scale / scale))
            missed = max(0, missed - halved - steps // precision.scaler.get_growth_interval() - 1)
        return max(0, missed)

    def _all_skipped(self, step: int, precision: Precision) -> bool:
        """Whether fp16 may have skipped every step since the last check: each overflow halves the loss scale."""
        scale = precision.loss_scale
        if scale is None or self._last_scale is None or self._last_step is None:
            return False
        return scale <= self._last_scale * 0.5 ** (step - self._last_step)


def _local(parameter: Tensor) -> Tensor:
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter


def _divided(parameter: Tensor) -> frozenset[str]:
    """Dimensions of the mesh along which the parameter is divided."""
    if not isinstance(parameter, DTensor):
        return frozenset()
    names = parameter.device_mesh.mesh_dim_names or ()
    return frozenset(
        name for name, placement in zip(names, parameter.placements, strict=True) if not placement.is_replicate()
    )
