"""Describes a network in InfraGraph's format: devices with components, instances of them, and edges by slices."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from common import units
from common.errors import SimulationError
from simulation.topology import structure
from simulation.topology.fabric import GPU, NVSWITCH, Fabric, kind_of, tiers
from simulation.topology.shape import LinkText

# Source of the format: https://infragraph.dev (schema of the PyPI package `infragraph`, 3.1.0).
NOT_INSTALLED = "InfraGraph needs its package: pip install -r requirements/simulation.txt"


class Place(NamedTuple):
    """A node in InfraGraph's words: instance[place] and component[number]."""

    instance: str
    place: int
    component: str
    number: int


class _Inner(NamedTuple):
    """A server's inside: its GPUs, its NVSwitches, and the links between them by position."""

    gpus: int
    nvswitches: int
    links: tuple[tuple[int, int, int], ...]


def package() -> Any:
    """The package infragraph.

    Raises:
        SimulationError: it is not installed.
    """
    try:
        import infragraph
    except ImportError as error:
        raise SimulationError(NOT_INSTALLED) from error
    return infragraph


def infrastructure(fabric: Fabric, name: str) -> Any:
    """The network as an Infrastructure of the package.

    Raises:
        SimulationError: the package is not installed, or an NVSwitch belongs to no server.
    """
    made = package().Infrastructure(name=name, description=f"{fabric.gpu_type}, written by ClusterDyno")
    places = _Writer(fabric, made).nodes()
    _edges(fabric, made, places)
    return made


class _Writer:
    """Adds devices and instances: a run of equal servers or of switches of a tier is an instance with a count."""

    def __init__(self, fabric: Fabric, made: Any) -> None:
        self._fabric, self._made = fabric, made
        self._links = [_link(made.links.add(name=f"link{number}"), text) for number, text in enumerate(fabric.texts)]
        self._devices: dict[_Inner | str, str] = {}

    def nodes(self) -> list[Place | None]:
        """The place of each node, in order of the ids."""
        fabric, tier = self._fabric, tiers(self._fabric)
        places: list[Place | None] = [None] * len(fabric.roles)
        for number, (run, members) in enumerate(_runs(self._servers())):
            name = f"server{number}" if number else "server"
            self._made.instances.add(name=name, device=self._server_device(run), count=len(members))
            for index, (gpus, nvswitches) in enumerate(members):
                for component, nodes in (("gpu", gpus), ("nvswitch", nvswitches)):
                    for position, node in enumerate(nodes):
                        places[node] = Place(name, index, component, position)
        numbers: dict[str, int] = {}
        switches = [node for node, role in enumerate(fabric.roles) if role not in (GPU, NVSWITCH)]
        kinds = [(kind_of(fabric.roles[node], tier[node]).rstrip("-"), node) for node in switches]
        for kind, run_nodes in _runs(kinds):
            numbers[kind] = numbers.get(kind, -1) + 1
            name = f"{kind}{numbers[kind]}" if numbers[kind] else kind
            self._made.instances.add(name=name, device=self._switch_device(kind), count=len(run_nodes))
            for index, node in enumerate(run_nodes):
                places[node] = Place(name, index, "asic", 0)
        if None in places:
            raise SimulationError("an NVSwitch belongs to no server: InfraGraph has no place for it")
        return places

    def _servers(self) -> list[tuple[_Inner, tuple[list[int], list[int]]]]:
        """Each server's inside, with the ids of its GPUs and NVSwitches."""
        fabric = self._fabric
        gpus_of = structure.servers(fabric)
        server_of = {gpu: number for number, gpus in enumerate(gpus_of) for gpu in gpus}
        nvswitches: list[list[int]] = [[] for _ in gpus_of]
        inner = [(a, b, kind) for a, b, kind in fabric.links() if {fabric.roles[a], fabric.roles[b]} == {GPU, NVSWITCH}]
        for a, b, _ in inner:
            gpu, nvswitch = (a, b) if fabric.roles[a] == GPU else (b, a)
            if nvswitch not in server_of:
                server_of[nvswitch] = server_of[gpu]
                nvswitches[server_of[gpu]].append(nvswitch)
        position = {node: number for nodes in (*gpus_of, *map(sorted, nvswitches)) for number, node in enumerate(nodes)}
        links: list[list[tuple[int, int, int]]] = [[] for _ in gpus_of]
        for a, b, kind in inner:
            gpu, nvswitch = (a, b) if fabric.roles[a] == GPU else (b, a)
            links[server_of[gpu]].append((position[gpu], position[nvswitch], kind))
        return [
            (_Inner(len(gpus), len(its), tuple(sorted(links[number]))), (gpus, sorted(its)))
            for number, (gpus, its) in enumerate(zip(gpus_of, nvswitches, strict=True))
        ]

    def _server_device(self, inner: _Inner) -> str:
        if inner not in self._devices:
            name = self._devices[inner] = f"server_{len(self._devices)}"
            device = self._device(name)
            _component(device, "gpu", inner.gpus, "xpu", self._fabric.gpu_type)
            if inner.nvswitches:
                _component(device, "nvswitch", inner.nvswitches, "switch", "NVSwitch")
            for kind in sorted({kind for _, _, kind in inner.links}):
                _link(device.links.add(name=f"{name}_link{kind}"), self._fabric.texts[kind])
            for gpus, nvswitches, kind in _rectangles(inner.links):
                edge = device.edges.add(scheme="many2many", link=f"{name}_link{kind}")
                edge.ep1.component, edge.ep2.component = f"gpu[{gpus}]", f"nvswitch[{nvswitches}]"
        return self._devices[inner]

    def _switch_device(self, kind: str) -> str:
        if kind not in self._devices:
            self._devices[kind] = f"{kind}_switch"
            _component(self._device(f"{kind}_switch"), "asic", 1, "switch", kind)
        return self._devices[kind]

    def _device(self, name: str) -> Any:
        device = self._made.devices.add(name=name)
        _ = device.links, device.edges  # the schema wants them, though empty
        return device


