"""Reads a user's own description of a cluster from YAML and reports every mistake with its place."""

from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from common.errors import MistakeList, input_problem
from common.yaml_file import file_text, parsed_yaml
from simulation.topology import options
from simulation.topology.shape import LinkText

PATTERNS = ("all", "rail", "block", "cycle")
SECTION_KEYS = ("servers", "switches", "groups", "connect")
SERVER_KEYS = ("name", "count", "gpus", "nvswitches", "nvlink")
CONNECTION_KEYS = ("from", "to", "by", "link", "count")
LINK_KEYS = ("bandwidth", "latency", "error_rate")


class ServerClass(NamedTuple):
    """Servers of one kind: each has `gpus`, and every GPU a link `nvlink` to each of its `nvswitches`."""

    name: str
    instances: int
    gpus: int
    nvswitches: int
    nvlink: str


class Connection(NamedTuple):
    """Links between two selections by a pattern; `parallel` ones are a link of the sum of their bandwidths."""

    source: str
    target: str
    pattern: str
    link: str
    parallel: int
    where: str


class Section(NamedTuple):
    """The cluster, or a group that is there `instances` times: servers, switches, groups in it, and connections."""

    instances: int
    servers: list[ServerClass]
    switches: dict[str, int]
    groups: "dict[str, Section]"
    connections: list[Connection]


class CustomCluster(NamedTuple):
    """A whole description."""

    gpu_type: str
    links: dict[str, LinkText]
    section: Section


def load(path: Path) -> CustomCluster:
    """Read and check a file.

    Raises:
        InputProblems: every mistake in it, or it is no YAML.
        SimulationError: PyYAML is not installed.
    """
    mistakes = MistakeList()
    checker = _Checker(str(path), mistakes)
    data = parsed_yaml(file_text(path, "--from"), path, "--from")
    try:
        cluster = checker.cluster(data)
    except RecursionError:
        raise input_problem(str(path), None, "has groups in itself") from None
    mistakes.check()
    return cluster


