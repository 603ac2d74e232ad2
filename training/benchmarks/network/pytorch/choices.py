"""Lists what the settings of the network benchmark may be: element types, collectives, tools, patterns."""

import re
from typing import Literal, get_args

DType = Literal[
    "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int64", "int32", "int8", "uint64",
    "uint32", "uint8",
]  # fmt: skip
ELEMENT_BYTES = {name: int(re.findall(r"\d+", name)[0]) // 8 for name in get_args(DType)}
CollectiveName = Literal[
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "all_to_all_uneven", "all_to_all_v", "hypercube",
    "broadcast", "reduce", "gather", "scatter", "send_recv", "send_recv_two_way", "send_recv_ring", "barrier",
]  # fmt: skip
Tool = Literal[
    "sweep", "all_reduce_bench", "all_gather_object_vs_all_reduce", "all_gather_object_vs_all_gather",
    "all_reduce_latency_comp", "nccl_tests", "overlap", "congestion", "soak",
]  # fmt: skip
Pattern = Literal["all", "each", "pairs", "rail_pairs", "halves", "k_batch", "rail", "peers", "adaptive"]
DEFAULT_SIZES = "8..64M x2"
# Number of messages of the tool all_reduce_latency_comp.
PARTS = 1000
SWEEPS = ("sweep", "all_reduce_bench", "nccl_tests")
OWN_COLLECTIVE = ("sweep", "nccl_tests", "congestion", "soak")

IN_PLACE_ONLY = ("all_reduce", "broadcast", "reduce")
EITHER_WAY = ("all_gather", "reduce_scatter")
PAIRWISE = ("send_recv", "send_recv_two_way", "send_recv_ring")
ROOTED = ("reduce", "broadcast", "gather", "scatter")
REDUCING = ("all_reduce", "reduce", "reduce_scatter")
TWO_BUFFERS = ("all_to_all", "all_to_all_uneven", "all_to_all_v", "hypercube", "gather", "scatter", *PAIRWISE)
