"""Derives what AICB derives where nobody says it, and no framework does: a head per layer, layers rounded down."""

from workloads.job.parameters import WorkloadArgs


def layers_per_stage(args: WorkloadArgs) -> int:
    """Number of layers of one pipeline stage; a remainder is dropped."""
    return args.num_layers // args.pipeline_model_parallel


def heads(args: WorkloadArgs) -> int:
    """num_attention_heads, by default one per layer."""
    return args.num_layers if args.num_attention_heads is None else args.num_attention_heads


def attention_size(args: WorkloadArgs) -> int:
    """Width of the attention projections in elements: (hidden_size // heads) * heads."""
    return args.hidden_size // heads(args) * heads(args)
