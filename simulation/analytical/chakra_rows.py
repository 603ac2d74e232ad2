"""Reads an execution trace of MLCommons Chakra (schema et_def.proto): a row a node that computes or communicates.

The package mlc-chakra, an extra (requirements/chakra.txt), has the schema. Nodes count one after the other; what runs
at the same time is the overlap ratios' matter, as in every workload here.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from common.errors import MistakeList, SimulationError, input_problem
from simulation.analytical.workload import LineSource
from workloads.formats.simai_header import WorkloadHeader
from workloads.formats.simai_rows import (  # fmt: skip
    ALL,
    ALLGATHER,
    ALLREDUCE,
    ALLTOALL,
    BROADCAST,
    NONE,
    REDUCESCATTER,
    SUFFIXES,
)

if TYPE_CHECKING:
    from chakra.schema.protobuf.et_def_pb2 import Node

COLLECTIVE = {
    "ALL_REDUCE": ALLREDUCE,
    "ALL_GATHER": ALLGATHER,
    "REDUCE_SCATTER": REDUCESCATTER,
    "REDUCE_SCATTER_BLOCK": REDUCESCATTER,
    "ALL_TO_ALL": ALLTOALL,
    "BROADCAST": BROADCAST,
    "REDUCE": BROADCAST,
    "GATHER": BROADCAST,
    "SCATTER": BROADCAST,
}
GROUP_ATTRIBUTES = ("pg_name", "comm_group", "pg_desc")


def read_chakra(path: Path, arguments: argparse.Namespace) -> LineSource:
    """The nodes of one rank's trace. Process groups are those that --group names, else all GPUs.

    Raises:
        InputProblems: the file is no trace, or --group is wrong.
        SimulationError: mlc-chakra is not installed.
    """
    try:
        from chakra.schema.protobuf import et_def_pb2 as schema
    except ImportError:
        raise SimulationError(
            f"{path} is a Chakra trace: pip install --no-deps -r requirements/chakra.txt reads it"
        ) from None
    groups = _groups(arguments.group)
    lines: list[bytes] = []
    sends: list[int] = []
    skipped: set[str] = set()
    unnamed: set[str] = set()
    for node in _nodes(path, schema):
        attributes = {attribute.name: _value(attribute) for attribute in node.attr}
        name = node.name.replace(" ", "_") or str(node.id)
        kind = schema.NodeType.Name(node.type) if node.type in schema.NodeType.values() else str(node.type)
        if kind == "COMP_NODE" and not attributes.get("is_cpu_op"):
            lines.append(_row(name, node.duration_micros * 1000, NONE, 0))
        elif kind == "COMM_SEND_NODE":
            sends.append(_size(attributes))
        elif kind == "COMM_COLL_NODE":
            number = attributes.get("comm_type", -1)
            collective = schema.CollectiveCommType.Name(number) if number in schema.CollectiveCommType.values() else ""
            if collective not in COLLECTIVE:
                skipped.add(collective or f"comm_type {number}")
                continue
            label = next(
                (str(attributes[key]) for key in GROUP_ATTRIBUTES if attributes.get(key) not in (None, "")), ""
            )
            if label not in groups:
                unnamed.add(label or "(none)")
            cell = f"{COLLECTIVE[collective]}_{groups.get(label, ALL)}"
            lines.append(_row(name, 0, cell, _size(attributes)))
    notes = [f"skipped: {', '.join(sorted(skipped))}"] if skipped else []
    if unnamed:
        notes.append(
            f"process groups {', '.join(sorted(unnamed))} are taken for all GPUs: --group NAME=DP says otherwise"
        )
    if sends and arguments.pp is None:
        raise input_problem(
            "--pp", None, f"is missing: {path} sends between stages but does not say how many there are"
        )
    header = WorkloadHeader(
        1, 1, 1, 1, max(1, len(sends)), 0, sum(sends) // len(sends) if sends else 0, len(lines), False, tuple(notes)
    )
    return LineSource(path, header, lines)


def _groups(given: list[str]) -> dict[str, str]:
    mistakes, groups = MistakeList(), {}
    for text in given:
        name, _, group = text.rpartition("=")
        if not name or group not in SUFFIXES:
            mistakes.add("--group", text, f"allowed is NAME=GROUP with one of {', '.join(sorted(SUFFIXES))}")
        groups[name] = group
    mistakes.check()
    return groups


def _row(name: str, time_ns: int, cell: str, size: int) -> bytes:
    return f"{name} -1 {time_ns} {cell} {size} 0 {NONE} 0 0 {NONE} 0 0".encode()


def _size(attributes: dict[str, object]) -> int:
    size = attributes.get("comm_size", 0)
    return int(size) if isinstance(size, int | float) else 0


def _value(attribute: object) -> object:
    field = attribute.WhichOneof("value")  # type: ignore[attr-defined]
    return None if field is None else getattr(attribute, field)


def _nodes(path: Path, schema: ModuleType) -> "Iterator[Node]":
    """The nodes of the file.

    Raises:
        InputProblems: the file ends within a message, or a message is malformed.
    """
    from workloads.formats.chakra.messages import BrokenTraceError, nodes, unpacked

    try:
        yield from nodes(unpacked(path), schema)
    except OSError as error:
        raise input_problem("-w", path, f"cannot be read: {error}") from None
    except BrokenTraceError as error:
        raise input_problem("-w", path, str(error)) from None
