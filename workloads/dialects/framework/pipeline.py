"""States what a pipeline stage sends its neighbours, in the order in which Megatron-core hands it to the network."""

from workloads.dialects.framework.placement import RankPlacement
from workloads.job.parameters import WorkloadArgs
from workloads.rows.blocks import Block
from workloads.rows.ops import CommType
from workloads.rows.traced_op import BFLOAT16, Call

SEND_PREV, RECV_PREV, SEND_NEXT, RECV_NEXT = "send_prev", "recv_prev", "send_next", "recv_next"
BATCHED = (SEND_PREV, RECV_PREV, SEND_NEXT, RECV_NEXT)
EVEN = (SEND_NEXT, RECV_PREV, SEND_PREV, RECV_NEXT)
ODD = (RECV_PREV, SEND_NEXT, RECV_NEXT, SEND_PREV)
"""Unbatched sends and receives alternate between neighbours, so that they do not wait for each other."""


class StageExchange:
    """Sends and receives of a stage: an activation (its slice under sequence parallelism) or its gradient each.

    unbatched: as the interleaved schedule overlaps them with computation.
    """

    def __init__(self, args: WorkloadArgs, place: RankPlacement, *, unbatched: bool) -> None:
        size = message_size(args)
        self.order = (ODD if place.stage % 2 else EVEN) if unbatched else BATCHED
        before, after = place.neighbour(-1), place.neighbour(1)
        made = {
            SEND_PREV: (CommType.isend, before, "backward"),
            RECV_PREV: (CommType.irecv, before, "forward"),
            SEND_NEXT: (CommType.isend, after, "forward"),
            RECV_NEXT: (CommType.irecv, after, "backward"),
        }
        self.made = {
            way: Call(kind, "pp", place.pipeline, BFLOAT16, size, phase, peer=peer)
            for way, (kind, peer, phase) in made.items()
        }

    def __call__(self, *ways: str, when: bool = True) -> Block[Call]:
        """These messages in the order of the network, or none."""
        return Block([self.made[way] for way in self.order if way in ways] if when else [])


def message_size(args: WorkloadArgs) -> int:
    """Bytes of a message between stages: the activation of a micro-batch, or a tensor rank's slice of its sequence."""
    return args.activation_bytes // (args.tensor_model_parallel_size if args.enable_sequence_parallel else 1)
