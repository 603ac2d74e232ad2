"""Describes a network's structure: servers, rails, segments, links by speed and oversubscription by tier."""

from array import array
from collections import Counter
from typing import NamedTuple

from common import units
from simulation.topology.fabric import GPU, NVSWITCH, SWITCH, Fabric, kind_of
from simulation.topology.shape import LinkText


class SpeedClass(NamedTuple):
    """Links between two kinds of nodes with the same text."""

    between: str
    text: LinkText
    links: int


class Oversubscription(NamedTuple):
    """A tier's bandwidth towards the GPUs over that away from them, of its best and its worst switch; 1 is balanced.

    None: no switch of the tier has links upwards.
    """

    tier: str
    switches: int
    least: float | None
    most: float | None


def servers(fabric: Fabric) -> list[list[int]]:
    """The GPUs of each server: those that NVSwitches join, or consecutive ones where there are no NVSwitches."""
    roles = fabric.roles
    if not fabric.nvswitches:
        gpus = [node for node, role in enumerate(roles) if role == GPU]
        size = max(fabric.gpus_per_server, 1)
        return [gpus[start : start + size] for start in range(0, len(gpus), size)]
    found: dict[int, list[int]] = {}
    for node, root in enumerate(joined(fabric)):
        if roles[node] == GPU:
            found.setdefault(root, []).append(node)
    return [*found.values()]


def joined(fabric: Fabric) -> list[int]:
    """For each node the first of those that NVSwitches join it with; itself where none do."""
    roles, parent = fabric.roles, [*range(len(fabric.roles))]
    for a, b, _ in fabric.links():
        its, theirs = roles[a], roles[b]
        if (its == NVSWITCH or theirs == NVSWITCH) and its != SWITCH and theirs != SWITCH:
            one, other = _root(parent, a), _root(parent, b)
            parent[max(one, other)] = min(one, other)
    for node, above in enumerate(parent):  # which is no higher, so that its own is known
        parent[node] = parent[above]
    return parent


def _root(parent: list[int], node: int) -> int:
    while parent[node] != node:
        parent[node] = parent[parent[node]]
        node = parent[node]
    return node


def rails_and_segments(fabric: Fabric, of_servers: list[list[int]]) -> tuple[int, int]:
    """How many different sets of leaves the GPUs of one server reach at most, and into how many segments the servers
    fall that share leaves."""
    roles = fabric.roles
    leaves: dict[int, tuple[int, ...]] = {}
    for a, b, _ in fabric.links():
        for gpu, leaf in ((a, b), (b, a)):
            if roles[gpu] == GPU and roles[leaf] == SWITCH:
                leaves[gpu] = (*leaves.get(gpu, ()), leaf)
    rails, parent = 0, [*range(len(roles))]
    for server in of_servers:
        sets = {leaves[gpu] for gpu in server if gpu in leaves}
        rails = max(rails, len(sets))
        roots = sorted({_root(parent, leaf) for its in sets for leaf in its})
        for root in roots[1:]:
            parent[root] = roots[0]
    return rails, len({_root(parent, leaf) for its in leaves.values() for leaf in its})


def links_by_speed(fabric: Fabric, tier: "array[int]") -> list[SpeedClass]:
    """The links counted by what they join and by their text, in order of the file."""
    roles = fabric.roles
    of_node = [kind_of(role, tier[node]).rstrip("-") for node, role in enumerate(roles)]
    counts = Counter((of_node[a], of_node[b], kind) for a, b, kind in fabric.links())
    return [SpeedClass(f"{a}-{b}", fabric.texts[kind], count) for (a, b, kind), count in counts.items()]


def oversubscription(fabric: Fabric, tier: "array[int]") -> list[Oversubscription]:
    """For each tier of switches, the lowest first."""
    down, up = _bandwidths(fabric, tier)
    found = []
    for level in range(1, max(tier, default=0) + 1):
        nodes = [node for node, its in enumerate(tier) if its == level]
        ratios = [down[node] / up[node] for node in nodes if up[node]]
        name = kind_of(SWITCH, level).rstrip("-")
        found.append(Oversubscription(name, len(nodes), min(ratios, default=None), max(ratios, default=None)))
    return found


def _bandwidths(fabric: Fabric, tier: "array[int]") -> tuple[list[float], list[float]]:
    """Bits per second of each switch towards GPUs, and away from them."""
    roles = fabric.roles
    speed = [units.bandwidth_bps(text.bandwidth) for text in fabric.texts]
    down, up = [0.0] * len(roles), [0.0] * len(roles)
    ends = ((one, other, kind) for a, b, kind in fabric.links() for one, other in ((a, b), (b, a)))
    for one, other, kind in ends:
        if roles[one] != SWITCH or not tier[one] or roles[other] == NVSWITCH:
            continue
        if tier[other] < tier[one] and (roles[other] == GPU or tier[other]):
            down[one] += speed[kind]
        elif tier[other] > tier[one]:
            up[one] += speed[kind]
    return down, up
