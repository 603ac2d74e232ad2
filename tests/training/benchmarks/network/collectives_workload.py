"""Every collective in every element type: what arrives is right, and what is wrong is seen. One line a mistake."""

import sys
from functools import partial
from itertools import product

import torch
import torch.distributed as dist

from tests.tiers import NIGHTLY
from tests.training.benchmarks.network.mutations import RANK, Mutation, Receipts, mutations
from training.benchmarks.driver.workload.operands import OPS
from training.benchmarks.driver.workload.process_group import init
from training.benchmarks.driver.workload.team import Team
from training.benchmarks.network.patterns.schedule import ConcurrentGroups, Group, HostRanks
from training.benchmarks.network.pytorch.choices import (
    EITHER_WAY,
    ELEMENT_BYTES,
    IN_PLACE_ONLY,
    REDUCING,
    ROOTED,
    TWO_BUFFERS,
)
from training.benchmarks.network.pytorch.measuring.lineup import team_of
from training.benchmarks.network.pytorch.measuring.timing import measure
from training.benchmarks.network.pytorch.message_config import MessageConfig
from training.benchmarks.network.pytorch.operations import collectives
from training.benchmarks.network.pytorch.operations.collectives import Collective
from training.benchmarks.network.pytorch.operations.point_to_point import Barrier

# One element, less than a period, and several periods with a rest.
SIZES = (8, 4096, 8 * 8191 * 3 + 64)
KINDS = ("float32", "bfloat16", "int32", "uint8", "float8_e4m3fn")
KINDS_OF_TEAMS = ("bfloat16", "uint8")

# Sums whose range five repetitions in place leave.
NARROW = tuple(product(("all_reduce", "reduce", "reduce_scatter"), [True], ("int8", "uint8", "float16")))


def _wrong(collective: Collective) -> int:
    """Wrong elements of this rank."""
    found = collective.wrong_elements()
    assert found is not None
    return int(found)


def _unseen(mistakes: dict[str, int], team: Team) -> list[str]:
    """The mistakes, each with the wrong elements that this rank counted, of which no rank of the team saw any."""
    counts = torch.tensor(list(mistakes.values()))
    dist.all_reduce(counts, group=team.handle)
    return [
        f"{name}, and that was not seen" for name, count in zip(mistakes, counts.tolist(), strict=True) if not count
    ]


def _kinds(team: Team) -> tuple[str, ...]:
    """By day, of each kind of type one among all ranks, and two in the teams."""
    return tuple(ELEMENT_BYTES) if NIGHTLY else KINDS if team.size > 2 else KINDS_OF_TEAMS


def _unseen_mistakes(collective: Collective, receipts: Receipts, ranks: int) -> list[str]:
    """The mistakes in what this rank really received that its check does not see."""
    found, before = [], list[torch.Tensor]()
    for _ in range(2):
        receipts.of.clear()
        collective.refill()
        collective.run()
        outputs = receipts.of.get(RANK.get(), [])
        stale, before = before, [each.clone() for each in outputs]
    if _wrong(collective):
        found.append("right data is wrong")
    for output, old, right in zip(outputs, stale, before, strict=True):
        wrong: dict[str, Mutation] = dict(mutations(ranks, exact=True))
        wrong["stale"] = partial(torch.Tensor.copy_, other=old)
        for name, mutate in wrong.items():
            mutate(output)
            if not torch.equal(output, right) and not _wrong(collective):
                found.append(name)
            output.copy_(right)
    return found


def _mistakes_of_each(team: Team, receipts: Receipts, forms: list[tuple[str, bool]]) -> list[str]:
    """The unseen mistakes of each form, kind of type and operation that gloo has; in make nightly of each type."""
    problems = []
    for (name, in_place), dtype, op in product(forms, _kinds(team), OPS):
        if op == "avg" or (op != "sum" and name not in REDUCING) or not _works(name, dtype, team):
            continue
        collective = collectives.create(name, team, getattr(torch, dtype), 42, in_place=in_place, op=op)
        collective.prepare(4096)
        unseen = _unseen_mistakes(collective, receipts, team.size)
        problems += [f"{name} {op} {dtype} {in_place} {team.ranks}: {each}, and that was not seen" for each in unseen]
    return problems


def _works(name: str, dtype: str, team: Team) -> bool:
    """Messages need two ranks, a hypercube a power of two; gloo adds no 8-bit floating point."""
    if team.size == 1 and name.startswith("send_recv"):
        return False
    is_power = not team.size & (team.size - 1)
    return (name != "hypercube" or is_power) and not (name in REDUCING and dtype.startswith("float8"))


