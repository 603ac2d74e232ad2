"""Puts the groups of a job on the GPUs of a network: servers, slots and NVSwitches are those of the topology."""

from collections.abc import Iterator, Sequence

from common.units import bandwidth_bps
from simulation.analytical.parts import GPUS
from simulation.flows.choice import LinkSpeeds
from simulation.flows.groups import ParallelSizes, RankGroup, even_switches, megatron_members, original_groups
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
    for group in original_groups(sizes) if original else _placed(sizes, homes_of(fabric), first, kinds):
        found.setdefault(group.kind, {}).setdefault(group.members, group)
    return {kind: list(groups.values()) for kind, groups in found.items()}


def _placed(sizes: ParallelSizes, homes: Homes, first: int, kinds: Sequence[str]) -> Iterator[RankGroup]:
    server_of, slot_of = homes.server, homes.slot
    for number, (kind, ranks) in enumerate(megatron_members(sizes, kinds)):
        members = tuple([first + rank for rank in ranks])
        servers: dict[int, list[int]] = {}
        for rank in members:
            servers.setdefault(server_of[rank], []).append(rank)
        slots = tuple([tuple([slot_of[rank] for rank in its]) for its in servers.values()])
        switches = even_switches([homes.switches.get(server, []) for server in servers])
        yield RankGroup(kind, number, members, tuple(map(tuple, servers.values())), slots, switches)


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
