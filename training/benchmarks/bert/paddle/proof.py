"""Proves that all Paddle ranks make one training: gathers their states and ends the run at a departure."""

import hashlib
import sys
from collections.abc import Callable
from typing import NoReturn

import paddle
import paddle.distributed as dist

from training.benchmarks.bert.paddle.config import Config
from training.benchmarks.bert.paddle.group import PaddleGroup
from training.benchmarks.bert.paddle.model import PaddleBert
from training.benchmarks.driver.training.data.data_order import DataOrder
from training.benchmarks.driver.training.data.hdf5 import Array
from training.benchmarks.driver.training.proof.rank_comparison import SHOWN_DIGITS, RankComparison, generator_seed
from training.benchmarks.driver.training.proof.replicas import (
    LOSS_TOLERANCE,
    Departure,
    Expectation,
    ReplicaState,
    first_departure,
)


class PaddleProof(RankComparison):
    """The checks of one run. `last_batch` is what the model got last; `rate` tells the learning rate of the last
    update, `shared_loss` evaluates the loss, in nats, on samples that all ranks share.
    """

    def __init__(
        self,
        model: PaddleBert,
        config: Config,
        group: PaddleGroup,
        total_steps: int,
        order: DataOrder,
        rate: Callable[[], float],
        shared_loss: Callable[[], float],
    ) -> None:
        world_size = group.placement.world_size
        super().__init__([{"dp": rank} for rank in range(world_size)], config, total_steps)
        self._model, self._group, self._order = model, group, order
        self._rate, self._shared_loss = rate, shared_loss
        self._seeds = [generator_seed(config, rank) for rank in range(world_size)]
        self.last_batch: dict[str, Array] = {}

    def check(self, step: int) -> None:
        """Compare the ranks after `step`; all ranks call it."""
        own = self._state(step)
        self._states = [ReplicaState.of_numbers(numbers) for numbers in self._group.gathered(own.numbers())]
        is_tf32 = self._config.precision == "fp32" and self._group.is_gpu
        expected = Expectation(
            places=self._places,
            divided=[frozenset()],
            seeds=self._seeds,
            loss_tolerance=LOSS_TOLERANCE["tf32" if is_tf32 else self._config.precision],
            rate=self._expected_rate(step),
            steps=self._moving_steps(step),
        )
        self._note(step, own.parameters)
        found = first_departure(self._states, expected)
        if found is not None:
            detail = "" if found.group is None else f", first {self._first_differing()}"
            self.departure = Departure(rank=found.rank, sentence=f"after step {step} {found.sentence}{detail}")

    def enforce(self) -> None:
        """End the run if a rank has departed: that rank with the sentence, and the others when it has left."""
        if self.departure is not None:
            self._end(self.departure)

    def _end(self, departure: Departure) -> NoReturn:
        if self._group.placement.rank != departure.rank:
            dist.barrier()
        sys.exit(departure.sentence)

    def _state(self, step: int) -> ReplicaState:
        parameters = _hash(digest for _, digest in self._digests())
        generator = _generator(self._group)
        return ReplicaState(
            step=step,
            updates=0,  # each rank has all parameters: a missing update shows there
            rate=self._rate(),
            seed=int(generator.initial_seed()),  # type: ignore[attr-defined]
            random=0,  # no two ranks share samples: there is nothing to compare it with
            order=int(self._order.digest()[:SHOWN_DIGITS], 16),
            balance=self._order.balance(),
            data=_hash(array.tobytes() for array in self.last_batch.values()),
            has_moved=(parameters,) != self._last_parameters,
            loss=self._shared_loss(),
            parameters=(parameters,),
        )

    def _digests(self) -> list[tuple[str, bytes]]:
        """The sha256 of every parameter, by name."""
        return [
            (name, hashlib.sha256(parameter.numpy().tobytes()).digest())
            for name, parameter in self._model.named_parameters()
        ]

    def _first_differing(self) -> str:
        """The name of the first parameter that is not the same on all ranks; all ranks call it."""
        every = self._group.gathered(self._digests())
        return next(
            name
            for place, (name, digest) in enumerate(every[0])
            if any(of_rank[place][1] != digest for of_rank in every)
        )


def _hash(parts: object) -> int:
    """64 bits of the sha256 over several byte strings in their order."""
    digest = hashlib.sha256()
    for part in parts:  # type: ignore[attr-defined]
        digest.update(part)
    return int(digest.hexdigest()[:SHOWN_DIGITS], 16)


def _generator(group: PaddleGroup) -> object:
    """Paddle's generator of random numbers on the device of this rank."""
    core = paddle.base.core
    if group.is_gpu:
        return core.default_cuda_generator(int(group.device.partition(":")[2]))
    return core.default_cpu_generator()
