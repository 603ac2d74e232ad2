"""Writes the rows of a rank as nodes of an execution trace.

What a row waits for is in its dependencies. A row that is waited for right before row j is a data dependency of j.
Control dependencies carry on what the program had waited for when it issued the call before, if that call itself is
not waited for yet: so calls are issued in program order, and one that overlaps delays nothing but its waiter.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from io import BytesIO
from math import ceil, prod
from types import ModuleType
from typing import TYPE_CHECKING

from workloads.formats.chakra.node_sizes import GATHERS, GROUP, OPERATION, RANKS, SIZE, WHOLE
from workloads.formats.chakra.schema import COLLECTIVES, MEASURED, NUMBERS, SPLITS, TEXTS, VERSION
from workloads.job.parameters import ELEMENT_BYTES
from workloads.rows.calls import POINT_TO_POINT
from workloads.rows.ops import NEVER, CommType, GemmShape, LogItem, flops_of

if TYPE_CHECKING:
    from chakra.schema.protobuf.et_def_pb2 import AttributeProto, Node
    from google.protobuf.message import Message

Communicators = dict[tuple[int, ...], str]
"""Names of the groups by their ranks, the same for all ranks of a job."""
KINDS = {
    CommType.isend: "COMM_SEND_NODE",
    CommType.irecv: "COMM_RECV_NODE",
    CommType.computation: "COMP_NODE",
    CommType.epoch_end: "METADATA_NODE",
}


def trace(
    items: Iterable[LogItem],
    rank: int,
    names: Communicators,
    schema: ModuleType,
    located: Callable[[LogItem], LogItem] = lambda item: item,
) -> Iterator[bytes]:
    """The file: each message after its length. `names` gains the groups that it did not have.

    located: the row with ranks and peer, where it leaves them to the job's sizes; the node says both.
    """
    yield _delimited(schema.GlobalMetadata(version=VERSION))
    complete: dict[int, list[int]] = {}
    before: list[int] = []
    for number, item in enumerate(items):
        data = complete.pop(number, [])
        control = [] if number - 1 in data else [node for node in before if node not in data]
        node = _node(number, item, rank, schema)
        if item.is_communication:
            node.attr.extend(_attributes(_places(located(item), rank, names), schema))
        node.data_deps.extend(data)
        node.ctrl_deps.extend(control)
        yield _delimited(node)
        before = sorted({*data, *control})
        if item.overlap != NEVER:
            complete.setdefault(number + 1 + (item.overlap or 0), []).append(number)


def _node(number: int, item: LogItem, rank: int, schema: ModuleType) -> "Node":
    """The node of a row with what the row itself says."""
    kind = KINDS.get(item.comm_type, "COMM_COLL_NODE")
    node: Node = schema.Node(id=number, name=item.stage or item.comm_type.name, type=schema.NodeType.Value(kind))
    values: dict[str, object] = {"is_cpu_op": kind == "METADATA_NODE", OPERATION: item.comm_type.name}
    if kind == "COMM_COLL_NODE":
        values["comm_type"] = schema.CollectiveCommType.Value(COLLECTIVES[item.comm_type])
    if isinstance(item.msg_size, tuple):
        node.inputs.shapes = repr(item.msg_size)
        values |= _counted(*_work(item.msg_size))
    elif not item.is_communication:
        values[SIZE] = item.msg_size
        if item.additional:
            values |= _counted(flops_of(item), item.msg_size)
    if item.comm_group is not None:
        values[GROUP] = item.comm_group.name
    if item.ranks is not None:
        values[RANKS] = str(item.ranks)
    values |= {name: getattr(item, name) for name in (*NUMBERS, *MEASURED, *SPLITS)}
    values |= {name: getattr(item, name) or None for name in TEXTS}
    node.attr.extend(_attributes(values, schema))
    if item.comm_type is CommType.computation and item.elapsed_time is not None:
        node.duration_micros = round(item.elapsed_time / 1000)
    return node


def _counted(operations: int, size: int | float) -> dict[str, object]:
    """The work of a computation; a number beyond 63 bits, which no attribute holds, is left out."""
    work = {"num_ops": operations, "tensor_size": size}
    return {name: number for name, number in work.items() if number < 1 << 63}


def _places(item: LogItem, rank: int, names: Communicators) -> dict[str, object]:
    """Group, ends and size of a communication, as Chakra's other tools read them."""
    values: dict[str, object] = {}
    if item.ranks is not None:
        values["pg_name"] = names.setdefault(tuple(item.ranks), str(len(names) + 1))
    if item.peer is not None and item.comm_type in POINT_TO_POINT:
        ends = (rank, item.peer) if item.comm_type is CommType.isend else (item.peer, rank)
        values |= zip(("comm_src", "comm_dst", "comm_tag"), (*ends, 0), strict=True)
    assert not isinstance(item.msg_size, tuple)
    ranks = item.comm_group_size if item.ranks is None else len(item.ranks)
    parts = ranks or 1 if COLLECTIVES.get(item.comm_type) in GATHERS else 1
    size = -(-ceil(item.msg_size) // parts)
    same = type(item.msg_size) is int and size == item.msg_size
    return values | {SIZE: size} | ({} if same else {WHOLE: item.msg_size})


def _attributes(values: Mapping[str, object], schema: ModuleType) -> "Iterator[AttributeProto]":
    for name, value in values.items():
        if isinstance(value, tuple):
            yield schema.AttributeProto(name=name, int64_list=schema.Int64List(values=value))
        elif value is not None:
            yield schema.AttributeProto(name=name, **{_FIELDS[type(value)]: value})


_FIELDS: dict[type, str] = {bool: "bool_val", int: "int64_val", float: "double_val", str: "string_val"}


def _work(shapes: GemmShape) -> tuple[int, int]:
    """Floating-point operations of a product of the two operands, and the bytes of both and of the result."""
    first, second = shapes
    rows, columns = prod(first[:-1]), second[-1] if second else 1
    inner = first[-1] if first else 1
    return 2 * rows * inner * columns, ELEMENT_BYTES * (prod(first) + prod(second) + rows * columns)


def _delimited(message: "Message") -> bytes:
    """A message after its length as a varint."""
    from google.protobuf.proto import serialize_length_prefixed

    buffer = BytesIO()
    serialize_length_prefixed(message, buffer)
    return buffer.getvalue()
