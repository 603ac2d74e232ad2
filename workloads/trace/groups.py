"""Gives recorded operations the names of their groups: torch knows process groups by numbers."""

from workloads.rows.ops import CommType
from workloads.rows.ranks import Ranks
from workloads.rows.traced_op import NOBODY, POINT_TO_POINT, TracedOp
from workloads.trace.recorder import RecordedOp

Named = dict[str, tuple[str, Ranks]]
"""By torch's name of a group: what it is for, one of `traced_op.GROUPS`, and its ranks."""


def named(ops: list[RecordedOp], groups: Named) -> list[TracedOp]:
    """The ops with the names and ranks of their groups.

    A send or receive belongs to the pipeline that holds both ends: Megatron's interleaved schedule
    (0.16.1) sends over the world's group where a pipeline has two stages.

    Raises:
        LookupError: a group has no name.
    """
    return [_named(op, groups) for op in ops]


def _named(op: RecordedOp, groups: Named) -> TracedOp:
    comm_type = CommType[op.kind]
    if comm_type is CommType.computation:
        name, ranks = "", NOBODY
    elif op.group not in groups:
        raise LookupError(f"{op.kind} of {op.module or op.phase} runs in group {op.group}, which nothing names")
    else:
        name, ranks = groups[op.group]
    if comm_type in POINT_TO_POINT:
        pairs = [(each, of) for each, of in groups.values() if each == "pp" and op.peer in of]
        name, ranks = pairs[0] if pairs else (name, ranks)
    return TracedOp(
        comm_type=comm_type,
        group=name,
        ranks=ranks,
        dtype=op.dtype,
        bytes=op.bytes,
        phase=op.phase,
        issue=op.issue,
        wait=op.wait,
        in_splits=op.in_splits,
        out_splits=op.out_splits,
        peer=op.peer,
        module=op.module,
        micro_batch=op.micro_batch,
        kernel=op.kernel,
    )
