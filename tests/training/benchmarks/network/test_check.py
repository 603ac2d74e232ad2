"""The check of received data misses no mistake: every collective, type and operation, with 2, 3 and 16 ranks."""

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
import torch.distributed as dist

from common.bandwidth import Op
from tests.training.benchmarks.network.loopback import Loopback
from tests.training.benchmarks.network.mutations import Mutation, Receipts, mutations
from training.benchmarks.driver.workload import operands
from training.benchmarks.driver.workload.operands import OPS
from training.benchmarks.driver.workload.team import Team
from training.benchmarks.network.pytorch.choices import EITHER_WAY, IN_PLACE_ONLY
from training.benchmarks.network.pytorch.measuring import tools
from training.benchmarks.network.pytorch.operations import collectives
from training.benchmarks.network.pytorch.operations.collectives import WHERE

CPU = torch.device("cpu")
BYTES = 4096
REDUCING = [name for name, (module, _) in WHERE.items() if module == "reductions"]
FORMS = [
    (name, in_place)
    for name in WHERE
    if name != "barrier"
    for in_place in ([True, False] if name in EITHER_WAY else [name in IN_PLACE_ONLY])
]


class Case:
    """One collective of `ranks` ranks in this process; `run` is its next iteration on all of them."""

    def __init__(
        self, loopback: Loopback, receipts: Receipts, name: str, dtype: torch.dtype, op: Op, *, in_place: bool
    ) -> None:
        self.loopback, self.receipts, self.op = loopback, receipts, op
        teams = [Team(ranks=tuple(range(loopback.ranks)), rank=rank, device=CPU) for rank in range(loopback.ranks)]
        self.made: list[Any] = [collectives.create(name, each, dtype, 42, in_place=in_place, op=op) for each in teams]
        for each in self.made:
            each.prepare(BYTES)
        self.outputs: list[list[torch.Tensor]] = []

    def run(self, *, stale_sender: int | None = None, op: Op | None = None, again: bool = False) -> None:
        """Refill and run; `outputs` has the buffers into which each rank received.

        `stale_sender` sends what it sent in the iteration before, `op` is used by all instead of the right one,
        `again` repeats the data of the last iteration.
        """
        for rank, each in enumerate(self.made):
            each.iteration -= again
            each.refill()
            if rank == stale_sender:
                each.iteration -= 2
                each.refill()
                each.iteration += 1
        self.receipts.of.clear()
        self.loopback.op = op
        self.loopback.run([each.run for each in self.made])
        self.loopback.op = None
        self.outputs = [self.receipts.of.get(rank, []) for rank in range(len(self.made))]

    def wrong(self, rank: int) -> int:
        """What the rank counts."""
        return int(self.made[rank].wrong_elements())

    def all_wrong(self) -> int:
        """What all ranks count together."""
        return sum(self.wrong(rank) for rank in range(len(self.made)))


def missed(case: Case) -> list[str]:
    """The mistakes that no rank sees, one line each."""
    case.run()
    old = [[tensor.clone() for tensor in each] for each in case.outputs]
    case.run()
    if case.all_wrong():
        return ["right data is wrong"]
    right = [[tensor.clone() for tensor in each] for each in case.outputs]
    receivers = [rank for rank, outputs in enumerate(case.outputs) if outputs]
    return [
        *(each for rank in {receivers[0], receivers[-1]} for each in missed_of(case, rank, receivers, old, right)),
        *missed_of_all(case, right),
    ]


def missed_of(
    case: Case, rank: int, receivers: list[int], old: list[list[torch.Tensor]], right: list[list[torch.Tensor]]
) -> Iterator[str]:
    """Mistakes in what one rank received that it does not see. `old`: what each rank received before, `right`: now."""
    operands_ = getattr(case.made[rank], "operands", None)
    other = receivers[(receivers.index(rank) + 1) % len(receivers)]
    for index, output in enumerate(case.outputs[rank]):
        wrong: dict[str, Mutation] = dict(mutations(len(case.made), exact=operands_ is None or not operands_.tolerance))
        wrong["stale"] = partial(torch.Tensor.copy_, other=old[rank][index])
        wrong["another rank's"] = partial(torch.Tensor.copy_, other=right[other][index])
        wrong["nothing"] = torch.Tensor.zero_
        for name, mutate in wrong.items():
            mutate(output)
            is_other = not torch.equal(output, right[rank][index])
            if is_other and not case.wrong(rank):
                yield f"rank {rank}: {name}"
            if not is_other and name not in ("another rank's", "displaced by a chunk"):
                yield f"rank {rank}: {name} is the right result"
            output.copy_(right[rank][index])


