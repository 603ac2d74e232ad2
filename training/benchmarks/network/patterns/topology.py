"""Reads the tiers of a fabric from a file: a table, a network of simulation/, ibnetdiscover's output, or Slurm's.

A tier's blocks are the hosts that hang together by switches up to a distance: hosts and leaf switches first, then with
the switches next to these, and so on until all hang together. NVSwitches come before leaf switches.
"""

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from pydantic import JsonValue, TypeAdapter

from common.shortening import few
from training.benchmarks.network.patterns import slurm_topology
from training.benchmarks.network.patterns.tiers import Tiers

_COLUMNS = ("host", "rack", "pod", "rail", "device", "kind")
_SIMULATION = re.compile(r"\s*\d+\s+\d+\s+\d+\s+\d+\s+\d+\s+\S+\s*")
_IB_NODE = re.compile(r'(?P<kind>Switch|Ca|Rt)\s+\d+\s+"(?P<id>[A-Z]-[0-9a-fA-F]+)"\s*#\s*"(?P<name>[^"]*)"')
_IB_PORT = re.compile(r'\[\d+\](?:\([0-9a-fA-F]+\))?\s+"(?P<id>[A-Z]-[0-9a-fA-F]+)"')
_SHOWN, _SWITCHES_SHOWN = 5, 3


class TopologyError(ValueError):
    """A topology file cannot be used; the message names the file, the line and what is wrong."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostWidth:
    """A host of the job: its own name and its number of ranks."""

    name: str
    ranks: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Topology:
    """The facts about the job's hosts: their tiers, the names of their NICs by (node rank, rail), and their kinds.

    Tiers of None are learnt from the measurements. A host's kind, by node rank, is such as "NVIDIA H100".
    """

    tiers: Tiers | None = None
    devices: Mapping[tuple[int, int], str] = field(default_factory=dict)
    kinds: Mapping[int, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, JsonValue]:
        """The facts as TRAIN_START records them, so that the findings can be derived again from the log alone."""
        devices: list[JsonValue] = [[rank, rail, name] for (rank, rail), name in self.devices.items()]
        kinds: dict[str, JsonValue] = {str(rank): kind for rank, kind in self.kinds.items()}
        tiers = None if self.tiers is None else _TIERS.dump_python(self.tiers, mode="json")
        return {"tiers": tiers, "devices": devices, "kinds": kinds}

    @classmethod
    def of_json(cls, record: Mapping[str, JsonValue]) -> "Topology":
        """The facts in a record that `to_json` made.

        Raises:
            pydantic.ValidationError: another record.
        """
        tiers = record.get("tiers")
        devices = _DEVICES.validate_python(record.get("devices"))
        return cls(
            tiers=None if tiers is None else _TIERS.validate_python(tiers),
            devices={(rank, rail): name for rank, rail, name in devices},
            kinds=_KINDS.validate_python(record.get("kinds")),
        )


_TIERS = TypeAdapter(Tiers)
_DEVICES = TypeAdapter(list[tuple[int, int, str]])
_KINDS = TypeAdapter(dict[int, str])
UNKNOWN = Topology()


@dataclass(slots=True)
class _Graph:
    """Switches next to each host, by the file's name of it, links between switches, and NICs of hosts in order."""

    near: dict[str, set[str]] = field(default_factory=dict)
    links: dict[str, set[str]] = field(default_factory=dict)
    devices: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    innermost: set[str] = field(default_factory=set)  # NVSwitches
    names: dict[str, str] = field(default_factory=dict)  # of switches that have another one than in `near`
    kinds: dict[str, str] = field(default_factory=dict)  # of hosts

    def link(self, one: str, other: str) -> None:
        self.links.setdefault(one, set()).add(other)
        self.links.setdefault(other, set()).add(one)


