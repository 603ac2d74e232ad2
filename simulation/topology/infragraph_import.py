"""Reads a network from InfraGraph's format: GPUs, switches, and whatever lies between two of them."""

from pathlib import Path
from typing import Any, NamedTuple

from common import units
from common.errors import InputProblems, MistakeList, SimulationError, input_problem
from common.yaml_file import file_text, parsed_yaml
from simulation.topology import options
from simulation.topology.fabric import GPU, NVSWITCH, SWITCH, Fabric, empty
from simulation.topology.infragraph_export import NOT_INSTALLED, package
from simulation.topology.options import GPU_TYPES
from simulation.topology.reading import MOST_MISTAKES
from simulation.topology.shape import LinkText

LEFT_OUT = ("cpu", "memory")


class ImportedTopology(NamedTuple):
    """The network, and what was assumed because the file does not say it."""

    fabric: Fabric
    assumed: list[str]


def load(path: Path, gpu_type: str | None) -> ImportedTopology:
    """The network of a file; GPUs, NVSwitches and switches get their ids in order of the file's instances.

    Raises:
        InputProblems: the file cannot be read, has another form, or has what a network of GPUs has no place for.
        SimulationError: the package is not installed.
    """
    infragraph = package()
    try:
        from infragraph.infragraph_service import InfraGraphService
    except ImportError as error:
        raise SimulationError(NOT_INSTALLED) from error
    try:
        content = file_text(path, "import")
        parsed_yaml(content, path, "import")  # within bounds, which the package does not have
        model = infragraph.Infrastructure().deserialize(content)
        service = InfraGraphService()
        service.set_graph(content)
    except InputProblems:
        raise
    except Exception as error:  # the package raises bare exceptions of many kinds
        raise input_problem(str(path), None, f"is no InfraGraph: {' '.join(str(error).split())[:300]}") from error
    mistakes = MistakeList()
    made = _Importer(str(path), model, service.get_networkx_graph(), mistakes).network(gpu_type)
    mistakes.check()
    return made


