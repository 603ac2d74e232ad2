"""Imports Chakra's schema where it is installed, and names what the two formats have in common."""

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
TYPES = {name: kind for kind, name in reversed(COLLECTIVES.items())} | {"REDUCE_SCATTER_BLOCK": CommType.reduce_scatter}
"""The type of a foreign collective: the first spelling."""
NUMBERS = ("comm_group_size", "dst", "src", "peer", "micro_batch", "overlap", "count")
MEASURED = ("elapsed_time", "algbw", "busbw")
TEXTS = ("stage", "additional", "dtype", "module", "phase")
SPLITS = ("in_splits", "out_splits")
"""Fields of a row that are attributes of its node, by their kind, under their own names."""


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
