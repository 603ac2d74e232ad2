"""Reads SimAI's topology text; mistakes name the line, and what merely does not fit together is told as an oddity."""

import warnings
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from common.errors import InputNote, MistakeList, input_problem
from common.progress import watched
from common.shortening import few
from common.units import time_seconds
from simulation.topology.fabric import NVSWITCH, SWITCH, Fabric, empty
from simulation.topology.options import error_rate, link_bandwidth, link_latency
from simulation.topology.shape import LinkText

MOST_MISTAKES = 20
MOST_NODES = 1 << 24
MOST_KINDS = 1 << 20
LONG_S, MOST_NAMED = 1e-3, 3  # a link of a millisecond is 200 km of fibre
_LONGEST = 1000  # characters of a line but the second one
_LONGEST_ID = 20  # with the blanks between two
HEADER = "nodes, GPUs per server, NVSwitches, other switches, links (whole numbers) and the GPU type"


class ReadTopology(NamedTuple):
    """A file's network, where the file does not say what it has, and how many links its first line promises."""

    fabric: Fabric
    oddities: list[str]
    promised: int


class _Head(NamedTuple):
    nodes: int
    per_server: int
    nvswitches: int
    switches: int
    links: int
    gpu_type: str


def read(path: Path, *, noting: bool = True) -> ReadTopology:
    """The network of a file. An InputNote names links that are so long that their latency is probably a mistake, but
    for a caller that tells it itself (`noting`).

    Raises:
        InputProblems: the file is not there, or has not the form.
    """
    try:
        with path.open(encoding="ascii") as file:
            head = _head(path, file.readline(_LONGEST))
            longest = _LONGEST + _LONGEST_ID * (head.nvswitches + head.switches)
            mistakes, roles, oddities = MistakeList(), bytearray(head.nodes), list[str]()
            with mistakes.noted():
                roles, oddities = _roles(path, head, file.readline(longest))
            fabric = empty(head.per_server, head.gpu_type, roles)
            _links(path, iter(partial(file.readline, _LONGEST), ""), head.links, fabric, mistakes)
    except OSError as error:
        raise input_problem(str(path), None, error.strerror or "cannot be read") from error
    except UnicodeDecodeError as error:
        raise input_problem(str(path), None, "is no topology file: it has bytes that are no text") from error
    if len(fabric.kinds) != head.links:
        oddities.append(f"the header promises {head.links} links, the file has {len(fabric.kinds)}")
    for long in long_links(fabric) if noting else ():
        warnings.warn(InputNote(f"{path}: {long}"), stacklevel=2)
    return ReadTopology(fabric, oddities, head.links)


def long_links(fabric: Fabric) -> list[str]:
    """A sentence on links whose latency is that of a way between cities, if there are any."""
    found = [f"`{text}`" for text in fabric.texts if time_seconds(text.latency) >= LONG_S]
    long = few(found, MOST_NAMED) + " kinds" * (len(found) > MOST_NAMED)
    return [f"links {long} have a latency of a millisecond or more, as 200 km of fibre"] if found else []


def _head(path: Path, line: str) -> _Head:
    words = line.split()
    try:
        nodes, per_server, nvswitches, switches, links = map(int, words[:5])
        if len(words) != 6 or min(nodes, per_server, nvswitches, switches, links) < 0:
            raise ValueError
    except ValueError:
        raise input_problem(f"{path}, line 1", f"'{' '.join(words)[:80]}'", f"must be {HEADER}") from None
    if nodes > MOST_NODES:
        raise input_problem(f"{path}, line 1", f"{nodes} nodes", f"must be at most {MOST_NODES}")
    if nodes - nvswitches - switches < 1:
        raise input_problem(f"{path}, line 1", f"{nodes} nodes", "must be more than the switches, which are listed too")
    return _Head(nodes, per_server, nvswitches, switches, links, words[5])


def _roles(path: Path, head: _Head, line: str) -> tuple[bytearray, list[str]]:
    """The second line names the NVSwitches first, then the other switches; whoever it does not name is a GPU."""
    try:
        switches = [int(word) for word in line.split()]
    except ValueError:
        raise input_problem(f"{path}, line 2", None, "must be the ids of the switches, separated by blanks") from None
    wanted = head.nvswitches + head.switches
    if len(switches) != wanted or len(set(switches)) != wanted:
        allowed = f"must name the {wanted} switches of line 1, each once"
        raise input_problem(f"{path}, line 2", f"names {len(set(switches))}", allowed)
    if switches and not (min(switches) >= 0 and max(switches) < head.nodes):
        raise input_problem(f"{path}, line 2", None, f"must be ids from 0 to {head.nodes - 1}")
    roles = bytearray(head.nodes)
    for number, node in enumerate(switches):
        roles[node] = NVSWITCH if number < head.nvswitches else SWITCH
    in_order = switches == sorted(switches) and switches == [*range(head.nodes - wanted, head.nodes)]
    return roles, [] if in_order else ["the switches' ids do not follow those of the GPUs"]


def _links(path: Path, lines: Iterable[str], expected: int, fabric: Fabric, mistakes: MistakeList) -> None:
    known: dict[str, int] = {}
    numbers: dict[LinkText, int] = {}
    first, second, kinds = fabric.first, fabric.second, fabric.kinds
    nodes = len(fabric.roles)
    for number, line in enumerate(watched("links read", expected, lines), 3):
        try:
            a_text, b_text, text = line.split(maxsplit=2)
            a, b = int(a_text), int(b_text)
            if not (0 <= a < nodes and 0 <= b < nodes) or a == b:
                raise ValueError(f"two different ids from 0 to {nodes - 1}")
            kind = known.get(text)
            if kind is None:
                if len(known) == MOST_KINDS:
                    where = f"{path}, line {number}"
                    raise input_problem(where, None, f"has another link: at most {MOST_KINDS} kinds are read")
                kind = known[text] = numbers.setdefault(_link(text), len(numbers))
        except ValueError as error:
            if line.strip():
                _note(f"{path}, line {number}", line, str(error), mistakes)
            continue
        first.append(a)
        second.append(b)
        kinds.append(kind)
    mistakes.check()
    fabric.texts.extend(numbers)


def _note(where: str, line: str, reason: str, mistakes: MistakeList) -> None:
    """Note a link's mistake; after MOST_MISTAKES of them, report those, and that reading ended there."""
    form = "two ids, bandwidth, latency and error rate, such as `0 8 400Gbps 0.0005ms 0`"
    allowed = reason if reason.startswith(("two different", "a ")) else form
    mistakes.add(where, f"'{line.rstrip()[:80]}'", f"must be {allowed}")
    if len(mistakes.mistakes) == MOST_MISTAKES:
        mistakes.add(where, None, "is as far as the file was read: mend these lines first")
        mistakes.check()


def _link(text: str) -> LinkText:
    """The values behind the two ids of a link."""
    bandwidth, latency, rate = text.split()
    link_bandwidth(bandwidth)
    link_latency(latency)
    error_rate(rate)
    return LinkText(bandwidth, latency, rate)