def read_topology(path: Path, hosts: Sequence[HostWidth]) -> Topology:
    """The topology in a file for the job's hosts in the order of their node ranks.

    Raises:
        TopologyError: the file cannot be read, has none of the forms, or lacks a host.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")  # a spreadsheet marks its CSV
    except (OSError, UnicodeDecodeError) as error:
        raise TopologyError(f"topology {path}: cannot be read: {error}") from error
    lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    first = next((line for _, line in lines if not line.lstrip().startswith("#")), "")
    if _SIMULATION.fullmatch(first):
        graph, names = _of_simulation(path, lines, hosts)
    else:
        read = _of_table if "host" in _fields(first) else _of_ibnetdiscover
        graph = (_of_slurm if slurm_topology.is_slurms(lines) else read)(path, lines)
        names = _matched(path, graph.near, hosts)
    source = f"topology {path.name}"
    devices = {
        (rank, rail): device for rank, name in enumerate(names) for rail, device in sorted(graph.devices.get(name, []))
    }
    kinds = {rank: graph.kinds[name] for rank, name in enumerate(names) if name in graph.kinds}
    tiers = _tiers(graph, names)
    blocks, labels = tuple(block for block, _ in tiers), tuple(label for _, label in tiers)
    return Topology(tiers=Tiers(blocks=blocks, source=source, names=labels), devices=devices, kinds=kinds)


def _fields(line: str) -> list[str]:
    row = next(csv.reader([line]), []) if "," in line else line.split()
    return [each.strip() for each in row]


def _of_table(path: Path, lines: Sequence[tuple[int, str]]) -> _Graph:
    """Columns host, rack, and if known pod, rail, device, kind; a host on several leaf switches has several rows."""
    rows = [(number, _fields(line)) for number, line in lines if not line.lstrip().startswith("#")]
    (first, header), *rows = rows
    unknown = [each for each in header if each not in _COLUMNS]
    if unknown or "rack" not in header:
        raise TopologyError(
            f"topology {path}, line {first}: columns {', '.join(header)}; allowed: host, rack and, if known,"
            f" {', '.join(_COLUMNS[2:])}"
        )
    graph = _Graph()
    for number, row in rows:
        if len(row) != len(header):
            raise TopologyError(f"topology {path}, line {number}: {len(row)} values in {len(header)} columns")
        values = dict(zip(header, row, strict=True))
        graph.near.setdefault(values["host"], set()).add(f"rack {values['rack']}")
        if values.get("pod"):
            graph.link(f"rack {values['rack']}", f"pod {values['pod']}")
        if values.get("kind") and graph.kinds.setdefault(values["host"], values["kind"]) != values["kind"]:
            raise TopologyError(
                f"topology {path}, line {number}: host {values['host']} is of kind {values['kind']}, and above of"
                f" {graph.kinds[values['host']]}; a host has one kind"
            )
        if values.get("device"):
            rail = values.get("rail") or "0"
            if not rail.isdecimal():
                raise TopologyError(f"topology {path}, line {number}: rail {rail!r}; allowed: 0, 1, 2, ...")
            graph.devices.setdefault(values["host"], []).append((int(rail), values["device"]))
    return graph


def _of_slurm(path: Path, lines: Sequence[tuple[int, str]]) -> _Graph:
    """Switches with their nodes and with the switches below them."""
    try:
        found = slurm_topology.switches(lines)
    except ValueError as error:
        raise TopologyError(f"topology {path}, {error}") from None
    graph = _Graph()
    for switch in found:
        for node in switch.nodes:
            graph.near.setdefault(node, set()).add(switch.name)
        for below in switch.below:
            graph.link(switch.name, below)
    return graph


def _of_ibnetdiscover(path: Path, lines: Sequence[tuple[int, str]]) -> _Graph:
    """Switches and channel adapters with their ports; an adapter's name begins with that of its host."""
    graph, adapters, ports = _Graph(), dict[str, tuple[str, str]](), list[tuple[str, str]]()
    own = ""
    for _, line in lines:
        if node := _IB_NODE.match(line):
            own, name = node["id"], node["name"].strip()
            host, _, device = name.partition(" ")
            if node["kind"] == "Switch" and name:
                graph.names[own] = name
            if node["kind"] == "Ca" and host:
                adapters[own] = host, device.strip()
        elif port := _IB_PORT.match(line):
            ports.append((own, port["id"]))
    if not adapters or not ports:
        raise TopologyError(
            f"topology {path}: neither a table with the columns host and rack, nor a network of simulation/,"
            " nor the output of ibnetdiscover, nor Slurm's topology.conf or `scontrol show topology`"
        )
    for one, other in chain.from_iterable((port, port[::-1]) for port in ports):
        if not other.startswith("S-"):
            continue
        if one in adapters:
            graph.near.setdefault(adapters[one][0], set()).add(other)
        if one.startswith("S-"):
            graph.link(one, other)
    graph.devices = _in_order(adapters.values())
    return graph


def _in_order(adapters: Iterable[tuple[str, str]]) -> dict[str, list[tuple[int, str]]]:
    """The devices of each host with their rails, which are the places of their names, from hosts and devices."""
    names: dict[str, list[str]] = {}
    for host, device in adapters:
        names.setdefault(host, []).append(device)
    return {host: list(enumerate(sorted(found, key=_natural))) for host, found in names.items()}


