"""One operation of a workload: its type, group, size and its stage in the training step.

The columns and their spelling are those of AICB's workload CSV, so that its files and ours are interchangeable.

A size times the scale is rounded up to whole bytes; where each rank of the group holds a share of it (all_gather,
reduce_scatter, all_to_all, gather, scatter), every share is rounded up alike. The elements are of the row's type, and a
size is rounded up to whole ones; without a type, bfloat16 where the bytes are even, else uint8.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from math import ceil, prod
from typing import Any, NamedTuple, TypeVar

from workloads.rows.ranks import Ranks, shifted_module

AnyEnum = TypeVar("AnyEnum", bound=Enum)
GemmShape = tuple[tuple[int, ...], tuple[int, ...]]
"""Two operand shapes of a matrix multiplication, e.g. ((s, b, h), (h, 3h/tp)), in elements."""


class CommType(Enum):
    """The kind of a row. `epoch_end` closes the initialization and each iteration, `computation` is a kernel."""

    all_reduce = "all_reduce"
    isend = "isend"
    irecv = "irecv"
    broadcast = "broadcast"
    all_gather = "all_gather"
    reduce_scatter = "reduce_scatter"
    barrier = "barrier"
    reduce = "reduce"
    reduce_scatter_tensor = "reduce_scatter_tensor"
    all_gather_into_tensor = "all_gather_into_tensor"
    computation = "computation"
    epoch_end = "epoch_end"
    all_to_all = "all_to_all"
    all_to_all_single = "all_to_all_single"
    gather = "gather"
    scatter = "scatter"


AICB_TYPES = tuple(CommType)[: tuple(CommType).index(CommType.all_to_all) + 1]
"""The types that AICB's files have; the others are in traces of real frameworks only."""


class CommGroup(Enum):
    """The ranks that take part. The group of all ranks is called `all`. Those after it are in traces of real
    frameworks only; `calls.GROUPS` has the names that they have there.
    """

    dp_group = "dp_group"
    pp_group = "pp_group"
    tp_group = "tp_group"
    ep_group = "ep_group"
    ep_dp_group = "ep_dp_group"
    ep_tp_group = "ep_tp_group"
    embedding_group = "embedding_group"
    all = "all_nodes"
    cp_group = "cp_group"
    dp_cp_group = "dp_cp_group"
    expert_tp_group = "expert_tp_group"
    expert_dp_group = "expert_dp_group"
    tp_ep_group = "tp_ep_group"
    tp_ep_pp_group = "tp_ep_pp_group"
    mp_group = "mp_group"
    tp_cp_group = "tp_cp_group"
    tp_dp_group = "tp_dp_group"
    tp_dp_cp_group = "tp_dp_cp_group"
    position_embedding_group = "position_embedding_group"
    dp_shard_group = "dp_shard_group"
    dp_replicate_group = "dp_replicate_group"


AICB_GROUPS = tuple(CommGroup)[: tuple(CommGroup).index(CommGroup.all) + 1]
COLUMNS = (
    "comm_type", "comm_group", "comm_group_size", "msg_size", "stage", "dst", "src", "additional",
    "_elapsed_time", "algbw", "busbw", "count",
)  # fmt: skip
HEADER = ",".join(COLUMNS)
MOST_BYTES = 1 << 62
MOST_TIME = 1e12
"""Largest time of a row (ms in a log, ns in a workload), and largest bandwidth; more is a mistake."""
_WHOLE = re.compile(r"[0-9]{1,18}")
_OPERANDS = re.compile(r"\(\(([0-9]{1,15}(?: [0-9]{1,15}){0,7})\) \(([0-9]{1,15}(?: [0-9]{1,15}){0,7})\)\)")
NEVER = -1
"""The overlap of a call that nothing waits for."""


