"""Says why what a GPU alone can show is refused: the same words wherever a workload is traced or stated by rules."""

CONTEXT_PARALLELISM = (
    "Megatron-core refuses context parallelism without Transformer Engine, whose kernels hold the ring; it cannot be "
    "traced without a GPU"
)
FLEX = "DeepEP sends from its own GPU kernels, not by collectives that can be seen"
DISPATCHERS = ("allgather", "alltoall")
"""How tokens reach their experts, as far as it can be traced."""


def context_parallelism(ranks: int) -> str:
    """The refusal of a context_parallel_size of so many ranks, above 1."""
    return f"context_parallel_size is {ranks}: {CONTEXT_PARALLELISM}; nearest: 1"


def dispatcher(name: str) -> str:
    """The refusal of a moe_token_dispatcher that is not one of DISPATCHERS."""
    why = f": {FLEX}" if name == "flex" else ""
    return f"moe_token_dispatcher is {name!r}; allowed: {', '.join(DISPATCHERS)}{why}"
