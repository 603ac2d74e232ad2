"""Compares the ranks of a training: steps, updates, random generators, samples, parameters, loss on a shared batch."""

import math
import struct
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from training.benchmarks.driver.training.settings.division import Coordinates

# Relative differences of two ranks' loss on the shared batch that kernels for other processors explain.
LOSS_TOLERANCE = {"fp32": 1e-5, "tf32": 1e-3, "bf16": 1e-2, "fp16": 1e-2}
_FIXED = 13
NOT_FINITE = ("a loss", "a gradient")
OTHER_SAMPLES, TRAINED_SAMPLES = 1, 2
EVALUATED = {OTHER_SAMPLES: "other samples than the evaluation set's", TRAINED_SAMPLES: "samples of the training set"}
# Relative difference of a learning rate that an optimizer which keeps it in float32 explains.
_RATE_TOLERANCE = 1e-6


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplicaState:
    """The state of one rank at a check.

    `broken` is the moment at which it first computed a number that is not finite (see Finiteness), 0 for never;
    `missed` how many updates of the steps since the last check it has not made; `evaluated` a key of EVALUATED if its
    first evaluation batch was not that of the evaluation set, 0 if it was. `updates` is how many its optimizer has
    counted, over all parameters, `rate` the learning rate of the last one.
    `seed` is that of its generator, `random` a checksum of the generator's state, `order` a hash of the samples that it
    has trained, `balance` as in DataOrder, `has_moved` whether its parameters differ from those of the last check,
    `loss` in nats. `parameters` has a checksum for each of the groups of parameters that are divided along the same
    dimensions of the mesh.
    """

    step: int
    updates: int
    rate: float
    seed: int
    random: int
    order: int
    balance: int
    data: int
    has_moved: bool
    loss: float
    parameters: tuple[int, ...]
    broken: int = 0
    missed: int = 0
    evaluated: int = 0

    def numbers(self) -> list[int]:
        """The state as integers of 64 bits, signed, for a gathering over the ranks."""
        rate, loss = struct.unpack("<qq", struct.pack("<dd", self.rate, self.loss))
        data = [self.order, self.balance, self.data]
        first = [self.step, self.updates, rate, self.seed, self.random, *data, int(self.has_moved), loss]
        first += [self.broken, self.missed, self.evaluated]
        return [_signed(number) for number in (*first, *self.parameters)]

    @classmethod
    def of_numbers(cls, numbers: Sequence[int]) -> "ReplicaState":
        """The state that `numbers` describes."""
        step, updates, rate_bits, seed, random, order, balance, data, *rest = numbers[:_FIXED]
        moved, loss_bits, broken, missed, evaluated = rest
        rate, loss = struct.unpack("<dd", struct.pack("<qq", rate_bits, loss_bits))
        return cls(
            step=step,
            updates=updates,
            rate=rate,
            seed=seed,
            random=random,
            order=order,
            balance=balance,
            data=data,
            has_moved=bool(moved),
            loss=loss,
            parameters=tuple(numbers[_FIXED:]),
            broken=broken,
            missed=missed,
            evaluated=evaluated,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Expectation:
    """The expectations of a check. `places` and `seeds`: of each rank. `divided`: of each group of parameters the
    dimensions along which it is divided. `rate`: the learning rate of the last update, None before there is one.
    `steps`: in how many, since the last check, each rank's parameters have to have changed; 0 where they need not.
    """

    places: Sequence[Coordinates]
    divided: Sequence[frozenset[str]]
    seeds: Sequence[int]
    loss_tolerance: float
    rate: float | None
    steps: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Departure:
    """The first rank that departs from the others, and a sentence. `group`: the parameters' group that differs."""

    rank: int
    sentence: str
    group: int | None = None


def first_departure(states: Sequence[ReplicaState], expected: Expectation) -> Departure | None:
    """The first rank that departs, in the most basic of the matters in which any does; None if all make one training.

    Among ranks that have to be equal, most are right; where there is no majority the lowest rank is.
    """
    for look in (_steps, _finite, _updates, _random, _samples, _evaluation, _parameters, _movement, _losses):
        found = look(states, expected)
        if found is not None:
            return found
    return None


def _steps(states: Sequence[ReplicaState], expected: Expectation) -> Departure | None:
    return _odd(
        [state.step for state in states],
        lambda _: 0,
        lambda rank, usual: f"is at step {states[rank].step}, rank {usual} at step {states[usual].step}",
    )


def _finite(states: Sequence[ReplicaState], expected: Expectation) -> Departure | None:
    """The rank that computed something that is not finite before the others did; what is summed spreads it to all."""
    moments = [state.broken for state in states]
    first = min((moment for moment in moments if moment), default=0)
    ranks = [rank for rank, moment in enumerate(moments) if moment == first]
    if not first or len(ranks) == len(states):  # none, or the training has diverged, on all ranks
        return None
    step, what = divmod(first, 2)
    more = f", as rank{'s' * (len(ranks) > 2)} {', '.join(map(str, ranks[1:]))}" if len(ranks) > 1 else ""
    sentence = (
        f"rank {ranks[0]} has found {NOT_FINITE[what]} that is not finite in step {step}{more}, before the other ranks"
    )
    return Departure(rank=ranks[0], sentence=sentence)


def _updates(states: Sequence[ReplicaState], expected: Expectation) -> Departure | None:
    for rank, state in enumerate(states):
        if expected.rate is not None and not math.isclose(state.rate, expected.rate, rel_tol=_RATE_TOLERANCE):
            return Departure(
                rank=rank,
                sentence=f"rank {rank} has updated with the learning rate {state.rate:.9g}, not {expected.rate:.9g}",
            )
        if state.missed:
            every = ", as all ranks have" if all(each.missed == state.missed for each in states) else ""
            plural = "s" * (state.missed != 1)
            return Departure(
                rank=rank, sentence=f"rank {rank} has skipped {state.missed} update{plural} since the last check{every}"
            )
    return _odd(
        [state.updates for state in states],
        lambda rank: expected.places[rank].get("pp"),  # over the parameters, of which a stage has its own
        lambda rank, usual: f"has counted {states[rank].updates} updates, rank {usual} {states[usual].updates}",
    )


def _random(states: Sequence[ReplicaState], expected: Expectation) -> Departure | None:
    for rank, (state, seed) in enumerate(zip(states, expected.seeds, strict=True)):
        if state.seed != seed:
            return Departure(rank=rank, sentence=f"rank {rank} has a generator with the seed {state.seed}, not {seed}")
    return _odd(
        [state.random for state in states],
        lambda rank: _data_parallel(expected.places[rank]),
        lambda rank, usual: f"has another state of its random generator than rank {usual}, which has the same samples",
    )


def _samples(states: Sequence[ReplicaState], expected: Expectation) -> Departure | None:
    def group(rank: int) -> Hashable:
        return _data_parallel(expected.places[rank])

    found = _odd(
        [state.order for state in states],
        group,
        lambda _, usual: f"has trained other samples than rank {usual}, which has the same samples",
    ) or _odd(
        [state.data for state in states],
        group,
        lambda _, usual: f"has got other data of the same samples than rank {usual}, which has the same samples",
    )
    if found is not None or expected.rate is None:
        return found
    first: dict[int, int] = {}
    for rank, state in enumerate(states):
        other = first.setdefault(state.order, rank)
        if group(other) != group(rank):
            return Departure(rank=rank, sentence=f"rank {rank} has trained the same samples as rank {other}")
    readers = {group(rank): state.balance for rank, state in enumerate(states)}
    if sum(readers.values()) % (1 << 64):
        return Departure(rank=0, sentence="the ranks together have not trained each sample of their steps once")
    return None


def _evaluation(states: Sequence[ReplicaState], expected: Expectation) -> Departure | None:
    wrong = {rank: state.evaluated for rank, state in enumerate(states) if state.evaluated}
    if not wrong:
        return None
    rank, what = next(iter(wrong.items()))
    every = ", as all ranks have" if len(wrong) == len(states) > 1 else ""
    return Departure(rank=rank, sentence=f"rank {rank} has evaluated {EVALUATED[what]}{every}")


def _parameters(states: Sequence[ReplicaState], expected: Expectation) -> Departure | None:
    for number, divided in enumerate(expected.divided):

        def part(rank: int, divided: frozenset[str] = divided) -> Hashable:
            return tuple(expected.places[rank][dimension] for dimension in sorted(divided))

        found = _odd(
            [state.parameters[number] for state in states],
            part,
            lambda rank, usual: f"has other parameters than rank {usual}",
        )
        if found is not None:
            return Departure(rank=found.rank, sentence=found.sentence, group=number)
    return None


def _movement(states: Sequence[ReplicaState], expected: Expectation) -> Departure | None:
    if not expected.steps:
        return None
    still = [rank for rank, state in enumerate(states) if not state.has_moved]
    if not still:
        return None
    return Departure(
        rank=still[0], sentence=f"rank {still[0]} has the parameters that it had {expected.steps} steps ago"
    )


def _losses(states: Sequence[ReplicaState], expected: Expectation) -> Departure | None:
    finite = sorted(state.loss for state in states if math.isfinite(state.loss))
    if not finite:  # the training has diverged, on all ranks
        return None
    usual = finite[(len(finite) - 1) // 2]
    for rank, loss in enumerate(state.loss for state in states):
        if not abs(loss - usual) <= expected.loss_tolerance * abs(usual):
            return Departure(
                rank=rank,
                sentence=f"rank {rank} finds the loss {loss:.9g} on a batch on which the others find {usual:.9g}",
            )
    return None


def _data_parallel(place: Coordinates) -> Hashable:
    """The place that ranks share that have the same samples."""
    return place["dp"]


def _odd(values: Sequence[int], group: Callable[[int], Hashable], words: Callable[[int, int], str]) -> Departure | None:
    """The first rank whose value is not the usual one of its group; `words` takes it and a rank with the usual one."""
    groups: dict[Hashable, list[int]] = {}
    for rank in range(len(values)):
        groups.setdefault(group(rank), []).append(rank)
    found = []
    for ranks in groups.values():
        counts: dict[int, int] = {}
        for rank in ranks:
            counts[values[rank]] = counts.get(values[rank], 0) + 1
        right = max(counts, key=lambda value: counts[value])  # of several the one that came first
        usual = next(rank for rank in ranks if values[rank] == right)
        found += [(rank, usual) for rank in ranks if values[rank] != right]
    if not found:
        return None
    rank, usual = min(found)
    return Departure(rank=rank, sentence=f"rank {rank} {words(rank, usual)}")


def _signed(number: int) -> int:
    """A number below 2**64 as a signed one with the same bits."""
    number &= (1 << 64) - 1
    return number - (1 << 64) if number >> 63 else number
