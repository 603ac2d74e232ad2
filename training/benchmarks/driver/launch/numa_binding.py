"""Binds a rank to the processors of one NUMA node: that of its accelerator, or of an even share of the nodes."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import vendors
from training.benchmarks.driver.launch.numa_nodes import numa_nodes, processors

# Of the launcher's environment, for the ranks: "off" binds nothing.
NUMA_ENV = "CLUSTERDYNO_NUMA"
CHOICES = ("auto", "off")
_CPU_VENDOR = "cpu"


@dataclass(frozen=True, kw_only=True, slots=True)
class Binding:
    """The processors to which a rank is to be bound, None for none, and what to tell of it."""

    cpus: frozenset[int] | None
    sentence: str


def bind(
    environment: Mapping[str, str],
    vendor: str | None = None,
    *,
    allowed: frozenset[int] | None = None,
    root: Path = Path("/"),
) -> str | None:
    """Bind this process to its NUMA node, as torchrun's variables say which rank it is; what was bound, or why nothing.

    None where there is nothing to decide: one NUMA node, or NUMA_ENV is "off". See `binding_of`.
    """
    if environment.get(NUMA_ENV) == "off":
        return None
    found = binding_of(environment, vendor, frozenset(os.sched_getaffinity(0)) if allowed is None else allowed, root)
    if found is None or found.cpus is None:
        return None if found is None else f"bound to no NUMA node: {found.sentence}"
    try:
        os.sched_setaffinity(0, found.cpus)
    except OSError as error:
        return f"bound to no NUMA node: {found.sentence}: {error.strerror}"
    return f"bound to {found.sentence}"


def binding_of(
    environment: Mapping[str, str], vendor: str | None, allowed: frozenset[int], root: Path = Path("/")
) -> Binding | None:
    """The binding of a rank; None where the machine has one NUMA node.

    Ranks with a device whose PCI slot the vendor tells take the node of that, ranks of the vendor cpu the nodes in
    turn, equally many on each. Nothing is bound where the process may not use all processors (`allowed`): whoever has
    given it fewer, by a cpuset or by taskset, has decided. `root` is where /sys and /proc are.
    """
    nodes = numa_nodes(root / "sys/devices/system/node")
    if len(nodes) < 2:
        return None
    if not (_online(root) or frozenset[int]().union(*nodes.values())) <= allowed:
        return Binding(cpus=None, sentence=f"a cpuset or taskset already restricts this process to {as_list(allowed)}")
    rank, ranks = int(environment["LOCAL_RANK"]), int(environment["LOCAL_WORLD_SIZE"])
    devices = _devices(vendor, environment, root)
    if rank < len(devices):
        return _of_device(devices[rank], nodes, root)
    if vendor not in (None, _CPU_VENDOR):
        return Binding(cpus=None, sentence=f"the PCI slot of device {rank} of {vendor} is not known")
    if ranks % len(nodes):
        return Binding(cpus=None, sentence=f"{ranks} ranks on {len(nodes)} NUMA nodes are no equal share")
    number = sorted(nodes)[rank * len(nodes) // ranks]
    return Binding(cpus=nodes[number], sentence=f"processors {as_list(nodes[number])} of NUMA node {number}")


def as_list(cpus: frozenset[int]) -> str:
    """Numbers of processors as the kernel writes them, such as "0-3,8"."""
    parts: list[list[int]] = []
    for cpu in sorted(cpus):
        if parts and cpu == parts[-1][1] + 1:
            parts[-1][1] = cpu
        else:
            parts.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def _online(root: Path) -> frozenset[int]:
    try:
        return processors((root / "sys/devices/system/cpu/online").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return frozenset()


def _of_device(address: str, nodes: Mapping[int, frozenset[int]], root: Path) -> Binding:
    try:
        number = int((root / "sys/bus/pci/devices" / address / "numa_node").read_text(encoding="ascii"))
    except (OSError, ValueError):
        number = -1
    if number not in nodes:
        return Binding(cpus=None, sentence=f"the system does not say to which one the device {address} belongs")
    place = f"processors {as_list(nodes[number])} of NUMA node {number}, that of the device {address}"
    return Binding(cpus=nodes[number], sentence=place)


def _devices(vendor: str | None, environment: Mapping[str, str], root: Path) -> list[str]:
    """PCI addresses of the devices that the ranks see; of every vendor where none is named."""
    for known in vendors.working() if vendor is None else [vendors.load(vendor)]:
        found = known.pci_devices(root) if known.pci_devices is not None else {}
        if found:
            return _visible(found, environment.get(known.visible_devices_env))
    return []


def _visible(devices: Mapping[str, str], chosen: str | None) -> list[str]:
    """The addresses of the devices that the vendor's variable leaves, in its order; none if it names parts of one."""
    addresses = [*devices]
    if chosen is None:
        return addresses
    found = []
    for word in filter(None, (part.strip() for part in chosen.split(","))):
        if word.isdecimal() and int(word) < len(addresses):
            found.append(addresses[int(word)])
            continue
        matching = [address for address, uuid in devices.items() if uuid.startswith(word)]
        if len(matching) != 1:
            return []
        found += matching
    return found
