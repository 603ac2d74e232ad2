"""Computes the bisection bandwidth: the least bandwidth between two halves of a network's servers."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from common import units
from simulation.topology.fabric import GPU, NVSWITCH, Fabric
from simulation.topology.shape import FabricShape

MOST_GPUS = 4096  # for the min-cut of any network
EXACT = "exact, over all divisions of the servers into halves"
EXACT_IN_SERVER = "exact, over all divisions of the server's GPUs into halves"
MIN_CUT = "min-cut between the halves of the servers in order, and between every second server: an upper bound"


class Bisection(NamedTuple):
    """Bits per second in one direction, or None where it was not computed; `method` says how, or why not."""

    bits_per_second: float | None
    method: str


def of_template(shape: FabricShape) -> Bisection | None:
    """The exact value of a template; None if servers lie across segments, where no closed form holds.

    With the sides of the spines fixed, a leaf with `a` of its `n` units on the first side costs the smaller of
    (uplinks + links of the others) and (links of the `a`), which is concave in `a`. A sum of concave functions has its
    least value at a corner, where at most one segment is divided, so that trying the corners is enough.
    """
    nic, uplink = units.bandwidth_bps(shape.nic.bandwidth), units.bandwidth_bps(shape.uplink.bandwidth)
    uplinks = [uplink * len(shape.spines_of_set(tor)) for tor in range(shape.tors)]
    planes = [[up] for up in uplinks] if shape.planes == 2 else [uplinks]
    if shape.servers == 1:
        return _within_server(shape, nic, planes)
    if shape.segment_gpus % shape.gpus_per_server:
        return None
    per_leaf = shape.segment_gpus // shape.gpus_per_server
    link = nic * shape.gpus_per_server / shape.rails  # of a server to one leaf
    whole, rest = divmod(shape.servers, per_leaf)
    corners = _corners(per_leaf, whole, rest, shape.servers // 2)
    least = min(sum(_cost(corner, link, plane) for plane in planes) for corner in corners)
    return Bisection(least * shape.rails, EXACT)


def _within_server(shape: FabricShape, nic: float, planes: list[list[float]]) -> Bisection | None:
    """One server: its GPUs are divided, over the NVSwitches and over the leaves."""
    half = shape.gpus // 2
    whole, rest = divmod(shape.gpus, shape.segment_gpus)
    if not rest:
        corners = _corners(shape.nics_per_leaf, whole * shape.rails, 0, half)
    elif not whole:
        corners = _corners(shape.gpus // shape.rails, shape.rails, 0, half)
    elif shape.rails == 1:
        corners = _corners(shape.nics_per_leaf, whole, rest, half)
    else:
        return None
    nvlink = units.bandwidth_bps(shape.nvlink.bandwidth) * shape.nvswitches_per_server * half
    least = min(sum(_cost(corner, nic, plane) for plane in planes) for corner in corners)
    return Bisection(nvlink + least, EXACT_IN_SERVER)


_Corner = list[tuple[int, int, int]]  # (units, of them on the first side, how many leaves are so)


def _corners(size: int, whole: int, rest: int, half: int) -> Iterator[_Corner]:
    """Every way to put `half` units on the first side in which at most one leaf is divided."""
    for full in range(whole + 1):
        for of_last in {0, rest}:
            left = half - full * size - of_last
            if 0 <= left <= size and (full < whole or not left):
                divided = [(size, left, 1)] if full < whole else []
                none = whole - full - len(divided)
                yield [(size, size, full), *divided, (size, 0, none), (rest, of_last, 1)]
        left = half - full * size
        if 0 < left < rest:
            yield [(size, size, full), (size, 0, whole - full), (rest, left, 1)]


def _cost(corner: _Corner, link: float, uplinks: Sequence[float]) -> float:
    """The least bandwidth across, over both sides of a plane's spines; each set of leaves has its uplinks."""
    spines_second = sum(
        count * min(up + link * (size - on_first), link * on_first)
        for up in uplinks
        for size, on_first, count in corner
    )
    spines_first = sum(
        count * min(up + link * on_first, link * (size - on_first))
        for up in uplinks
        for size, on_first, count in corner
    )
    return min(spines_second, spines_first)


def of_any(fabric: Fabric, servers: Sequence[Sequence[int]]) -> Bisection:
    """The min-cut of a network of at most MOST_GPUS between two pairs of halves, the smaller of the two."""
    if fabric.gpus > MOST_GPUS:
        return Bisection(None, f"not computed: no template, and more than {MOST_GPUS} GPUs")
    if fabric.gpus < 2:
        return Bisection(None, "not computed: there are no halves")
    try:
        import networkx
    except ImportError:
        return Bisection(None, "not computed: needs networkx (pip install -r requirements/simulation.txt)")
    parts = [[gpu] for gpu in servers[0]] if len(servers) == 1 else servers
    cuts = [_min_cut(networkx, fabric, side) for side in (_first_half(parts), _first_half([*parts[::2], *parts[1::2]]))]
    return Bisection(min(cuts), MIN_CUT)


def _first_half(parts: Sequence[Sequence[int]]) -> set[int]:
    """The GPUs of as many parts, in order, as come nearest to half of all GPUs."""
    total = sum(map(len, parts))
    chosen: set[int] = set()
    for part in parts:
        if chosen and abs(2 * (len(chosen) + len(part)) - total) > abs(2 * len(chosen) - total):
            break
        chosen.update(part)
    return chosen


def _min_cut(networkx: Any, fabric: Fabric, side: set[int]) -> float:
    """Bits per second of the min-cut between some GPUs and all others; each side's GPUs are merged into one node."""
    roles = fabric.roles
    speed = [units.bandwidth_bps(text.bandwidth) for text in fabric.texts]
    place: dict[int, int | str] = {
        node: ("s" if node in side else "t") for node, role in enumerate(roles) if role == GPU
    }
    of_nvswitch: dict[int, set[int | str]] = {}
    for a, b, _ in fabric.links():
        for one, other in ((a, b), (b, a)):
            if roles[one] == NVSWITCH:
                of_nvswitch.setdefault(one, set()).add(place.get(other, "between"))
    merged = place | {node: next(iter(sides)) for node, sides in of_nvswitch.items() if len(sides) == 1}
    graph = networkx.Graph()
    graph.add_nodes_from("st")
    for a, b, kind in fabric.links():
        ends = merged.get(a, a), merged.get(b, b)
        if ends[0] != ends[1]:
            before = graph.get_edge_data(*ends, {"capacity": 0.0})["capacity"]
            graph.add_edge(*ends, capacity=before + speed[kind])
    return float(networkx.minimum_cut_value(graph, "s", "t"))
