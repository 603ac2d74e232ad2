"""Holds any network of GPUs and switches as its file describes it: nodes with a role each, and links."""

from array import array
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from simulation.topology.shape import LinkText

GPU, NVSWITCH, SWITCH = 0, 1, 2  # roles
TIER_NAMES = {1: "leaf", 2: "spine", 3: "core"}
UNREACHED = 0  # the tier of a switch that no GPU reaches over switches alone
LINES_AT_ONCE = 1 << 16


class Fabric(NamedTuple):
    """A network: `roles` by node id, and per link its two ends and which of `texts` it has."""

    gpus_per_server: int
    gpu_type: str
    roles: bytearray
    first: "array[int]"
    second: "array[int]"
    kinds: "array[int]"
    texts: list[LinkText]

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return self.roles.count(GPU)

    @property
    def nvswitches(self) -> int:
        """Number of NVSwitches."""
        return self.roles.count(NVSWITCH)

    @property
    def switches(self) -> int:
        """Number of switches of the network; NVSwitches are none."""
        return self.roles.count(SWITCH)

    def links(self) -> Iterator[tuple[int, int, int]]:
        """Both ends and the kind of each link."""
        return zip(self.first, self.second, self.kinds, strict=True)


def empty(gpus_per_server: int, gpu_type: str, roles: bytearray) -> Fabric:
    """A network without links."""
    return Fabric(gpus_per_server, gpu_type, roles, array("i"), array("i"), array("i"), [])


def chunks(fabric: Fabric) -> Iterator[bytes]:
    """The network as SimAI's topology text, in pieces."""
    roles = fabric.roles
    switches = [node for role in (NVSWITCH, SWITCH) for node, its in enumerate(roles) if its == role]
    counts = (len(roles), fabric.gpus_per_server, fabric.nvswitches, fabric.switches, len(fabric.kinds))
    yield f"{' '.join(map(str, counts))} {fabric.gpu_type}\n{' '.join(map(str, switches))} \n".encode()
    ends = [f" {text}\n" for text in fabric.texts]
    for start in range(0, len(fabric.kinds), LINES_AT_ONCE):
        part = slice(start, start + LINES_AT_ONCE)
        rows = zip(fabric.first[part], fabric.second[part], fabric.kinds[part], strict=True)
        yield "".join([f"{a} {b}{ends[kind]}" for a, b, kind in rows]).encode()


def tiers(fabric: Fabric) -> "array[int]":
    """The tier of each node: 0 for GPUs, NVSwitches and unreached switches, 1 for leaves, 2 for spines, and so on."""
    roles = fabric.roles
    tier = array("i", bytes(4 * len(roles)))
    waiting = {node for node, role in enumerate(roles) if role == SWITCH}
    level = 0
    while waiting:
        level += 1
        above = set()
        for a, b in zip(fabric.first, fabric.second, strict=True):
            if a in waiting and _is_of(level - 1, b, roles, tier):
                above.add(a)
            elif b in waiting and _is_of(level - 1, a, roles, tier):
                above.add(b)
        if not above:
            break
        for node in above:
            tier[node] = level
        waiting -= above
    return tier


def _is_of(level: int, node: int, roles: bytearray, tier: "array[int]") -> bool:
    """Whether a node is a GPU (level 0) or a switch of that tier."""
    return tier[node] == level if level else roles[node] == GPU


def names(fabric: Fabric, tier: "array[int]") -> list[str]:
    """A name for each node: gpu0, nvswitch0, leaf0, spine0, core0, tier4-0, and switch0 for unreached ones."""
    counts: dict[str, int] = {}
    found = []
    for node, role in enumerate(fabric.roles):
        kind = kind_of(role, tier[node])
        number = counts.get(kind, 0)
        counts[kind] = number + 1
        found.append(f"{kind}{number}")
    return found


def port_names(fabric: Fabric) -> list[str]:
    """`gpu0-leaf0` for each direction of each link; further links between two nodes are `gpu0-leaf0#2` and so on."""
    named, counts = names(fabric, tiers(fabric)), Counter[tuple[int, int]]()
    found = []
    for one, other, _kind in fabric.links():
        pair = min(one, other), max(one, other)
        counts[pair] += 1
        more = f"#{counts[pair]}" if counts[pair] > 1 else ""
        found += [f"{named[one]}-{named[other]}{more}", f"{named[other]}-{named[one]}{more}"]
    return found


def kind_of(role: int, tier: int) -> str:
    """`gpu`, `nvswitch`, `leaf` and so on."""
    if role != SWITCH:
        return "gpu" if role == GPU else "nvswitch"
    return "switch" if tier == UNREACHED else TIER_NAMES.get(tier, f"tier{tier}-")
