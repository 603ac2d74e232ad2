"""Defines one communication call, as the tracer records it and as a rule of the dialect `framework` states it.

Two sequences of calls are equal where type, ranks, dtype, bytes, splits and peer are, phase by phase. Without positions
a repeated call is one object, so that a training step stays as small as its distinct calls.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from workloads.rows.ops import NEVER, CommGroup, CommType
from workloads.rows.ranks import Ranks, shifted_module

GROUPS = {each.name.removesuffix("_group"): each for each in CommGroup} | {"world": CommGroup.all}
"""Groups by their names in Megatron's parallel_state; mp is tp x pp, dp_shard and dp_replicate are FSDP2's mesh. AICB's
groups are among them: ep_dp, ep_tp and all, of executed calls alone.
"""
PHASES = ("init", "forward", "backward", "gradients", "step")
"""`gradients` is what follows the last backward pass and precedes the optimizer (finalize_model_grads)."""
POINT_TO_POINT = frozenset({CommType.isend, CommType.irecv})
ROOTED = frozenset({CommType.broadcast, CommType.reduce, CommType.gather, CommType.scatter})
"""Collectives with a root, whose rank is the `peer`."""


NOBODY = Ranks(0, 1, 1)
"""The ranks of a computation, which nobody else takes part in."""
BFLOAT16, FLOAT16, FLOAT32, FLOAT64 = "bfloat16", "float16", "float32", "float64"
INT64, BOOL, UINT8, FLOAT8 = "int64", "bool", "uint8", "float8_e4m3fn"
SIZES = {
    BFLOAT16: 2, FLOAT16: 2, FLOAT32: 4, FLOAT64: 8, INT64: 8, "int32": 4, "int16": 2, "int8": 1, UINT8: 1, BOOL: 1,
    FLOAT8: 1, "float8_e5m2": 1,
}  # fmt: skip
"""Bytes of an element."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a collective or of a send or receive on one rank, or a computation between two.

    comm_type: the member that bears the name of the call (all_gather_into_tensor, reduce_scatter_tensor,
    all_to_all_single ...).
    group: one of `GROUPS`; of a send or receive the group that holds both ranks, never the world by accident.
    ranks: the ranks of that group.
    dtype: of the elements, torch's name without the prefix: bfloat16, float32, int64, uint8.
    bytes: ONE definition for files, traces and rules. all_gather and reduce_scatter (every spelling): the full tensor,
    that is count times what a rank holds. all_reduce, reduce, broadcast: the buffer. all_to_all (every spelling),
    isend, irecv: what this rank sends (an irecv: what it receives), its own share of an all_to_all included. gather,
    scatter: the full tensor at the root. barrier: 0.
    phase: one of `PHASES`, "" of an executed call, which stands for its equals wherever they are.
    module: dotted path of the module that calls, "" outside of modules; a layer's number stands behind `layers`, and is
    the number in the whole model (decoder.layers.17.mlp).
    in_splits, out_splits: of an all_to_all the bytes that go to, and come from, each rank, in the order of `ranks`;
    their sums are the sent and the received bytes. None where both are equal shares of `bytes`.
    peer: global rank of the other end of a send or receive, of the root of broadcast, reduce, gather and scatter.
    micro_batch: number in the iteration from 0, None outside of forward and backward.
    kernel: of a computation its operator, the axes of its shape, FLOPs and bytes that it reads and writes, such as
    `gemm m=8 k=4 n=2 flops=128 bytes=112`; its group is "", its ranks are NOBODY.
    overlap: calls that the program issued between this one and its wait for it, 0 for a blocking call, `NEVER` if
    nothing waits. None of a ruled or executed call.
    """

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
    kernel: str = ""
    overlap: int | None = None

    def shifted(self, offset: tuple[int, int]) -> "Call":
        """This call so many layers and micro-batches later; without such a number it is the same."""
        layers, micro_batches = offset
        module = shifted_module(self.module, layers) if layers else self.module
        number = None if self.micro_batch is None else self.micro_batch + micro_batches
        return replace(self, module=module, micro_batch=number)

    @property
    def share(self) -> int:
        """Bytes of one rank's share."""
        return self.bytes // len(self.ranks)

    def words(self) -> str:
        """The call for people: all_gather_into_tensor tp."""
        return f"{self.comm_type.name} {self.group}"

    @property
    def identity(self) -> tuple[object, ...]:
        """The values that are equal in equal sequences: type, ranks, dtype, bytes, splits, peer."""
        return (
            self.comm_type, self.ranks, self.dtype, self.bytes, self.in_splits, self.out_splits, self.peer, self.kernel
        )  # fmt: skip

    def problems(self) -> list[str]:
        """Breaches of the definitions above, in words; empty for a valid call."""
        found = []
        if self.group not in GROUPS and self.comm_type is not CommType.computation:
            found.append(f"group is {self.group!r}, not one of {', '.join(GROUPS)}")
        if self.phase not in PHASES:
            found.append(f"phase is {self.phase!r}, not one of {', '.join(PHASES)}")
        if self.bytes < 0:
            found.append(f"bytes are {self.bytes}, less than 0")
        if self.overlap is not None and self.overlap < NEVER:
            found.append(f"overlap is {self.overlap}, less than {NEVER}")
        for name, splits in (("in_splits", self.in_splits), ("out_splits", self.out_splits)):
            if splits is not None and len(splits) != len(self.ranks):
                found.append(f"{name} has {len(splits)} entries for {len(self.ranks)} ranks")
        if self.in_splits is not None and sum(self.in_splits) != self.bytes:
            found.append(f"in_splits add up to {sum(self.in_splits)} bytes, not {self.bytes}")
        if (self.peer is not None) != (self.comm_type in POINT_TO_POINT | ROOTED):
            found.append(f"peer is {self.peer} in {self.comm_type.name}")
        return found


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
