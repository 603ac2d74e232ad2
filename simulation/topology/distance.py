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


def farthest(fabric: Fabric) -> tuple[int, int] | None:
    """The most links on a shortest path between two GPUs, and how many pairs of GPUs do not reach each other.

    None above MOST_GPUS GPUs, which do not forward. Each round spreads the set of GPUs that reach a node, as bits.
    """
    gpus = [node for node, role in enumerate(fabric.roles) if role == GPU]
    if len(gpus) > MOST_GPUS:
        return None
    pairs = [(a, b) for a, b, _ in fabric.links()]
    most = apart = 0
    with StepProgress("GPUs' distances", len(gpus)) as progress:
        for start in range(0, len(gpus), AT_ONCE):
            sources = gpus[start : start + AT_ONCE]
            links, unreached = _farthest(pairs, gpus, sources, len(fabric.roles))
            most, apart = max(most, links), apart + unreached
            progress.advance(len(sources))
    return most, apart // 2


def _farthest(pairs: list[tuple[int, int]], gpus: list[int], sources: list[int], nodes: int) -> tuple[int, int]:
    """The most links from one of `sources` to a GPU, and how many GPUs they do not reach, all together."""
    reached = [0] * nodes
    for bit, node in enumerate(sources):
        reached[node] = 1 << bit
    own = {gpu: reached[gpu] for gpu in gpus}
    rounds = last = 0
    while True:
        rounds += 1
        spread, sent = reached.copy(), reached.copy()
        for gpu, its in own.items():
            sent[gpu] = its
        for a, b in pairs:
            spread[a] |= sent[b]
            spread[b] |= sent[a]
        if spread == reached:
            return last, sum(len(sources) - reached[gpu].bit_count() for gpu in gpus)
        if any(spread[gpu] != reached[gpu] for gpu in gpus):
            last = rounds
        reached = spread