def _wrong_roots(team: Team) -> list[str]:
    """Collectives with a root that deliver wrong data for some root."""
    problems = []
    for name, root in product(ROOTED, range(team.size)):
        collective = collectives.create(name, team, torch.float32, 42, in_place=name in IN_PLACE_ONLY, root=root)
        collective.prepare(4096)
        collective.refill()
        collective.run()
        if wrong := _wrong(collective):
            problems.append(f"{name} root={root} ranks={team.ranks}: {wrong} wrong")
    return problems


class _OpenBarrier(Barrier):
    """Lets everybody through at once."""

    def run(self) -> None:
        """Wait for nobody."""


def _check_barrier(team: Team, problems: list[str], mistakes: dict[str, int]) -> None:
    """A barrier holds in every check, whoever is late; one that holds nobody is seen."""
    good, bad = (kind(team, torch.float32, 42) for kind in (Barrier, _OpenBarrier))
    for number in range(2 * team.size):
        if wrong := _wrong(good):
            problems.append(f"barrier ranks={team.ranks} check {number}: {wrong} had not come")
    if team.size > 1:
        mistakes[f"barrier ranks={team.ranks}: nobody waited"] = sum(_wrong(bad) for _ in range(team.size))


def _problems(team: Team, receipts: Receipts) -> list[str]:
    problems: list[str] = []
    mistakes: dict[str, int] = {}
    _check_barrier(team, problems, mistakes)
    forms = [*product(IN_PLACE_ONLY, [True]), *product(EITHER_WAY, [True, False]), *product(TWO_BUFFERS, [False])]
    # By day, too, all types among all ranks.
    for (name, in_place), dtype in product(forms, ELEMENT_BYTES if team.size > 2 else _kinds(team)):
        if not _works(name, dtype, team):
            continue
        case = f"{name} {dtype} in_place={in_place} ranks={team.ranks}"
        collective = collectives.create(name, team, getattr(torch, dtype), 42, in_place=in_place)
        for size in SIZES:
            collective.prepare(size)
            for _ in range(2):
                collective.refill()
                collective.run()
                if wrong := _wrong(collective):
                    problems.append(f"{case} size={size}: {wrong} wrong")
            collective.refill()
            if team.size > 1:
                mistakes[f"{case} size={size}: nothing was sent"] = _wrong(collective)
        if team.size == 2:
            other = collectives.create(name, team, getattr(torch, dtype), 42 + (team.rank == 1), in_place=in_place)
            other.prepare(4096)
            other.refill()
            other.run()
            mistakes[f"{case}: rank 1 sent other data"] = _wrong(other)
    problems += _wrong_roots(team)
    if team.size > 1:
        problems += _mistakes_of_each(team, receipts, forms)
    for name, in_place, dtype in NARROW:
        collective = collectives.create(name, team, getattr(torch, dtype), 42, in_place=in_place)
        collective.prepare(4096)
        found = measure(collective, team, MessageConfig(warmup_iterations=0, iterations=5))
        if found.verdict != "pass":
            problems.append(f"{name} {dtype} ranks={team.ranks}: wrong after sums that left the range")
    return problems + _unseen(mistakes, team)


def main() -> None:
    """All ranks together, then two teams at once."""
    receipts = Receipts()
    receipts.install(setattr)
    with init("gloo", timeout_s=60) as group:
        RANK.set(group.placement.rank)
        problems = _problems(Team.world(group), receipts)
        hosts = [HostRanks(node_rank=rank, name=f"h{rank}", ranks=(rank,)) for rank in range(3)]
        apart = ConcurrentGroups(
            name="apart",
            groups=(
                Group(hosts=tuple(hosts[:2]), ranks=(0, 1), label="01"),
                Group(hosts=(hosts[2],), ranks=(2,), label="2"),
            ),
        )
        with team_of(apart, group) as mine:
            assert mine is not None
            problems += _problems(mine[1], receipts)
        rest = ConcurrentGroups(name="rest", groups=(Group(hosts=tuple(hosts[1:]), ranks=(1, 2), label="12"),))
        with team_of(rest, group) as mine:
            assert (mine is None) == (group.placement.rank == 0)
            problems += _problems(mine[1], receipts) if mine else []
        print("\n".join(problems) or "all right", flush=True)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
