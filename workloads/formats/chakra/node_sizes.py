"""Takes a node apart: kind, attributes, and the bytes of the full tensor, where comm_size may be one rank's share."""

from collections.abc import Mapping
from math import inf
from types import ModuleType
from typing import Any

GATHERS = frozenset({"ALL_GATHER", "GATHER"})
"""Collectives whose comm_size is what one rank gives: Chakra's converter counts a call's inputs, and ASTRA-sim's Ring
takes n times that for the result. All others have the whole buffer, as a row's msg_size has."""
OPERATION, GROUP, RANKS, SIZE = "clusterdyno_type", "pg_desc", "ranks", "comm_size"
WHOLE = "msg_size"
"""Attribute of our own nodes: the bytes of the row, where comm_size is one rank's share of them."""


def kind_of(node: Any, schema: ModuleType) -> str:
    """The name of a node's type; of one that the schema does not have, its number."""
    return schema.NodeType.Name(node.type) if node.type in schema.NodeType.values() else str(node.type)


def collective_of(attributes: Mapping[str, object], schema: ModuleType) -> tuple[str, object]:
    """The name of a node's collective, empty if the schema does not have it, and its number."""
    number = attributes.get("comm_type", -1)
    known = schema.CollectiveCommType
    return (known.Name(number) if number in known.values() else ""), number


def attributes_of(node: Any) -> dict[str, Any]:
    """A node's attributes by name, lists as tuples."""
    found = {}
    for each in node.attr:
        field = each.WhichOneof("value") or ""
        value: Any = getattr(each, field) if field else None
        found[each.name] = tuple(value.values) if field.endswith("_list") else value
    return found


def plain(name: str) -> str:
    """A node's name as one line of printable text."""
    return "".join(letter if letter.isprintable() else " " for letter in name)


def whole_size(attributes: Mapping[str, object], collective: str, ranks: int | None) -> int | float:
    """Bytes of the full tensor of a communication node, as a row's msg_size has them. ranks: of its group, if known.

    Raises:
        ValueError: the size is none, or is a share of a group that nobody knows.
    """
    size = attributes.get(SIZE, 0)
    if isinstance(size, bool) or not isinstance(size, int | float) or not 0 <= size < inf:
        raise ValueError(f"{SIZE} is {size!r}, not a number from 0 on")
    if OPERATION in attributes:
        whole = attributes.get(WHOLE, size)
        if not isinstance(whole, int | float):
            raise ValueError(f"{WHOLE} is {whole!r}, not a number")
        return whole
    if collective not in GATHERS or not size:
        return size
    if ranks is None:
        raise ValueError(
            f"the {SIZE} of {collective} is one rank's share, and nothing says how many ranks its group has: "
            "--comm_groups names groups, --world_size says it of one without a name"
        )
    return size * ranks