@dataclass(frozen=True, slots=True)
class LogItem:
    """One row of a workload (what to do) or of a log (how it went).

    msg_size: bytes of the full tensor (gathered, or before it is scattered); for a computation the two GEMM shapes.
    comm_group_size: ranks in the group, None where AICB leaves it out. dst, src: ranks inside the group.
    additional: send_next, send_prev, recv_next or recv_prev on point-to-point rows; on a computation of a real
    framework its kernel, see `Call`. msg_size is then the bytes that it moves, unless it is one product.
    elapsed_time: ns on a computation row filled from an AIOB file, ms in a log, else None. algbw, busbw: logs only.

    The rest is of real frameworks, None in a row of AICB's; `Call` has the definitions. An overlap of None counts as
    blocking.
    """

    comm_type: CommType
    comm_group: CommGroup | None = None
    comm_group_size: int | None = None
    msg_size: int | float | GemmShape = 0
    stage: str = ""
    dst: int | None = None
    src: int | None = None
    additional: str = ""
    elapsed_time: int | float | None = None
    algbw: float | None = None
    busbw: float | None = None
    count: int = 1
    dtype: str | None = None
    ranks: Ranks | None = None
    in_splits: tuple[int, ...] | None = None
    out_splits: tuple[int, ...] | None = None
    peer: int | None = None
    module: str | None = None
    micro_batch: int | None = None
    phase: str | None = None
    overlap: int | None = None

    @property
    def is_communication(self) -> bool:
        return self.comm_type not in (CommType.computation, CommType.epoch_end)

    @property
    def comm_bytes(self) -> int | float:
        """msg_size of a communication in bytes, 0 for a barrier, a computation, an epoch end."""
        if not self.is_communication or self.comm_type is CommType.barrier or isinstance(self.msg_size, tuple):
            return 0
        return self.msg_size

    def shifted(self, offset: tuple[int, int]) -> "LogItem":
        """This row so many layers and micro-batches later; a row without the number keeps none."""
        layers, micro_batches = offset
        module = shifted_module(self.module, layers) if self.module and layers else self.module
        batch = None if self.micro_batch is None else self.micro_batch + micro_batches
        if module is self.module and batch == self.micro_batch:
            return self
        return replace(self, module=module, micro_batch=batch)

    def to_csv(self) -> str:
        """The CSV line of AICB's columns, without its line end."""
        group = None if self.comm_group is None else f"CommGroup.{self.comm_group.name}"
        size = _shapes_text(self.msg_size) if isinstance(self.msg_size, tuple) else self.msg_size
        return (
            f"CommType.{self.comm_type.name},{group},{self.comm_group_size},{size},{self.stage},{self.dst},{self.src},"
            f"{self.additional},{self.elapsed_time},{self.algbw},{self.busbw},{self.count}"
        )

    @classmethod
    def from_csv(cls, line: str) -> "LogItem":
        """Parses one CSV line.

        Raises:
            ValueError: a column is wrong; the message names it and what it may hold.
        """
        cells = line.split(",")
        if len(cells) != len(COLUMNS):
            raise ValueError(f"{len(cells)} columns where {len(COLUMNS)} are expected")
        comm_type, size = _member(CommType, cells[0], "comm_type"), _size(cells[3])
        if comm_type is None:
            raise ValueError("comm_type is None, but each row needs a type")
        if isinstance(size, tuple) and comm_type is not CommType.computation:
            raise ValueError(f"msg_size is {cells[3][:80]!r}, but only a computation has operands")
        return cls(
            comm_type=comm_type,
            comm_group=_member(CommGroup, cells[1], "comm_group"),
            comm_group_size=_integer(cells[2], "comm_group_size", 1),
            msg_size=size,
            stage=printable(cells[4], "stage"),
            dst=_integer(cells[5], "dst", 0),
            src=_integer(cells[6], "src", 0),
            additional=printable(cells[7], "additional"),
            elapsed_time=_number(cells[8], "_elapsed_time", MOST_TIME),
            algbw=_number(cells[9], "algbw", MOST_TIME),
            busbw=_number(cells[10], "busbw", MOST_TIME),
            count=_integer(cells[11], "count", 1) or 1,
        )


EPOCH_END = LogItem(CommType.epoch_end)


def gemm(stage: str, first: Iterable[int], second: Iterable[int]) -> LogItem:
    """A computation row for the product of two operands with the given shapes."""
    return LogItem(CommType.computation, msg_size=(tuple(first), tuple(second)), stage=stage)


def kernel_row(kernel: str, size: int, stage: str, **more: Any) -> LogItem:
    """The row of a real framework's kernel. size: bytes that it moves; more: further columns."""
    found = _PRODUCT.match(kernel)
    if found is None:
        return LogItem(CommType.computation, msg_size=size, stage=stage, additional=kernel, **more)
    m, k, n = map(int, found.groups()[1:])
    return LogItem(CommType.computation, msg_size=((m, k), (k, n)), stage=stage, additional=kernel, **more)


def _shapes_text(shapes: GemmShape) -> str:
    return "(" + " ".join("(" + " ".join(map(str, shape)) + ")" for shape in shapes) + ")"


def _member(enum: type[AnyEnum], text: str, column: str) -> AnyEnum | None:
    if text == "None":
        return None
    prefix, _, name = text.rpartition(".")
    if prefix not in ("", enum.__name__) or name not in enum.__members__:
        raise ValueError(f"{column} is {text[:80]!r}, not one of {', '.join(enum.__members__)}")
    return enum[name]


def printable(text: str, column: str) -> str:
    """The text of a cell.

    Raises:
        ValueError: it has characters that a terminal would obey.
    """
    if not text.isprintable():
        raise ValueError(f"{column} is {text[:80]!r}, not printable text")
    return text


def _integer(text: str, column: str, least: int) -> int | None:
    if text == "None":
        return None
    if not _WHOLE.fullmatch(text) or int(text) < least:
        raise ValueError(f"{column} is {text[:80]!r}, not a whole number of {least} or more, or None")
    return int(text)