class _Importer:
    """Turns the package's graph, whose nodes are called `server.0.gpu.3`, into a network."""

    def __init__(self, file: str, model: Any, graph: Any, mistakes: MistakeList) -> None:
        self._file, self._model, self._graph, self._mistakes = file, model, graph, mistakes
        self._texts = _described(model)

    def network(self, gpu_type: str | None) -> ImportedTopology:
        """The network, or mistakes."""
        graph = self._graph
        for name in [name for name, its in graph.nodes(data="type") if its in LEFT_OUT]:
            graph.remove_node(name)
        self._join()
        with_gpu = {_server(name) for name, its in graph.nodes(data="type") if its == "xpu"}
        roles = {name: _role(name, its, with_gpu) for name, its in graph.nodes(data="type")}
        ordered = sorted(roles, key=lambda name: roles[name])  # stable: within a role the graph's order stays
        ids = {name: number for number, name in enumerate(ordered)}
        if GPU not in roles.values():
            self._wrong("components", None, "must have GPUs: components whose choice is xpu")
            return ImportedTopology(empty(1, GPU_TYPES[0], bytearray()), [])
        sizes: dict[str, int] = {}
        for name, role in roles.items():
            if role == GPU:
                sizes[_server(name)] = sizes.get(_server(name), 0) + 1
        assumed: list[str] = []
        fabric = empty(
            max(sizes.values()), self._gpu_type(gpu_type, assumed), bytearray(roles[name] for name in ordered)
        )
        self._links(fabric, ids)
        return ImportedTopology(fabric, assumed)

    def _join(self) -> None:
        """Replace each port, NIC and the like by one link between the two nodes that it lies between."""
        graph = self._graph
        for name in [name for name, its in graph.nodes(data="type") if its not in ("xpu", "switch")]:
            ends = list(graph.neighbors(name))
            if len(ends) > 2:
                kind = graph.nodes[name]["type"]
                self._wrong(
                    name, kind, f"joins {len(ends)} others: only what lies between two GPUs or switches is read"
                )
            elif len(ends) == 2:
                one, other = (graph.edges[name, end] for end in ends)
                speeds = [each["bandwidth"] for each in (one, other) if "bandwidth" in each]
                joined = {"bandwidth": min(speeds, key=_gbps)} if speeds else {}
                waits = [_ns(each["latency"]) for each in (one, other) if "latency" in each]
                if waits:
                    joined["latency"] = f"{sum(waits):.12g} ns"
                graph.add_edge(*ends, **joined)
            if self._mistakes.mistakes:
                continue
            graph.remove_node(name)

    def _gpu_type(self, given: str | None, assumed: list[str]) -> str:
        if given is not None:
            return given
        for device in self._model.devices:
            for component in device.components:
                if component.choice == "xpu" and component.description in GPU_TYPES:
                    return str(component.description)
        assumed.append("the file names no known GPU type: H100 is assumed, -gt sets another")
        return "H100"

    def _links(self, fabric: Fabric, ids: dict[str, int]) -> None:
        """Each edge as a link, by GPU or switch, those to NVSwitches first: the order of SimAI's files."""
        kinds: dict[LinkText, int] = {}
        found = []
        for a, b, its in self._graph.edges(data=True):
            first, second = sorted((ids[a], ids[b]))
            text = self._text(a, b, its)
            if text is not None:
                found.append((first, second, text))
        for first, second, text in sorted(found):
            fabric.first.append(first)
            fabric.second.append(second)
            fabric.kinds.append(kinds.setdefault(text, len(kinds)))
        fabric.texts.extend(kinds)

    def _text(self, a: str, b: str, its: dict[str, Any]) -> LinkText | None:
        bandwidth, latency = its.get("bandwidth"), its.get("latency")
        if bandwidth is None or latency is None:
            missing = "bandwidth" if bandwidth is None else "latency"
            self._wrong(f"{a} to {b}", its.get("link"), f"must have a {missing}: the link's `physical` says none")
            return None
        try:
            gbps, wait = _gbps(bandwidth), _ns(latency)
        except (ValueError, KeyError):
            self._wrong(f"{a} to {b}", f"{bandwidth}, {latency}", "must be in Gbps or GBps, and in ms, us or ns")
            return None
        text = self._texts.get(str(its.get("link")))
        if text is not None and _agrees(text, gbps, wait):
            return text
        text = LinkText(f"{gbps:.12g}Gbps", f"{wait:.12g}ns", "0")
        try:
            options.link_bandwidth(text.bandwidth)
            options.link_latency(text.latency)
        except ValueError as error:
            self._wrong(f"{a} to {b}", f"{bandwidth}, {latency}", f"must be {error}")
        return text

    def _wrong(self, where: str, value: object, allowed: str) -> None:
        self._mistakes.add(f"{self._file}, {where}", value, allowed)
        if len(self._mistakes.mistakes) == MOST_MISTAKES:
            self._mistakes.check()


def _server(name: str) -> str:
    return ".".join(name.split(".")[:2])


def _role(name: str, kind: str, with_gpu: set[str]) -> int:
    if kind == "xpu":
        return GPU
    return NVSWITCH if _server(name) in with_gpu else SWITCH


def _described(model: Any) -> dict[str, LinkText]:
    """The texts of links that we described, by name."""
    found = {}
    for links in (model.links, *(device.links for device in model.devices)):
        for link in links or ():
            words = str(link.description or "").split()
            if len(words) == 3:
                found[str(link.name)] = LinkText(*words)
    return found


def _agrees(text: LinkText, gbps: float, wait: float) -> bool:
    """Whether a description says what the numbers say, in Gbps and ns."""
    try:
        described = units.bandwidth_bps(text.bandwidth) / 1e9, units.time_seconds(text.latency) * 1e9
    except ValueError:
        return False
    return all(abs(one - other) <= 1e-6 * max(one, other) for one, other in zip(described, (gbps, wait), strict=True))


def _gbps(text: str) -> float:
    """Gigabits per second of `400 Gbps` and `50 GBps`."""
    number, unit = text.split()
    return float(number) * {"Gbps": 1, "GBps": 8}[unit]


def _ns(text: str) -> float:
    """Nanoseconds of `0.5 us`."""
    number, unit = text.split()
    return float(number) * {"ms": 1e6, "us": 1e3, "ns": 1}[unit]
