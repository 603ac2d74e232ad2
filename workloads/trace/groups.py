"""Gives recorded operations the names of their groups: torch knows process groups by numbers."""

from dataclasses import replace

from workloads.rows.calls import POINT_TO_POINT, Call
from workloads.rows.ops import CommType
from workloads.rows.ranks import Ranks

Named = dict[str, tuple[str, Ranks]]
"""By torch's name of a group: what it is for, one of `calls.GROUPS`, and its ranks."""


def named(op: Call, groups: Named) -> Call:
    """The op with the name and ranks of its group.

    A send or receive belongs to the pipeline that holds both ends: Megatron's interleaved schedule
    (0.16.1) sends over the world's group where a pipeline has two stages.

    Raises:
        LookupError: a group has no name.
    """
    if op.comm_type is CommType.computation:
        return op
    if op.group not in groups:
        raise LookupError(
            f"{op.comm_type.name} of {op.module or op.phase} runs in group {op.group}, which nothing names"
        )
    name, ranks = groups[op.group]
    if op.comm_type in POINT_TO_POINT:
        pairs = [(each, of) for each, of in groups.values() if each == "pp" and op.peer in of]
        name, ranks = pairs[0] if pairs else (name, ranks)
    return replace(op, group=name, ranks=ranks)
