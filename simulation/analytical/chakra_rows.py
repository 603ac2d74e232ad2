"""Reads an execution trace of MLCommons Chakra (schema et_def.proto): a row a node that computes or communicates.

The package mlc-chakra, an extra (requirements/chakra.txt), has the schema. Nodes count one after the other; what runs
at the same time is the overlap ratios' matter, as in every workload here.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from common.errors import MistakeList, input_problem
from simulation.analytical.aicb_rows import COLLECTIVE
from simulation.analytical.machine import Cluster, Division
from simulation.analytical.placement import ranks_and_stride
from simulation.analytical.settings import divide
from simulation.analytical.workload import MadeRows, NamedRow, once
from workloads.formats.chakra.node_sizes import OPERATION, collective_of, kind_of, plain, whole_size
from workloads.formats.simai_text import (  # fmt: skip
    ALL,
    EP,
    GROUP,
    REDUCESCATTER,
    SUFFIXES,
    TP,
    Phase,
    WorkloadHeader,
)

if TYPE_CHECKING:
    from chakra.schema.protobuf.et_def_pb2 import Node

_COLLECTIVE = {name.upper(): word for name, word in COLLECTIVE.items()} | {"REDUCE_SCATTER_BLOCK": REDUCESCATTER}
GROUP_ATTRIBUTES = ("pg_name", "comm_group", "pg_desc")


class _Row(NamedTuple):
    """A node as a row. group: of which GPUs; attributes, collective: say how many bytes."""

    name: str
    time_ns: int
    collective: str = ""
    group: str = ""
    attributes: Mapping[str, object] = {}


class _Nodes:
    """The nodes of a trace, one by one."""

    def __init__(self, groups: Mapping[str, str], schema: ModuleType) -> None:
        self._groups, self._schema = groups, schema
        self.rows: list[_Row] = []
        self.sends: list[int] = []
        self.sizes: dict[str, int] = {}
        self.skipped: set[str] = set()
        self.unnamed: set[str] = set()

    def add(self, node: "Node", attributes: dict[str, Any]) -> None:
        """Note a node."""
        name = "_".join(plain(node.name).split()) or str(node.id)
        kind = kind_of(node, self._schema)
        if kind == "COMP_NODE" and not attributes.get("is_cpu_op"):
            self.rows.append(_Row(name, node.duration_micros * 1000))
        elif kind == "COMM_SEND_NODE":
            self.sends.append(int(whole_size(attributes, "", None)))
        elif kind == "COMM_COLL_NODE":
            collective, number = collective_of(attributes, self._schema)
            if collective in _COLLECTIVE:
                whole_size(attributes, collective, 1)
                self.rows.append(_Row(name, 0, collective, self._group(attributes), attributes))
            else:
                self.skipped.add(collective or f"comm_type {number}")

    def _group(self, attributes: Mapping[str, object]) -> str:
        labels = [str(attributes[key]) for key in GROUP_ATTRIBUTES if attributes.get(key) not in (None, "")]
        own = str(attributes.get("pg_desc")) if OPERATION in attributes else ""
        for label in labels:
            if label in self._groups:
                return self._groups[label]
        if own not in GROUP:
            self.unnamed.add(labels[0] if labels else "(none)")
            return ALL
        size = attributes.get("comm_group_size")
        if isinstance(size, int):
            self.sizes.setdefault(GROUP[own], size)
        return GROUP[own]


def read_chakra(path: Path, arguments: argparse.Namespace, cluster: Cluster | None) -> MadeRows:
    """The nodes of one rank's trace. Process groups are those that --group or our own nodes name, else all GPUs.

    cluster: the GPUs that a group without a size has; None where the options are wrong, and the run ends.

    Raises:
        InputProblems: the file is no trace, --group is wrong, or the groups' sizes do not fit the cluster.
        SimulationError: mlc-chakra is not installed.
    """
    from workloads.formats.chakra.reading import each_node
    from workloads.formats.chakra.schema import load_schema

    schema = load_schema()
    found = _Nodes(_groups(arguments.group), schema)
    for _node in each_node(path, schema, found.add):
        pass
    notes = [f"skipped: {', '.join(sorted(found.skipped))}"] if found.skipped else []
    if found.unnamed:
        notes.append(
            f"process groups {', '.join(sorted(found.unnamed))} are taken for all GPUs: --group NAME=DP says otherwise"
        )
    sends, sizes = found.sends, found.sizes
    if sends and arguments.pp is None:
        raise input_problem(
            "--pp", None, f"is missing: {path} sends between stages but does not say how many there are"
        )
    header = WorkloadHeader(
        sizes.get(TP, 1), sizes.get(EP, 1), 1, 1, max(1, len(sends)), 0, sum(sends) // len(sends) if sends else 0,
        len(found.rows), False, tuple(notes),
    )  # fmt: skip
    division = None if cluster is None else divide(header, cluster, arguments, False)
    try:
        return MadeRows(path, header, [_made(row, division, cluster) for row in found.rows])
    except ValueError as error:
        raise input_problem("-w", path, str(error)) from None


def _groups(given: list[str]) -> dict[str, str]:
    mistakes, groups = MistakeList(), {}
    for text in given:
        name, _, group = text.rpartition("=")
        if not name or group not in SUFFIXES:
            mistakes.add("--group", text, f"allowed is NAME=GROUP with one of {', '.join(sorted(SUFFIXES))}")
        groups[name] = group
    mistakes.check()
    return groups


def _made(row: _Row, division: Division | None, cluster: Cluster | None) -> NamedRow:
    phase = Phase(row.time_ns)
    if row.collective:
        ranks = 1 if division is None or cluster is None else ranks_and_stride(row.group, division)[0]
        size = int(whole_size(row.attributes, row.collective, ranks))
        phase = Phase(row.time_ns, _COLLECTIVE[row.collective], size, row.group)
    return once(row.name, 0, phase)
