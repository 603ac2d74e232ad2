"""Defines a communication call as a rule states it: what `TracedOp` says of a recorded one, without a position in time.

Without positions a repeated call is one object, so that a training step stays as small as its distinct calls.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from training.benchmarks.aicb.blocks import Block
from training.benchmarks.aicb.ops import CommType
from training.benchmarks.aicb.traced_op import Ranks, TracedOp

BFLOAT16, FLOAT32, INT64, BOOL = "bfloat16", "float32", "int64", "bool"
SIZES = {BFLOAT16: 2, FLOAT32: 4, INT64: 8, BOOL: 1}
"""Bytes of an element."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call; the fields mean what they mean in `TracedOp`."""

    comm_type: CommType
    group: str
    ranks: Ranks
    dtype: str
    bytes: int
    phase: str
    module: str = ""
    in_splits: tuple[int, ...] | None = None
    out_splits: tuple[int, ...] | None = None
    peer: int | None = None

    @property
    def identity(self) -> tuple[object, ...]:
        """What `TracedOp.identity` holds, to compare the two."""
        return self.comm_type, self.ranks, self.dtype, self.bytes, self.in_splits, self.out_splits, self.peer


@dataclass(frozen=True, slots=True)
class Use:
    """A module begins that reads these parameters (their names)."""

    parameters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ready:
    """The gradients of these parameters are complete for this micro-batch."""

    parameters: tuple[str, ...]


Event = Call | Use | Ready


def calls(events: list[Event]) -> Block[Call]:
    """The calls alone."""
    return Block([event for event in events if isinstance(event, Call)])


def positioned(rows: Block[Call]) -> Iterator[TracedOp]:
    """The calls as recorded ops, numbered from 0, each waited for at once."""
    for number, call in enumerate(rows):
        yield TracedOp(
            comm_type=call.comm_type,
            group=call.group,
            ranks=call.ranks,
            dtype=call.dtype,
            bytes=call.bytes,
            phase=call.phase,
            issue=number,
            wait=number + 1,
            in_splits=call.in_splits,
            out_splits=call.out_splits,
            peer=call.peer,
            module=call.module,
        )
