"""Names what is unusual in a network and probably a mistake."""

from array import array
from collections import Counter
from collections.abc import Sequence

from common import units
from common.shortening import few
from common.summary import counted
from simulation.topology.fabric import GPU, NVSWITCH, SWITCH, UNREACHED, Fabric
from simulation.topology.options import GPU_TYPES
from simulation.topology.reading import long_links
from simulation.topology.structure import Oversubscription

MOST_NAMED = 3
KINDS = ("GPU", "NVSwitch", "switch")


def find(
    fabric: Fabric,
    tier: "array[int]",
    names: Sequence[str],
    servers: Sequence[Sequence[int]],
    tiers: Sequence[Oversubscription],
    *,
    template: bool,
) -> list[str]:
    """One sentence for each oddity; a template has no line twice."""
    known = fabric.gpu_type in GPU_TYPES
    return [
        *([] if known else [f"the GPU type {fabric.gpu_type} is not one of {', '.join(GPU_TYPES)}"]),
        *_lonely(fabric, tier, names, one_server=len(servers) < 2),
        *_unequal(fabric, servers),
        *([] if template else _doubled(fabric, names)),
        *_slow_nvlink(fabric),
        *long_links(fabric),
        *_lossy(fabric),
        *(
            f"the {each.tier} switches have up to {each.most:.3g} times the bandwidth below of that above"
            for each in tiers
            if each.most is not None and each.most > 1.0001
        ),
    ]


def some(names: Sequence[str]) -> str:
    """The first few names and how many more there are."""
    return few(names, MOST_NAMED)


def _lonely(fabric: Fabric, tier: "array[int]", names: Sequence[str], *, one_server: bool) -> list[str]:
    """Nodes without links, GPUs without a NIC, leaves without uplinks though there are spines."""
    roles = fabric.roles
    degree, nics, above = [0] * len(roles), [0] * len(roles), [0] * len(roles)
    for a, b, _ in fabric.links():
        for one, other in ((a, b), (b, a)):
            degree[one] += 1
            nics[one] += roles[other] == SWITCH
            above[one] += tier[other] > tier[one]
    found = _unlinked(fabric, names, degree)
    without_nic = [names[node] for node, role in enumerate(roles) if role == GPU and degree[node] and not nics[node]]
    if without_nic and not one_server:
        found.append(f"no link to a leaf: {some(without_nic)}")
    stuck = [names[node] for node, its in enumerate(tier) if its == 1 and not above[node]]
    if stuck and max(tier) > 1:
        found.append(f"no link to a spine: {some(stuck)}")
    return [*found, *_unreached(fabric, tier, names, degree)]


def _unlinked(fabric: Fabric, names: Sequence[str], degree: Sequence[int]) -> list[str]:
    alone: list[list[str]] = [[] for _ in KINDS]
    for node, role in enumerate(fabric.roles):
        if not degree[node]:
            alone[role].append(names[node])
    return [f"no link at all: {some(own)} ({kind})" for own, kind in zip(alone, KINDS, strict=True) if own]


def _unreached(fabric: Fabric, tier: "array[int]", names: Sequence[str], degree: Sequence[int]) -> list[str]:
    """Switches with links, none of which leads to a GPU."""
    far = [node for node, role in enumerate(fabric.roles) if role == SWITCH and tier[node] == UNREACHED]
    unreached = [names[node] for node in far if degree[node]]
    return [f"no GPU reaches {some(unreached)}"] if unreached else []


def _unequal(fabric: Fabric, servers: Sequence[Sequence[int]]) -> list[str]:
    sizes = Counter(map(len, servers))
    if set(sizes) == {fabric.gpus_per_server} or not sizes:
        return []
    shown = ", ".join(f"{counted(count, 'server')} of {size}" for size, count in sorted(sizes.items()))
    return [f"the header says {counted(fabric.gpus_per_server, 'GPU')} per server, the NVSwitches join {shown}"]


def _doubled(fabric: Fabric, names: Sequence[str]) -> list[str]:
    pairs = Counter((min(a, b), max(a, b)) for a, b, _ in fabric.links())
    doubled = [f"{names[a]}-{names[b]} {count} times" for (a, b), count in pairs.items() if count > 1]
    return [f"more than one line for a link: {some(doubled)}"] if doubled else []


def _slow_nvlink(fabric: Fabric) -> list[str]:
    """NVLink of one GPU, over all its NVSwitches, below a NIC."""
    roles = fabric.roles
    speed = [units.bandwidth_bps(text.bandwidth) for text in fabric.texts]
    nvlink: dict[int, float] = {}
    nic: dict[int, float] = {}
    for a, b, kind in fabric.links():
        for gpu, other in ((a, b), (b, a)):
            if roles[gpu] == GPU and roles[other] != GPU:
                sums = nvlink if roles[other] == NVSWITCH else nic
                sums[gpu] = sums.get(gpu, 0.0) + speed[kind]
    slow = sum(nvlink[gpu] < nic.get(gpu, 0.0) for gpu in nvlink)
    return (
        [f"{counted(slow, 'GPU has', 'GPUs have')} less bandwidth to the NVSwitches than to the leaves"] if slow else []
    )


def _lossy(fabric: Fabric) -> list[str]:
    lossy = [text for text in fabric.texts if float(text.error_rate) > 0]
    return [f"links `{text}` lose packets: some simulators take much longer, or hang" for text in lossy]
