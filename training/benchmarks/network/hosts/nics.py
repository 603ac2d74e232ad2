"""Names the NIC of a rank: the InfiniBand device nearest to its accelerator on PCI, or its Ethernet interface."""

import os
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path

SYS = Path("/sys")


def nic_of(local_rank: int, pci_addresses: Sequence[str], environment: Mapping[str, str], sys: Path = SYS) -> str:
    """The name of a local rank's NIC; empty if nothing tells it.

    `pci_addresses` are those of the host's accelerators by local rank ("0000:1b:00.0"); without them the rank uses the
    interface that gloo was given. NCCL's topology file (NCCL_TOPO_FILE) decides where there is one.
    """
    if not pci_addresses:
        return environment.get("GLOO_SOCKET_IFNAME", "").partition(",")[0]
    topology = environment.get("NCCL_TOPO_FILE")
    if topology and (named := rails_of(Path(topology))):
        return named.get(local_rank, "")
    nics = _chosen(_devices(sys), environment.get("NCCL_IB_HCA", ""))
    if not nics or local_rank >= len(pci_addresses):
        return ""
    mine = _path(sys / "bus" / "pci" / "devices" / pci_addresses[local_rank].lower())
    shared = {name: _shared(mine, path) for name, path in nics.items()}
    nearest = sorted(name for name, depth in shared.items() if depth == max(shared.values()))
    # NCCL spreads accelerators that are equally near to several NICs over them.
    rivals = [_path(sys / "bus" / "pci" / "devices" / each.lower()) for each in pci_addresses]
    before = sum(_shared(each, nics[nearest[0]]) == max(shared.values()) for each in rivals[:local_rank])
    return nearest[before % len(nearest)]


def _devices(sys: Path) -> dict[str, tuple[str, ...]]:
    """The PCI path of each InfiniBand or RoCE device."""
    try:
        return {each.name: _path(each / "device") for each in sorted((sys / "class" / "infiniband").iterdir())}
    except OSError:
        return {}


def _chosen(nics: Mapping[str, tuple[str, ...]], wanted: str) -> dict[str, tuple[str, ...]]:
    """Those that NCCL_IB_HCA leaves: prefixes, exact names after =, none of them after ^; a port after a colon."""
    exclude, exact = wanted.startswith("^"), wanted.lstrip("^").startswith("=")
    names = [each.partition(":")[0] for each in wanted.lstrip("^=").split(",") if each]
    if not names:
        return dict(nics)
    fits = {nic: nic in names if exact else nic.startswith(tuple(names)) for nic in nics}
    return {nic: path for nic, path in nics.items() if fits[nic] is not exclude}


def _path(link: Path) -> tuple[str, ...]:
    return tuple(os.path.realpath(link).split("/"))


def _shared(one: Sequence[object], other: Sequence[object]) -> int:
    """The depth of the lowest bridge above both."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def rails_of(path: Path) -> dict[int, str]:
    """The NIC nearest to each accelerator, by its number, in a topology that NCCL wrote (NCCL_TOPO_DUMP_FILE).

    Nothing for a file that cannot be read or has another form.
    """
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError):
        return {}
    above = {child: parent for parent in root.iter() for child in parent}

    def places(node: ElementTree.Element) -> list[ElementTree.Element]:
        found = [node]
        while found[-1] in above:
            found.append(above[found[-1]])
        return found[::-1]

    nets = [(net.get("name", ""), places(net)) for net in root.iter("net") if net.get("name")]
    found: dict[int, str] = {}
    used: dict[str, int] = {}
    numbers = {gpu: gpu.get("dev", "0") for gpu in root.iter("gpu")}
    if not all(number.isdecimal() for number in numbers.values()):
        return {}
    for gpu, number in sorted(numbers.items(), key=lambda each: int(each[1])):
        own = places(gpu)
        depths = {name: _shared(own, place) for name, place in nets}
        nearest = [name for name, depth in depths.items() if depth == max(depths.values())]
        if nearest:
            chosen = min(nearest, key=lambda name: used.get(name, 0))
            used[chosen] = used.get(chosen, 0) + 1
            found[int(number)] = chosen
    return found