def _number(text: str, column: str, most: float) -> int | float | None:
    if text == "None":
        return None
    try:
        found = float(text) if any(mark in text for mark in ".eEn") else int(text)
    except ValueError:
        raise ValueError(f"{column} is {text[:80]!r}, not a number or None") from None
    if not 0 <= found <= most:
        raise ValueError(f"{column} is {text[:80]!r}, not a number from 0 to {most:.3g}, or None")
    return found


def _size(text: str) -> int | float | GemmShape:
    if not text.startswith("(("):
        size = _number(text, "msg_size", MOST_BYTES)
        if size is None:
            raise ValueError("msg_size is None, but each row needs a size")
        return size
    found = _OPERANDS.fullmatch(text)
    if found is None:
        raise ValueError(f"msg_size is {text[:80]!r}, not two operand shapes like ((2048 1 4096) (4096 6144))")
    first, second = (tuple(map(int, shape.split())) for shape in found.groups())
    return first, second


FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT = "gemm", "gemm_dgrad", "gemm_wgrad"
OPERATORS = (FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT)
_PRODUCT = re.compile(r"(gemm(?:_dgrad|_wgrad)?) m=([0-9]{1,15}) k=([0-9]{1,15}) n=([0-9]{1,15})(?: |$)")
_KERNEL = re.compile(r"([a-z_]+)((?: [a-z]+=[0-9]{1,15})+?)(?: flops=[0-9]+)?(?: bytes=[0-9]+)?")


_FLOPS = re.compile(r" flops=([0-9]{1,30})(?![0-9])")


class Kernel(NamedTuple):
    """The kernel of a computation row: an operator of the database of compute times, and the text of its shape."""

    op: str
    shape: str


def kernel_of(item: LogItem) -> Kernel | None:
    """The kernel of a computation row of either kind, None for a row that states none."""
    if item.comm_type is CommType.computation and (found := _KERNEL.fullmatch(item.additional)):
        return Kernel(found[1], found[2].strip())
    gemm = gemm_of(item)
    return None if gemm is None else Kernel(gemm.op, gemm.shape)


def flops_of(item: LogItem) -> int:
    """FLOPs of a computation row, 0 where it states none."""
    if found := _FLOPS.search(item.additional):
        return int(found[1])
    gemm = gemm_of(item)
    return 0 if gemm is None else 2 * gemm.m * gemm.k * gemm.n


@dataclass(frozen=True, slots=True, order=True)
class Gemm:
    """One product (m, k) @ (k, n). op: its operator in the database of compute times, which says how operands lie."""

    op: str
    m: int
    k: int
    n: int

    @property
    def shape(self) -> str:
        """The shape as the database of compute times has it."""
        return f"m={self.m} k={self.k} n={self.n}"


def gemm_of(item: LogItem) -> Gemm | None:
    """The product of a computation row, None for a row that is none.

    The gradient of a weight is the product whose operands are both matrices; those of activations have three axes.
    """
    if item.comm_type is not CommType.computation or not isinstance(item.msg_size, tuple):
        return None
    if found := _PRODUCT.match(item.additional):
        return Gemm(found[1], *map(int, found.groups()[1:]))
    first, second = item.msg_size
    backward = WEIGHT_GRADIENT if len(first) == 2 else INPUT_GRADIENT
    op = FORWARD if item.stage.startswith("forward") else backward
    return Gemm(op, prod(first[:-1]), first[-1], prod(second[1:]))


def gemms_of(items: Iterable[LogItem]) -> list[Gemm]:
    """The different products of rows, in order."""
    found = (gemm_of(item) for item in items)
    return sorted({gemm for gemm in found if gemm is not None})


EXCHANGES = frozenset({CommType.all_to_all, CommType.all_to_all_single})
SHARED = frozenset({
    CommType.all_gather, CommType.all_gather_into_tensor, CommType.reduce_scatter, CommType.reduce_scatter_tensor,
    CommType.gather, CommType.scatter, *EXCHANGES,
})  # fmt: skip
"""Calls of which each rank of the group holds a share."""


def rounded(size: int | float | Fraction, scale: Fraction, width: int) -> int:
    """`size` bytes at a scale in whole elements of `width` bytes, rounded up; in bytes."""
    return ceil(Fraction(size) * scale / width) * width


def sent_bytes(row: LogItem, ranks: int, scale: Fraction, width: int) -> int:
    """Bytes of a row's call in a group of `ranks`, of elements of `width` bytes; what is in `in_splits` counts."""
    if row.in_splits is not None:
        return sum(rounded(share, scale, width) for share in row.in_splits)
    parts = ranks if row.comm_type in SHARED else 1
    return rounded(Fraction(row.comm_bytes) / parts, scale, width) * parts
