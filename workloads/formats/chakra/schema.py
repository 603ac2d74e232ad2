"""Imports Chakra's schema where it is installed, and names what the two formats have in common."""

from types import ModuleType

from common.errors import SimulationError
from workloads.rows.collectives import CALLS
from workloads.rows.ops import CommType

VERSION = "0.0.4"
"""Of the schema, in a trace's first message."""
COLLECTIVES = {CommType[call]: name.upper() for call, name in CALLS.items()}
TYPES = {name.upper(): CommType[name] for name in CALLS.values()} | {"REDUCE_SCATTER_BLOCK": CommType.reduce_scatter}
"""The type of a foreign collective: the first spelling."""
NUMBERS = ("comm_group_size", "dst", "src", "peer", "micro_batch", "overlap", "count")
MEASURED = ("elapsed_time", "algbw", "busbw")
TEXTS = ("stage", "additional", "dtype", "module", "phase")
SPLITS = ("in_splits", "out_splits")
"""Fields of a row that are attributes of its node, by their kind, under their own names."""


def load_schema() -> ModuleType:
    """Chakra's generated module et_def_pb2.

    Raises:
        SimulationError: it is not installed; the message has the pip line.
    """
    try:
        from chakra.schema.protobuf import et_def_pb2
    except ImportError:
        raise SimulationError(
            "Chakra's schema is not installed: pip install --no-deps -r requirements/chakra.txt"
        ) from None
    module: ModuleType = et_def_pb2
    return module
