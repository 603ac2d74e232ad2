"""Holds the names of collectives: one table of calls, of which the spelling of each format is derived.

A simulator's name is that of a call: `all_reduce` is ALL_REDUCE in Chakra, ALLREDUCE in SimAI, AllReduce in NCCL.
"""

SIMULATED = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
"""The collectives that simulators know."""
ROOTED = ("reduce", "gather", "scatter")
"""Those with a root that simulators do not know: they are in traces alone, as `barrier` is."""
CALLS = {name: name for name in (*SIMULATED, *ROOTED, "barrier")} | {
    "all_gather_into_tensor": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "all_to_all_single": "all_to_all",
}
"""The collective of each call of PyTorch."""


def capitals(name: str) -> str:
    """ALLREDUCE of all_reduce, as SimAI's workloads spell it."""
    return name.replace("_", "").upper()


def camel(name: str) -> str:
    """AllReduce of all_reduce, as flows spell it."""
    return name.title().replace("_", "")
