"""Puts the groups of a job on the GPUs of a network: servers, slots and NVSwitches are those of the topology."""

from collections.abc import Sequence

from common.units import bandwidth_bps
from simulation.analytical.parts import GPUS
from simulation.flows.choice import LinkSpeeds
from simulation.flows.groups import ParallelSizes, RankGroup, megatron_groups, original_groups
from simulation.flows.names import EVERY_KIND
from simulation.topology.fabric import GPU, NVSWITCH, Fabric
from simulation.topology.homes import Homes, homes_of


def groups_by_kind(
    sizes: ParallelSizes, fabric: Fabric, first: int = 0, *, original: bool, kinds: Sequence[str] = EVERY_KIND
) -> dict[str, list[RankGroup]]:
    """All groups of more than one rank, each once; the job's first rank is on GPU `first`.

    Ours are those of `kinds`, the original's of all kinds.
    """
    found: dict[str, dict[tuple[int, ...], RankGroup]] = {}
    homes = homes_of(fabric)
    for group in original_groups(sizes) if original else megatron_groups(sizes, kinds):
        placed = group if original else _placed(group, first, homes)
        found.setdefault(group.kind, {}).setdefault(group.members, placed)
    return {kind: list(groups.values()) for kind, groups in found.items()}


def _placed(group: RankGroup, first: int, homes: Homes) -> RankGroup:
    members = tuple(first + rank for rank in group.members)
    servers: dict[int, list[int]] = {}
    for rank in members:
        servers.setdefault(homes.server[rank], []).append(rank)
    return group._replace(
        members=members,
        servers=tuple(map(tuple, servers.values())),
        slots=tuple(tuple(homes.slot[rank] for rank in ranks) for ranks in servers.values()),
        switches=tuple(homes.switch[server] for server in servers if server in homes.switch),
    )


def link_speeds(fabric: Fabric) -> LinkSpeeds:
    """GB/s of all NVLinks and of all NICs of a GPU, the slowest counting for all, and how fast its NVSwitches add."""
    nvlink, nic = [0.0] * fabric.gpus, [0.0] * fabric.gpus
    rates = [bandwidth_bps(text.bandwidth) / 8e9 for text in fabric.texts]
    roles = fabric.roles
    for one, other, kind in fabric.links():
        if roles[one] == GPU:
            (nvlink if roles[other] == NVSWITCH else nic)[one] += rates[kind]
        if roles[other] == GPU:
            (nvlink if roles[one] == NVSWITCH else nic)[other] += rates[kind]
    inside, outside = (min(filter(None, each), default=min(rates)) for each in (nvlink, nic))
    part = GPUS.get(fabric.gpu_type)
    return LinkSpeeds(inside, outside, part.nvls_at(inside) if part else None, fabric.gpu_type)