def missed_of_all(case: Case, right: list[list[torch.Tensor]]) -> Iterator[str]:
    """Mistakes that change what all ranks receive and that none of them sees: old data of one, another operation."""
    for sender in {0, len(case.made) - 1}:
        case.run(stale_sender=sender, again=True)
        pairs = [pair for x, y in zip(case.outputs, right, strict=True) for pair in zip(x, y, strict=True)]
        if not all(torch.equal(*pair) for pair in pairs) and not case.all_wrong():
            yield f"rank {sender} sends stale data"
    for op in OPS if hasattr(case.made[0], "op") else ():
        if op != case.op:
            case.run(op=op, again=True)
            if not case.all_wrong():
                yield f"{op} instead of {case.op}"


def _unseen(patch: pytest.MonkeyPatch, dtype: torch.dtype, ranks: int) -> list[str]:
    loopback, receipts, found = Loopback(ranks), Receipts(), []
    loopback.install(patch)
    receipts.install(patch.setattr)
    for (name, in_place), op in product(FORMS, OPS):
        is_possible = name != "hypercube" or ranks & (ranks - 1) == 0
        if is_possible and (op == "sum" or name in REDUCING) and operands.refusal(op, dtype, ranks) is None:
            case = Case(loopback, receipts, name, dtype, op, in_place=in_place)
            found += [f"{name} {op} in_place={in_place}: {each}" for each in missed(case)]
    loopback.close()
    return found


DTYPES = (torch.bfloat16, torch.float8_e5m2, torch.int8, torch.uint8)
BY_DAY = [(dtype, 3) for dtype in DTYPES] + [(torch.int8, 16)]
BY_NIGHT = [pytest.param(dtype, 16, marks=pytest.mark.nightly) for dtype in DTYPES if dtype != torch.int8]


@pytest.mark.parametrize(("dtype", "ranks"), [*BY_DAY, *BY_NIGHT], ids=str)
def test_no_mistake_passes(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, ranks: int) -> None:
    assert _unseen(monkeypatch, dtype, ranks) == []


@pytest.mark.parametrize("kind", [tools.ObjectFlags, tools.GatheredFlags, tools.SummedFlags])
def test_a_flag_of_the_iteration_before_is_seen(monkeypatch: pytest.MonkeyPatch, kind: type[tools.ObjectFlags]) -> None:
    world = 3

    def gather_objects(found: list[int], own: int) -> None:
        found[:] = [own + place for place in range(world)]

    def gather(found: list[torch.Tensor], own: torch.Tensor, group: object) -> None:
        for place, each in enumerate(found):
            each.copy_(own + place)

    monkeypatch.setattr(dist, "all_gather_object", gather_objects)
    monkeypatch.setattr(dist, "all_gather", gather)
    monkeypatch.setattr(dist, "all_reduce", lambda flag, group: flag.mul_(world))
    made = kind(Team(ranks=tuple(range(world)), rank=0, device=CPU))
    for _ in range(2):
        made.refill()
        made.run()
        assert made.wrong_elements() == 0
    kept = vars(made).copy()
    made.refill()
    made.found = kept["found"]
    if "_sum" in kept:
        made.__dict__["_sum"] = kept["_sum"]
    assert int(made.wrong_elements() or 0) > 0


@pytest.mark.nightly
@pytest.mark.parametrize("ranks", [2, 3, 16])
@pytest.mark.parametrize("dtype", operands.RANGES, ids=str)
def test_no_mistake_passes_in_any_type(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, ranks: int) -> None:
    assert _unseen(monkeypatch, dtype, ranks) == []
