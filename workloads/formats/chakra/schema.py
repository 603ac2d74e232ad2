"""Imports Chakra's schema where it is installed, and names what the two formats have in common."""

from collections.abc import Mapping
from math import inf
from types import ModuleType

from workloads.job.errors import AicbError
from workloads.rows.ops import CommType

VERSION = "0.0.4"
"""Of the schema, in a trace's first message."""
COLLECTIVES = {
    CommType.all_reduce: "ALL_REDUCE",
    CommType.reduce: "REDUCE",
    CommType.all_gather: "ALL_GATHER",
    CommType.all_gather_into_tensor: "ALL_GATHER",
    CommType.gather: "GATHER",
    CommType.scatter: "SCATTER",
    CommType.broadcast: "BROADCAST",
    CommType.all_to_all: "ALL_TO_ALL",
    CommType.all_to_all_single: "ALL_TO_ALL",
    CommType.reduce_scatter: "REDUCE_SCATTER",
    CommType.reduce_scatter_tensor: "REDUCE_SCATTER",
    CommType.barrier: "BARRIER",
}
GATHERS = frozenset({"ALL_GATHER", "GATHER"})
"""Collectives whose comm_size is what one rank gives: Chakra's converter counts a call's inputs, and ASTRA-sim's Ring
takes n times that for the result. All others have the whole buffer, as a row's msg_size has."""
TYPES = {name: kind for kind, name in reversed(COLLECTIVES.items())} | {"REDUCE_SCATTER_BLOCK": CommType.reduce_scatter}
"""The type of a foreign collective: the first spelling."""
NUMBERS = ("comm_group_size", "dst", "src", "peer", "micro_batch", "overlap", "count")
MEASURED = ("elapsed_time", "algbw", "busbw")
TEXTS = ("stage", "additional", "dtype", "module", "phase")
SPLITS = ("in_splits", "out_splits")
"""Fields of a row that are attributes of its node, by their kind, under their own names."""
OPERATION, GROUP, RANKS, SIZE = "clusterdyno_type", "pg_desc", "ranks", "comm_size"
WHOLE = "msg_size"
"""Attribute of our own nodes: the bytes of the row, where comm_size is one rank's share of them."""


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


class MissingSchemaError(AicbError):
    """mlc-chakra is not installed."""


def load_schema() -> ModuleType:
    """Chakra's generated module et_def_pb2.

    Raises:
        MissingSchemaError: it is not installed; the message has the pip line.
    """
    try:
        from chakra.schema.protobuf import et_def_pb2
    except ImportError:
        raise MissingSchemaError(
            "Chakra's schema is not installed: pip install --no-deps -r requirements/chakra.txt"
        ) from None
    module: ModuleType = et_def_pb2
    return module
