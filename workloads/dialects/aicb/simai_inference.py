"""AICB's SimAI text of inference: the layers of one forward pass of DeepSeek-V3 or Qwen3-MoE, prefill or decode.

As in AICB 2.1's SimAI_inference_workload_generator.py, read there: no output of it is recorded. A row computes for
1 ns. In prefill its messages are of one sequence, whatever the batch, and its pipeline message counts seq_length
tokens in decode, too.
"""

from collections.abc import Iterator

from workloads.dialects.aicb.layers import DISPATCH_FP8_FACTOR
from workloads.formats.simai import INFERENCE, SimaiHeader, SimaiWorkload
from workloads.formats.simai_text import ALLREDUCE, ALLTOALL, EP, NONE, Phase, WorkItem
from workloads.job.parameters import DECODE, ELEMENT_BYTES, WorkloadArgs
from workloads.job.rules import RuleViolation
from workloads.rows.blocks import Block

STILL = Phase(0)


def generate(args: WorkloadArgs) -> SimaiWorkload:
    """The text of one pass: of a prompt, or of one token of each sequence."""
    pp = args.pipeline_model_parallel
    header = SimaiHeader(
        tp=args.tensor_model_parallel_size, ep=args.expert_model_parallel_size, pp=pp, vpp=1, ga=1,
        all_gpus=args.world_size, pp_comm=args.activation_bytes if pp > 1 else 0, mode=INFERENCE,
    )  # fmt: skip
    deepseek = args.frame == "DeepSeek"
    dense = min(args.n_dense_layers, args.num_layers) if deepseek else 0
    layers = _deepseek(args) if deepseek else _qwen(args)
    return SimaiWorkload(header, Block([Block(_dense(args), dense), Block(layers, args.num_layers - dense)]), args)


def refused(args: WorkloadArgs, target: str) -> Iterator[RuleViolation]:
    """Reasons why AICB has no inference of a job."""
    if target != "simai":
        yield RuleViolation(
            f"phase is {args.phase}, but AICB writes inference as SimAI text alone; --dialect framework has the CSV",
            breakable=False,
        )
    elif args.frame != "DeepSeek" and not (args.frame == "Megatron" and args.moe_enable):
        yield RuleViolation(
            f"phase is {args.phase}, but AICB has inference of DeepSeek-V3 (--frame DeepSeek) and Qwen3-MoE "
            "(--moe_enable) alone; --dialect framework has dense models",
            breakable=False,
        )
    if args.comp_filepath is not None or args.aiob_enable:
        yield RuleViolation(
            f"comp_filepath and aiob_enable: an AIOB file has times of training, none of phase {args.phase}",
            breakable=False,
        )


def _message(args: WorkloadArgs) -> int:
    tokens = args.micro_batch if args.phase == DECODE else args.seq_length
    return ELEMENT_BYTES * tokens * args.hidden_size


def _summed(args: WorkloadArgs, name: str) -> WorkItem:
    """A block whose output is summed over the tensor ranks."""
    if args.tensor_model_parallel_size == 1:
        return _alone(name)
    return WorkItem(name, Phase(1, ALLREDUCE, _message(args)), STILL, STILL)


def _alone(name: str) -> WorkItem:
    return WorkItem(name, Phase(1, NONE, 0), STILL, STILL)


def _experts(args: WorkloadArgs) -> list[WorkItem]:
    """Dispatch in FP8 with its scales, combination in 16 bits."""
    combined = _message(args) * args.moe_router_topk // args.tensor_model_parallel_size
    dispatched = int(combined * DISPATCH_FP8_FACTOR)
    return [
        WorkItem("moe_route", Phase(1, ALLTOALL, dispatched, EP)),
        WorkItem("moe_expert", Phase(1, ALLTOALL, combined, EP)),
    ]


def _dense(args: WorkloadArgs) -> list[WorkItem]:
    return [_summed(args, "attention_layer"), _summed(args, "dense_mlp")]


def _deepseek(args: WorkloadArgs) -> list[WorkItem]:
    shared = [_alone("shared_experts")] * args.n_shared_expert
    return [_summed(args, "attention_layer"), *shared, *_experts(args)]


def _qwen(args: WorkloadArgs) -> list[WorkItem]:
    return [_alone("attention_norm"), _summed(args, "attention_layer"), _alone("moe_norm"), *_experts(args)]
