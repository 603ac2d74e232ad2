"""Reads Slurm's switches or blocks from its topology.conf, or from what `scontrol show topology` prints.

A line is a switch with its nodes, or with the switches below it; `scontrol` repeats their nodes, which count once. A
block of topology/block is a switch of its nodes. Names stand as host lists: "tux[0-3,12],gpu[008-011]".

Source: Slurm's manual page topology.conf(5), and Slurm 22.05, whose `scontrol show hostnames` expands lists alike.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

_SWITCH = re.compile(r"\s*(?:switch|block)name\s*=", re.IGNORECASE)
_FIELD = re.compile(r"([A-Za-z]+)\s*=\s*(\S+)")
_PART = re.compile(r"[^\[\],]+|\[([^\[\]]*)\]")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_MOST_NAMES = 1 << 17


@dataclass(frozen=True, kw_only=True, slots=True)
class Switch:
    """A switch or block: its nodes, or the switches below it."""

    name: str
    nodes: tuple[str, ...] = ()
    below: tuple[str, ...] = ()


def is_slurms(lines: Sequence[tuple[int, str]]) -> bool:
    """Whether some line, each after its number, names a switch or block as Slurm does."""
    return any(_SWITCH.match(line) for _, line in lines)


def switches(lines: Sequence[tuple[int, str]]) -> list[Switch]:
    """The switches in lines of text, each after its number; other lines, such as BlockSizes, say nothing of hosts.

    Raises:
        ValueError: a switch has neither nodes nor switches, or switches that are not there, or a list is none; the
            message names the line.
    """
    found: dict[str, Switch] = {}
    of_line: dict[str, int] = {}
    for number, line in _whole(lines):
        if not _SWITCH.match(line):
            continue
        try:
            fields = {key.lower(): value for key, value in _FIELD.findall(line)}
            nodes, below = (expanded(fields.get(key, "")) for key in ("nodes", "switches"))
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
        if not nodes and not below:
            raise ValueError(f"line {number}: a switch without Nodes= or Switches=")
        name = fields.get("switchname") or fields.get("blockname", "")
        found[name] = Switch(name=name, nodes=() if below else tuple(nodes), below=tuple(below))
        of_line[name] = number
    for name, each in found.items():
        if missing := [child for child in each.below if child not in found]:
            raise ValueError(f"line {of_line[name]}: switch {name} has {missing[0]} below it, which is no switch here")
    return [*found.values()]


def _whole(lines: Sequence[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """The lines without comments; one that ends with a backslash goes on in the next, and has its first number."""
    begun: tuple[int, str] | None = None
    for number, line in lines:
        text = line.partition("#")[0].rstrip()
        first, before = begun or (number, "")
        begun = (first, before + text.removesuffix("\\"))
        if not text.endswith("\\"):
            yield begun
            begun = None
    if begun is not None:
        yield begun


def expanded(text: str) -> list[str]:
    """The names in a host list, in its order: "n[08-10,12],m" is n08, n09, n10, n12, m.

    Raises:
        ValueError: the text is no host list, or one of very many names.
    """
    found: list[str] = []
    for item in filter(None, re.split(r",(?![^\[]*\])", text)):
        parts = [*_PART.finditer(item)]
        if "".join(part[0] for part in parts) != item:
            raise ValueError(f"{item!r} is no host list")
        choices = [[part[0]] if part[1] is None else [*_numbers(part[1], item)] for part in parts]
        size = 1
        for each in choices:
            size *= len(each)
        if len(found) + size > _MOST_NAMES:
            raise ValueError(f"{text[:60]!r} has more than {_MOST_NAMES} names")
        found += map("".join, product(*choices))
    return found


def _numbers(text: str, item: str) -> Iterator[str]:
    """The numbers of a list such as 1-3,08-10, which keep the digits of their first."""
    for each in text.split(","):
        match = _RANGE.fullmatch(each)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if match is None or not first <= last or last - first >= _MOST_NAMES:
            raise ValueError(f"{item!r} is no host list: [{text}]")
        yield from (f"{number:0{len(match[1])}d}" for number in range(first, last + 1))
