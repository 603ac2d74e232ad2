"""Defines a communication call as a rule states it: what `TracedOp` says of a recorded one, without a position in time.

Without positions a repeated call is one object, so that a training step stays as small as its distinct calls.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from workloads.rows.modules import shifted_module
from workloads.rows.ops import CommType
from workloads.rows.traced_op import Ranks

BFLOAT16, FLOAT16, FLOAT32, FLOAT64 = "bfloat16", "float16", "float32", "float64"
INT64, BOOL, UINT8 = "int64", "bool", "uint8"
SIZES = {BFLOAT16: 2, FLOAT16: 2, FLOAT32: 4, FLOAT64: 8, INT64: 8, BOOL: 1, UINT8: 1}
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
    micro_batch: int | None = None

    def shifted(self, offset: tuple[int, int]) -> "Call":
        """This call so many layers and micro-batches later; without such a number it is the same."""
        layers, micro_batches = offset
        module = shifted_module(self.module, layers) if layers else self.module
        number = None if self.micro_batch is None else self.micro_batch + micro_batches
        return replace(self, module=module, micro_batch=number)

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
    """The gradients of these parameters are complete for this micro-batch, one after the other."""

    parameters: tuple[str, ...]


Event = Call | Use | Ready


def passed(events: Iterable[Event], micro_batch: int = 0) -> list[Call]:
    """The calls of a pass of this micro-batch."""
    return [replace(event, micro_batch=micro_batch) for event in events if isinstance(event, Call)]
