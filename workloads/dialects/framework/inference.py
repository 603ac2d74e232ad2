"""States what one rank of Megatron-core sends without gradients: a step is a forward pass of each micro-batch.

Megatron-core 0.16.1 in static batching: no sequence parallelism, the logits of each sequence's last token gathered over
the tensor ranks. In decode a sequence is one token; how many stand before it changes no call.
"""

from collections.abc import Iterator
from dataclasses import replace

from workloads.dialects.framework.megatron import MegatronRank
from workloads.dialects.framework.periodic import Periodic
from workloads.dialects.framework.schedule import NEXT_MICRO_BATCH, RECV_PREV, SEND_NEXT, StageExchange
from workloads.job import refusals
from workloads.job.parameters import DECODE, TRAINING, WorkloadArgs
from workloads.rows.blocks import Block
from workloads.rows.calls import Call


class InferenceRank(MegatronRank):
    """One rank; `setup` is that of training."""

    def __init__(self, args: WorkloadArgs, rank: int) -> None:
        super().__init__(one_pass(args), rank, args.seq_length)

    def iterations(self, count: int) -> Periodic:
        """Steps; all are alike."""
        return Periodic(cycle=(self._step_forward(),), times=count)

    def _step_forward(self) -> Block[Call]:
        exchange = StageExchange(self.args, self.place, unbatched=False)
        step = [
            exchange(RECV_PREV, when=not self.place.first),
            self.chunks[0].forward_calls,
            exchange(SEND_NEXT, when=not self.place.last),
        ]
        return Block(step, self.args.num_microbatches, NEXT_MICRO_BATCH)


def one_pass(args: WorkloadArgs) -> WorkloadArgs:
    """The parameters of a pass: of a decoding step a sequence of one token."""
    return replace(args, seq_length=1) if args.phase == DECODE else args


def refused(args: WorkloadArgs) -> Iterator[str]:
    """Parameters that Megatron-core does not support in inference."""
    if args.phase != TRAINING and args.frame != "Megatron":
        yield f"phase is {args.phase}, but frame {args.frame} has training alone; nearest: --frame Megatron"
    yield from refusals.without_gradients(args)
