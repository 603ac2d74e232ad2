"""Reads an execution trace as rows, from this package or from any other tool of Chakra's.

Our own nodes have each field of their row as an attribute. Of a foreign node type, size, group, ends and duration are
read, and what waits for it: the first node that depends on it. A file is read within bounds: it may be hostile.
"""

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from workloads.formats.chakra import node_sizes
from workloads.formats.chakra.messages import BrokenTraceError, nodes, unpacked
from workloads.formats.chakra.schema import MEASURED, NUMBERS, SPLITS, TEXTS, TYPES
from workloads.job.errors import WorkloadFileError
from workloads.rows.ops import EPOCH_END, NEVER, CommGroup, CommType, GemmShape, LogItem
from workloads.rows.ranks import Ranks

if TYPE_CHECKING:
    from chakra.schema.protobuf.et_def_pb2 import Node

_Taken = TypeVar("_Taken")
_REFUSALS = (ValueError, KeyError, TypeError, SyntaxError, RecursionError, MemoryError, OverflowError)
LONGEST_SHAPES = 1000
SENT = {"COMM_SEND_NODE": CommType.isend, "COMM_RECV_NODE": CommType.irecv}


@dataclass(frozen=True, slots=True)
class ReadTrace:
    """Rows in the order of the file; skipped: names of kinds of nodes that are no rows; own: whether we wrote it."""

    rows: list[LogItem]
    skipped: tuple[str, ...]
    own: bool


def read(path: Path, communicators: Mapping[str, Ranks], schema: ModuleType) -> ReadTrace:
    """The rows of a trace. A foreign one becomes one iteration after an empty set-up.

    Raises:
        WorkloadFileError: the file is no trace, or a node in it is no row; the message names it.
    """
    rows: list[LogItem] = []
    places: dict[int, int] = {}
    waits: dict[int, int] = {}
    skipped: set[str] = set()
    own = True

    def made(node: "Node", attributes: dict[str, Any]) -> LogItem | None:
        nonlocal own
        mine = node_sizes.OPERATION in attributes
        own = own and mine
        return _own_row(node, attributes) if mine else _foreign_row(node, attributes, communicators, schema)

    for node, item in each_node(path, schema, made):
        for dependency in (*node.data_deps, *node.ctrl_deps):
            if dependency in places:
                waits.setdefault(places[dependency], len(rows))
        if item is None:
            skipped.add(node_sizes.kind_of(node, schema))
            continue
        places[node.id] = len(rows)
        rows.append(item)
    if not rows:
        raise WorkloadFileError(path, None, "has no node that computes or communicates")
    if own:
        return ReadTrace(rows, (), own=True)
    rows = [
        replace(row, overlap=waits[place] - place - 1 if place in waits else NEVER) if row.is_communication else row
        for place, row in enumerate(rows)
    ]
    return ReadTrace([EPOCH_END, *rows, EPOCH_END], tuple(sorted(skipped)), own=False)


def _own_row(node: "Node", attributes: dict[str, Any]) -> LogItem:
    shapes = node.inputs.shapes
    group = attributes.get(node_sizes.GROUP)
    ranks = attributes.get(node_sizes.RANKS)
    kinds: dict[str, Any] = (
        dict.fromkeys(NUMBERS, int) | dict.fromkeys(MEASURED, int | float) | dict.fromkeys(SPLITS, tuple)
    ) | dict.fromkeys(TEXTS, str)
    values: dict[str, Any] = {name: attributes[name] for name in kinds if name in attributes}
    for name, value in values.items():
        if not isinstance(value, kinds[name]):
            raise ValueError(f"{name} is {value!r}")
    if not shapes and not isinstance(attributes.get(node_sizes.SIZE), int | float):
        raise ValueError(f"{node_sizes.SIZE} is {attributes.get(node_sizes.SIZE)!r}, not a number")
    return LogItem(
        CommType[attributes[node_sizes.OPERATION]],
        None if group is None else CommGroup[group],
        msg_size=_shapes(shapes) if shapes else node_sizes.whole_size(attributes, "", None),
        ranks=None if ranks is None else Ranks.parse(ranks),
        **values,
    )


def _shapes(text: str) -> GemmShape:
    if len(text) > LONGEST_SHAPES:
        raise ValueError(f"inputs.shapes has {len(text)} characters; allowed: {LONGEST_SHAPES}")
    first, second = ast.literal_eval(text)
    return tuple(map(int, first)), tuple(map(int, second))


def _foreign_row(
    node: "Node", attributes: dict[str, Any], communicators: Mapping[str, Ranks], schema: ModuleType
) -> LogItem | None:
    kind = node_sizes.kind_of(node, schema)
    stage = node_sizes.plain(node.name).replace(",", ";")
    if kind == "COMP_NODE" and not attributes.get("is_cpu_op"):
        return LogItem(CommType.computation, stage=stage, elapsed_time=node.duration_micros * 1000)
    if kind in SENT:
        other = attributes.get("comm_dst" if kind == "COMM_SEND_NODE" else "comm_src")
        size = node_sizes.whole_size(attributes, "", None)
        return LogItem(SENT[kind], None, msg_size=size, stage=stage, peer=None if other is None else int(other))
    if kind != "COMM_COLL_NODE":
        return None
    collective, number = node_sizes.collective_of(attributes, schema)
    if not collective:
        raise ValueError(f"comm_type is {number!r}, not one of {', '.join(schema.CollectiveCommType.keys())}")
    name = str(attributes.get("pg_name", ""))
    ranks = communicators.get(name)
    group = CommGroup.all if not name else None
    known = None if ranks is None else len(ranks)
    size = node_sizes.whole_size(attributes, collective, known)
    return LogItem(TYPES[collective], group, known, size, stage, ranks=ranks)


def each_node(
    path: Path, schema: ModuleType, take: "Callable[[Node, dict[str, Any]], _Taken]"
) -> "Iterator[tuple[Node, _Taken]]":
    """Each node of a trace, with what `take` makes of it and its attributes.

    Raises:
        WorkloadFileError: the file is no trace, or `take` refuses a node; the message names it.
    """
    try:
        with unpacked(path) as source:
            for number, node in enumerate(nodes(source, schema), start=1):
                try:
                    taken = take(node, node_sizes.attributes_of(node))
                except _REFUSALS as error:
                    raise WorkloadFileError(path, None, f"node {number} is no row: {error}") from None
                yield node, taken
    except OSError as error:
        raise WorkloadFileError(path, None, f"cannot be read: {error.strerror or error}") from None
    except BrokenTraceError as error:
        raise WorkloadFileError(path, None, str(error)) from None
