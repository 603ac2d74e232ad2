"""Lists the hosts of the job as its ranks see them, and makes the groups of a pattern into teams."""

import contextlib
import os
import platform
from collections import Counter
from collections.abc import Iterator

import torch.distributed as dist

from training.benchmarks.driver.workload.process_group import ProcessGroup
from training.benchmarks.driver.workload.team import Team, split
from training.benchmarks.network.patterns.schedule import ConcurrentGroups, HostRanks


def line_up(group: ProcessGroup) -> tuple[HostRanks, ...]:
    """All hosts by node rank, the same on every rank; hosts of the same name are distinguished as name#node_rank."""
    found: list[tuple[int, str, int]] = [(0, "", 0)] * group.placement.world_size
    dist.all_gather_object(found, (int(os.environ["GROUP_RANK"]), platform.node(), group.placement.rank))
    ranks: dict[int, list[int]] = {}
    names: dict[int, str] = {}
    for node_rank, name, rank in sorted(found):
        ranks.setdefault(node_rank, []).append(rank)
        names[node_rank] = name
    bearers = Counter(names.values())
    return tuple(
        HostRanks(
            node_rank=node_rank,
            name=names[node_rank] if bearers[names[node_rank]] == 1 else f"{names[node_rank]}#{node_rank}",
            ranks=tuple(ranks[node_rank]),
        )
        for node_rank in sorted(ranks)
    )


@contextlib.contextmanager
def team_of(this_round: ConcurrentGroups, group: ProcessGroup) -> Iterator[tuple[int, Team] | None]:
    """This rank's group in the round (its index) as a team, None for a rank that rests.

    All ranks call this in the same order. The groups last as long as the block, so that a round's connections are
    closed before the next round opens its own.
    """
    world = Team.world(group)
    if len(this_round.groups) == 1 and this_round.groups[0].ranks == world.ranks:
        yield 0, world
        return
    rank, mine = group.placement.rank, None
    handle = split([list(each.ranks) for each in this_round.groups], group)
    for index, each in enumerate(this_round.groups):
        if rank in each.ranks:
            mine = (index, Team(ranks=each.ranks, rank=each.ranks.index(rank), device=group.device, handle=handle))
    yield mine
    # A peer may still be in its last exchange: no rank closes connections before all are done.
    world.barrier()
    if mine is not None:
        dist.destroy_process_group(mine[1].handle)