class _Checker:
    """Turns what YAML gave into the description, noting mistakes and going on."""

    def __init__(self, file: str, mistakes: MistakeList) -> None:
        self._file, self._mistakes = file, mistakes
        self._links: dict[str, LinkText] = {}

    def cluster(self, data: object) -> CustomCluster:
        """The whole file."""
        mapping = self._mapping(data, "", ("gpu_type", "links", *SECTION_KEYS))
        gpu_type = self._formed(mapping.get("gpu_type", "H100"), "gpu_type", options.gpu_type)
        links = mapping.get("links")
        if not isinstance(links, dict) or not links:
            self._wrong("links", links, "must name at least one kind of link with bandwidth and latency")
            links = {}
        for name, link in links.items():
            self._links[str(name)] = self._link(link, f"links.{name}")
        section = self._section({key: mapping[key] for key in SECTION_KEYS if key in mapping}, "", 1)
        if not _gpus(section):
            self._wrong("servers", None, "there must be at least one server with a GPU")
        return CustomCluster(gpu_type, self._links, section)

    def _section(self, mapping: Mapping[str, object], where: str, count: int) -> Section:
        prefix = f"{where}." if where else ""
        servers = [
            self._server(item, f"{prefix}servers[{number}]")
            for number, item in enumerate(self._list(mapping.get("servers", []), f"{prefix}servers"))
        ]
        switches = {
            str(name): self._whole(number, f"{prefix}switches.{name}")
            for name, number in self._mapping(mapping.get("switches", {}), f"{prefix}switches").items()
        }
        groups = {}
        for name, item in self._mapping(mapping.get("groups", {}), f"{prefix}groups").items():
            place = f"{prefix}groups.{name}"
            group = self._mapping(item, place, ("count", *SECTION_KEYS))
            groups[str(name)] = self._section(group, place, self._whole(group.get("count", 1), f"{place}.count"))
        connections = [
            self._connection(item, f"{prefix}connect[{number}]")
            for number, item in enumerate(self._list(mapping.get("connect", []), f"{prefix}connect"))
        ]
        self._check_names([server.name for server in servers], switches, groups, where)
        return Section(count, servers, switches, groups, connections)

    def _server(self, data: object, where: str) -> ServerClass:
        mapping = self._mapping(data, where, SERVER_KEYS)
        nvswitches = self._whole(mapping.get("nvswitches", 1), f"{where}.nvswitches", least=0)
        nvlink = str(mapping.get("nvlink", "nvlink"))
        if nvswitches:
            self._known_link(nvlink, f"{where}.nvlink")
        return ServerClass(
            str(mapping.get("name", "servers")),
            self._whole(mapping.get("count", 1), f"{where}.count"),
            self._whole(mapping.get("gpus"), f"{where}.gpus"),
            nvswitches,
            nvlink,
        )

    def _connection(self, data: object, where: str) -> Connection:
        mapping = self._mapping(data, where, CONNECTION_KEYS)
        for key in ("from", "to", "link"):
            if key not in mapping:
                self._wrong(f"{where}.{key}", None, "is missing")
        pattern = mapping.get("by", "all")
        if pattern not in PATTERNS:
            self._wrong(f"{where}.by", pattern, f"must be one of {', '.join(PATTERNS)}")
        link = str(mapping.get("link"))
        if "link" in mapping:
            self._known_link(link, f"{where}.link")
        count = self._whole(mapping.get("count", 1), f"{where}.count")
        return Connection(str(mapping.get("from")), str(mapping.get("to")), str(pattern), link, count, where)

    def _link(self, data: object, where: str) -> LinkText:
        mapping = self._mapping(data, where, LINK_KEYS)
        for key in ("bandwidth", "latency"):
            if key not in mapping:
                self._wrong(f"{where}.{key}", None, "is missing")
        return LinkText(
            self._formed(mapping.get("bandwidth", "1bps"), f"{where}.bandwidth", options.link_bandwidth),
            self._formed(mapping.get("latency", "0s"), f"{where}.latency", options.link_latency),
            self._formed(mapping.get("error_rate", 0), f"{where}.error_rate", options.error_rate),
        )

    def _check_names(
        self, servers: Sequence[str], switches: Collection[str], groups: Collection[str], where: str
    ) -> None:
        names = [*servers, *switches, *groups]
        for name in dict.fromkeys(names):
            if names.count(name) > 1:
                self._wrong(where or "the cluster", name, "names more than one thing: give each a name of its own")
            if not name.replace("_", "").replace("-", "").isalnum():
                self._wrong(where or "the cluster", name, "must be a name of letters, digits, - and _")

    def _known_link(self, name: str, where: str) -> None:
        if name not in self._links:
            self._wrong(where, name, f"must be one of links: {', '.join(self._links) or 'there are none'}")

    def _formed(self, value: object, where: str, form: Callable[[str], object]) -> str:
        text = str(value)
        try:
            form(text)
            if any(map(str.isspace, text)):
                raise ValueError("a value without blanks")
        except ValueError as error:
            self._wrong(where, text, f"must be {error}")
        return text

    def _whole(self, value: object, where: str, least: int = 1) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and value >= least:
            return value
        self._wrong(where, value, f"must be a whole number of at least {least}")
        return least

    def _list(self, value: object, where: str) -> list[object]:
        if isinstance(value, list):
            return value
        self._wrong(where, value, "must be a list")
        return []

    def _mapping(self, value: object, where: str, allowed: Sequence[str] = ()) -> dict[str, object]:
        if not isinstance(value, dict):
            self._wrong(where or "the file", value, f"must have keys{': ' if allowed else ''}{', '.join(allowed)}")
            return {}
        for key in value if allowed else ():
            if key not in allowed:
                near = get_close_matches(str(key), allowed, 1)
                self._wrong(
                    where or "the file", key, f"did you mean {near[0]}?" if near else f"allowed: {', '.join(allowed)}"
                )
        return value

    def _wrong(self, where: str, value: object, allowed: str) -> None:
        self._mistakes.add(f"{self._file}, {where}", None if value is None else repr(value)[:80], allowed)


def _gpus(section: Section) -> int:
    own = sum(server.instances * server.gpus for server in section.servers)
    return section.instances * (own + sum(map(_gpus, section.groups.values())))
