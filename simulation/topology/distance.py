"""Measures how far apart the nodes of a network are: its diameter, and its disconnected parts."""

from common.progress import StepProgress
from simulation.topology.fabric import GPU, Fabric
from simulation.topology.shape import FabricShape

AT_ONCE = 4096  # GPUs whose distances are measured together, a bit each
MOST_GPUS = 131_072


def parts(fabric: Fabric) -> list[int]:
    """The number of nodes of each part that is connected in itself, the largest first."""
    parent = [*range(len(fabric.roles))]
    for a, b, _ in fabric.links():
        while parent[a] != a:
            parent[a] = a = parent[parent[a]]
        while parent[b] != b:
            parent[b] = b = parent[parent[b]]
        parent[max(a, b)] = min(a, b)
    sizes: dict[int, int] = {}
    for node in range(len(parent)):
        root = node
        while parent[root] != root:
            root = parent[root]
        parent[node] = root
        sizes[root] = sizes.get(root, 0) + 1
    return sorted(sizes.values(), reverse=True)


def diameter_of_template(shape: FabricShape) -> int | None:
    """Links between the two GPUs that are farthest apart; None where the planes make a closed form wrong."""
    if shape.spines < shape.planes:
        return None
    if shape.gpus == 1:
        return 0
    one_leaf = shape.leaves_per_set == 1
    return 2 if one_leaf or shape.servers == 1 else 4


def diameter(fabric: Fabric) -> int | None:
    """The most links on a shortest path between two GPUs that reach each other; None above MOST_GPUS.

    Each round spreads, over every link, the set of GPUs that reach a node, as the bits of one integer.
    """
    gpus = [node for node, role in enumerate(fabric.roles) if role == GPU]
    if len(gpus) > MOST_GPUS:
        return None
    pairs = [(a, b) for a, b, _ in fabric.links()]
    farthest = 0
    with StepProgress("GPUs' distances", len(gpus)) as progress:
        for start in range(0, len(gpus), AT_ONCE):
            sources = gpus[start : start + AT_ONCE]
            farthest = max(farthest, _farthest(pairs, gpus, sources, len(fabric.roles)))
            progress.advance(len(sources))
    return farthest


def _farthest(pairs: list[tuple[int, int]], gpus: list[int], sources: list[int], nodes: int) -> int:
    """The most links from one of `sources` to a GPU."""
    reached = [0] * nodes
    for bit, node in enumerate(sources):
        reached[node] = 1 << bit
    rounds = last = 0
    while True:
        rounds += 1
        spread = reached.copy()
        for a, b in pairs:
            spread[a] |= reached[b]
            spread[b] |= reached[a]
        if spread == reached:
            return last
        if any(spread[gpu] != reached[gpu] for gpu in gpus):
            last = rounds
        reached = spread