def _natural(name: str) -> list[tuple[int, str]]:
    """The order of names with numbers: mlx5_2 before mlx5_10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def _of_simulation(
    path: Path, lines: Sequence[tuple[int, str]], hosts: Sequence[HostWidth]
) -> tuple[_Graph, list[str]]:
    """GPUs and switches by number: the job's hosts are the GPUs in order, as many as they have ranks."""
    network = _network(path, lines)
    gpus, per_server = network.gpus, network.per_server
    ranks = sum(host.ranks for host in hosts)
    if ranks != gpus and -(-gpus // per_server) != len(hosts):
        raise TopologyError(
            f"topology {path}: {gpus} GPUs in {-(-gpus // per_server)} servers; the job has {ranks} ranks on"
            f" {len(hosts)} hosts: expected as many GPUs, or as many servers"
        )
    widths = [host.ranks for host in hosts] if ranks == gpus else [per_server] * len(hosts)
    names = [f"host {place}" for place in range(len(hosts))]
    host_of = [name for name, width in zip(names, widths, strict=True) for _ in range(width)]
    graph = _Graph(innermost=set(map(str, network.nv_switches)), near={name: set() for name in names})
    for one, other in network.links:
        if one >= gpus and other >= gpus:
            graph.link(str(one), str(other))
        else:
            gpu, switch = min(one, other), max(one, other)
            graph.near[host_of[gpu]].add(str(switch))
    return graph, names


@dataclass(frozen=True, kw_only=True, slots=True)
class _Network:
    """A network of simulation/ by the numbers of its nodes: GPUs first, `per_server` of them in a server."""

    gpus: int
    per_server: int
    nv_switches: Sequence[int]
    links: Sequence[tuple[int, int]]


def _network(path: Path, lines: Sequence[tuple[int, str]]) -> _Network:
    try:
        rows = [line.split() for _, line in lines if not line.lstrip().startswith("#")]
        nodes, per_server, nv_switches, switches, links = map(int, rows[0][:5])
        gpus = nodes - nv_switches - switches
        numbers = [int(each) for each in rows[1]] if nv_switches + switches else []
        pairs = [(int(row[0]), int(row[1])) for row in rows[len(rows) - links :]] if links else []
    except (ValueError, IndexError) as error:
        raise TopologyError(f"topology {path}: no network of simulation/: {error}") from error
    if gpus < 1 or per_server < 1 or any(not 0 <= each < nodes for pair in pairs for each in pair):
        raise TopologyError(f"topology {path}: {gpus} GPUs, {per_server} a server, links to nodes beyond {nodes}")
    return _Network(gpus=gpus, per_server=per_server, nv_switches=numbers[:nv_switches], links=pairs)


def _matched(path: Path, known: Iterable[str], hosts: Sequence[HostWidth]) -> list[str]:
    """The file's name of each host: the same, or the same up to the first dot."""
    short = {name.partition(".")[0]: name for name in known}
    names = [host.name if host.name in known else short.get(host.name.partition(".")[0], "") for host in hosts]
    missing = [host.name for host, name in zip(hosts, names, strict=True) if not name]
    if missing:
        lacks, there = few(missing, _SHOWN), few(sorted(short), _SHOWN)
        raise TopologyError(f"topology {path}: lacks {lacks}; it has {there}")
    return names


def _tiers(graph: _Graph, names: Sequence[str]) -> list[tuple[dict[int, int], dict[int, str]]]:
    """Blocks and their names of each tier in which the hosts do not all hang together yet, without repetitions."""
    joined = _Union()
    found: list[tuple[dict[int, int], dict[int, str]]] = []
    seen = set(graph.innermost)
    for name in names:
        for switch in graph.near[name] & graph.innermost:
            joined.join(name, switch)
    ring = {switch for name in names for switch in graph.near[name]} - seen
    _add(found, joined, names, {switch: graph.names.get(switch, switch) for switch in seen})
    for name in names:
        for switch in graph.near[name] & ring:
            joined.join(name, switch)
    while ring:
        seen |= ring
        _add(found, joined, names, {switch: graph.names.get(switch, switch) for switch in ring})
        following = {other for switch in ring for other in graph.links.get(switch, ())} - seen
        for switch in following:
            for other in graph.links[switch] & (seen | following):
                joined.join(switch, other)
        ring = following
    return found


def _add(
    found: list[tuple[dict[int, int], dict[int, str]]],
    joined: "_Union",
    names: Sequence[str],
    switches: Mapping[str, str],
) -> None:
    """Append the blocks, unless each host is one, all are one, or they are those of the tier before.

    A block has the names of those of the `switches` that hold it together; they are named by what the graph calls them.
    """
    numbers: dict[str, int] = {}
    block = {rank: numbers.setdefault(joined.root(name), len(numbers)) for rank, name in enumerate(names)}
    if not 1 < len(numbers) < len(names) or (found and found[-1][0] == block):
        return
    own: dict[int, list[str]] = {}
    for switch in sorted(switches, key=_natural):
        if (number := numbers.get(joined.root(switch))) is not None:
            own.setdefault(number, []).append(switches[switch])
    found.append((block, {number: _label(each) for number, each in own.items()}))


def _label(switches: Sequence[str]) -> str:
    """The name of a block: "rack leaf0" of a table, else its switches."""
    shown = few(switches, _SWITCHES_SHOWN)
    is_named = switches[0].startswith(("rack ", "pod "))
    return shown if is_named else f"switch{'es' * (len(switches) > 1)} {shown}"


class _Union:
    """Sets of names that grow together."""

    def __init__(self) -> None:
        self._above: dict[str, str] = {}

    def root(self, name: str) -> str:
        above = self._above.get(name, name)
        while above != self._above.get(above, above):
            above = self._above[above]
        self._above[name] = above
        return above

    def join(self, one: str, other: str) -> None:
        self._above[self.root(one)] = self.root(other)