def _component(device: Any, name: str, count: int, choice: str, description: str) -> None:
    device.components.add(name=name, count=count, description=description)
    device.components[-1].choice = choice


def _link(link: Any, text: LinkText) -> str:
    """Fill in a link: numbers for every reader, and our text, which says them exactly, as its description."""
    link.description = str(text)
    link.physical.bandwidth.gigabits_per_second = units.bandwidth_bps(text.bandwidth) / 1e9
    link.physical.latency.ns = units.time_seconds(text.latency) * 1e9
    return str(link.name)


def _edges(fabric: Fabric, made: Any, places: Sequence[Place | None]) -> None:
    """The links that leave a server, those between runs of instances by one edge of slices."""
    columns: dict[tuple[str, str, int, str, int, str, int, int], list[int]] = {}
    for a, b, kind in fabric.links():
        one, other = places[a], places[b]
        assert one is not None and other is not None
        if {one.component, other.component} == {"gpu", "nvswitch"} and one[:2] == other[:2]:
            continue
        key = (
            one.instance, one.component, one.number, other.instance, other.place, other.component, other.number, kind,
        )  # fmt: skip
        columns.setdefault(key, []).append(one.place)
    groups: dict[tuple[str, str, str, str, int, tuple[str, ...]], list[int]] = {}
    for (instance, component, number, target, index, its, its_number, kind), indices in columns.items():
        end, its_end = f"{component}[{number}]", f"{its}[{its_number}]"
        slices = tuple(_slices(sorted(indices)))
        groups.setdefault((instance, end, target, its_end, kind, slices), []).append(index)
    for (instance, end, target, its_end, kind, slices), targets in groups.items():
        for part in slices:
            for its_part in _slices(sorted(targets)):
                edge = made.edges.add(scheme="many2many", link=f"link{kind}")
                edge.ep1.instance, edge.ep1.component = f"{instance}[{part}]", end
                edge.ep2.instance, edge.ep2.component = f"{target}[{its_part}]", its_end


def _rectangles(links: Iterable[tuple[int, int, int]]) -> list[tuple[str, str, int]]:
    """Slices of GPUs and NVSwitches of which every pair is linked, with the kind of link."""
    rows: dict[tuple[int, int], list[int]] = {}
    for gpu, nvswitch, kind in links:
        rows.setdefault((nvswitch, kind), []).append(gpu)
    same: dict[tuple[tuple[str, ...], int], list[int]] = {}
    for (nvswitch, kind), gpus in rows.items():
        same.setdefault((tuple(_slices(sorted(gpus))), kind), []).append(nvswitch)
    return [
        (part, nvswitches, kind)
        for (parts, kind), of_nvswitches in same.items()
        for part in parts
        for nvswitches in _slices(sorted(of_nvswitches))
    ]


def _slices(numbers: Sequence[int]) -> list[str]:
    """`0:4` and `6:7` for 0, 1, 2, 3, 6."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][1] == number:
            found[-1][1] += 1
        else:
            found.append([number, number + 1])
    return [f"{first}:{last}" for first, last in found]


def _runs(items: Iterable[tuple[Any, Any]]) -> list[tuple[Any, list[Any]]]:
    """Values of consecutive equal keys together."""
    found: list[tuple[Any, list[Any]]] = []
    for key, value in items:
        if found and found[-1][0] == key:
            found[-1][1].append(value)
        else:
            found.append((key, [value]))
    return found
