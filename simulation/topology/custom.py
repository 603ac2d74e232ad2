"""Builds the network that a user's description says: nodes of all groups, then links by pattern."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from common.errors import MistakeList
from simulation.topology import custom_schema, options
from simulation.topology.custom_schema import Connection, CustomCluster, Section
from simulation.topology.fabric import GPU, NVSWITCH, SWITCH, Fabric, empty
from simulation.topology.shape import LinkText
from simulation.topology.whatif import scaled

SELECTION = re.compile(r"(?P<name>[\w.-]+?)(\[(?P<first>\d*):(?P<last>\d*)\])?")
MOST_NODES, MOST_LINKS = 5_000_000, 5_000_000  # each takes some 200 bytes of memory while it is built


DIRECT = ("all", "cycle")  # patterns between servers: a torus, a mesh


class _Part(NamedTuple):
    """The part that a name selects: servers as lists of their GPUs, or switches as lists of one node."""

    is_server: bool
    items: list[list[int]]


_Scope = dict[str, _Part]


def build(path: Path) -> Fabric:
    """The network of a description.

    Raises:
        InputProblems: every mistake of the file.
        SimulationError: PyYAML is not installed.
    """
    cluster = custom_schema.load(path)
    mistakes = MistakeList()
    builder = _Builder(cluster, str(path), mistakes)
    mistakes.check()
    builder.instance(cluster.section)
    mistakes.check()
    return builder.fabric()


def _totals(section: Section) -> tuple[int, int, int]:
    """GPUs, NVSwitches and switches of all instances of a section."""
    own = [
        sum(each.instances * each.gpus for each in section.servers),
        sum(each.instances * each.nvswitches for each in section.servers),
        sum(section.switches.values()),
    ]
    for group in section.groups.values():
        own = [a + b for a, b in zip(own, _totals(group), strict=True)]
    gpus, nvswitches, switches = (section.instances * number for number in own)
    return gpus, nvswitches, switches


class _Builder:
    """Hands out node ids (GPUs, then NVSwitches, then switches, each in order of the file) and collects links."""

    def __init__(self, cluster: CustomCluster, file: str, mistakes: MistakeList) -> None:
        gpus, nvswitches, switches = _totals(cluster.section)
        self._cluster, self._file, self._mistakes = cluster, file, mistakes
        self._next = [0, gpus, gpus + nvswitches]
        self._counts = (gpus, nvswitches, switches)
        self._largest = 0
        # By GPU or switch, its NVSwitch links first: the order of SimAI's files.
        self._links: list[tuple[int, int, LinkText]] = []
        if sum(self._counts) > MOST_NODES:
            mistakes.add(file, f"{sum(self._counts)} nodes", f"at most {MOST_NODES} are built")

    def fabric(self) -> Fabric:
        """The network; links between the same two nodes stay apart."""
        gpus, nvswitches, switches = self._counts
        roles = bytearray([GPU]) * gpus + bytearray([NVSWITCH]) * nvswitches + bytearray([SWITCH]) * switches
        fabric = empty(self._largest, self._cluster.gpu_type, roles)
        kinds: dict[LinkText, int] = {}
        for a, b, text in sorted(self._links, key=lambda link: (link[0], link[1] >= gpus + nvswitches)):
            fabric.first.append(a)
            fabric.second.append(b)
            fabric.kinds.append(kinds.setdefault(text, len(kinds)))
        fabric.texts.extend(kinds)
        return fabric

    def instance(self, section: Section) -> _Scope:
        """Make one instance of a section and all in it; returns what its names select."""
        scope: _Scope = {}
        for name, group in section.groups.items():
            for _ in range(group.instances):
                for inner, part in self.instance(group).items():
                    selected = scope.setdefault(f"{name}.{inner}", _Part(part.is_server, []))
                    selected.items.extend(part.items)
        for server in section.servers:
            scope[server.name] = _Part(True, [self._server(server) for _ in range(server.instances)])
        for name, number in section.switches.items():
            scope[name] = _Part(False, [[self._new(SWITCH)] for _ in range(number)])
        for connection in section.connections:
            self._connect(connection, scope)
        return scope

    def _new(self, role: int) -> int:
        node = self._next[role]
        self._next[role] += 1
        return node

    def _server(self, server: custom_schema.ServerClass) -> list[int]:
        gpus = [self._new(GPU) for _ in range(server.gpus)]
        self._largest = max(self._largest, server.gpus)
        self._check_number(server.gpus * server.nvswitches, "servers")
        for _ in range(server.nvswitches):
            nvswitch = self._new(NVSWITCH)
            self._links += [(gpu, nvswitch, self._cluster.links[server.nvlink]) for gpu in gpus]
        return gpus

    def _connect(self, connection: Connection, scope: _Scope) -> None:
        source = self._select(connection.source, scope, f"{connection.where}.from")
        target = self._select(connection.target, scope, f"{connection.where}.to")
        if source is None or target is None:
            return
        if target.is_server and not source.is_server:
            self._wrong(f"{connection.where}.to", connection.target, "must be switches, or servers where from has some")
            return
        if target.is_server and connection.pattern not in DIRECT:
            self._wrong(
                f"{connection.where}.by", connection.pattern, f"from servers to servers is {' or '.join(DIRECT)}"
            )
            return
        if connection.pattern == "rail" and not source.is_server:
            self._wrong(f"{connection.where}.by", "rail", "is for servers: their GPUs are the rails")
            return
        ends = sum(map(len, target.items)) if connection.pattern == "all" else 1
        self._check_number(ends * sum(map(len, source.items)), connection.where)
        text = self._text(connection)
        if target.is_server:
            pairs = _direct_pairs(connection.pattern, source, target)
        else:
            pairs = _pairs(connection.pattern, source, [item[0] for item in target.items])
        for a, b in pairs:
            if a == b:
                self._wrong(f"{connection.where}.to", connection.target, "links a node to itself")
                return
            self._links.append((a, b, text))

    def _text(self, connection: Connection) -> LinkText:
        """A connection's link, of the sum of the bandwidths of parallel ones."""
        text = self._cluster.links[connection.link]
        if connection.parallel > 1:
            text = text._replace(bandwidth=scaled(text.bandwidth, connection.parallel))
            try:
                options.link_bandwidth(text.bandwidth)
            except ValueError as error:
                self._wrong(f"{connection.where}.count", str(connection.parallel), f"must be few: {error}")
        return text

    def _select(self, text: str, scope: _Scope, where: str) -> _Part | None:
        match = SELECTION.fullmatch(text)
        part = scope.get(match["name"]) if match else None
        if match is None or part is None:
            self._wrong(
                where, text, f"must be one of {', '.join(scope) or 'nothing here'}, or a part such as leaf[0:4]"
            )
            return None
        first, last = match["first"] or "0", match["last"] or str(len(part.items))
        chosen = part.items[int(first) : int(last)]
        if not chosen or int(last) > len(part.items):
            self._wrong(where, text, f"selects from 0:{len(part.items)}, at least one of them")
            return None
        return _Part(part.is_server, chosen)

    def _check_number(self, more: int, where: str) -> None:
        """Build no more links than memory has room for."""
        if len(self._links) + more > MOST_LINKS:
            self._wrong(where, f"{len(self._links) + more} links", f"at most {MOST_LINKS} are built")
            self._mistakes.check()

    def _wrong(self, where: str, value: str, allowed: str) -> None:
        """Note a mistake once, though a group may be there many times."""
        place = f"{self._file}, {where} {value}"
        if all(each.file != place for each in self._mistakes.mistakes):
            self._mistakes.add(place, None, allowed)


def _direct_pairs(pattern: str, source: _Part, target: _Part) -> Iterator[tuple[int, int]]:
    """Links between GPUs: each with each, or GPU i of each server with GPU i of the target's servers in turn."""
    for number, item in enumerate(source.items):
        if pattern == "all":
            yield from ((gpu, other) for gpu in item for others in target.items for other in others)
        else:
            yield from zip(item, target.items[number % len(target.items)], strict=False)


def _pairs(pattern: str, source: _Part, target: list[int]) -> Iterator[tuple[int, int]]:
    """The links of a pattern: everything to everything, by position in the server, in blocks, or in turn."""
    for number, item in enumerate(source.items):
        for position, node in enumerate(item):
            if pattern == "all":
                yield from ((node, other) for other in target)
            elif pattern == "rail":
                yield node, target[position % len(target)]
            elif pattern == "block":
                yield node, target[number * len(target) // len(source.items)]
            else:
                yield node, target[number % len(target)]
