"""Names of collectives, groups and algorithms, as options and files have them."""

from workloads.rows.collectives import SIMULATED, camel, capitals

CELLS = {camel(name): capitals(name) for name in SIMULATED}
"""SimAI's words for the operations, as its workloads have them."""
OP_OF_CELL = {cell: op for op, cell in CELLS.items()}
ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, BROADCAST = CELLS
SEND_RECEIVE = camel("send_recv")
OPS = (*CELLS, SEND_RECEIVE)
RING_OPS = OPS[:3]
ORIGINAL_OPS = OPS[:4]
AUTO = "auto"
EVERY_ALGORITHM = (AUTO, "ring", "tree", "nvls", "pat")
BETWEEN = ("tree", "ring")
"""Algorithms between servers in NVLS."""
GROUP_KINDS = ("TP", "DP", "EP", "DP_EP", "PP")
ORIGINAL_KINDS = GROUP_KINDS[:4]
EVERY_KIND = (*GROUP_KINDS, "EP_TP", "EMBEDDING", "ALL")
"""The last three are asked for by workloads of frameworks; their members are in groups of the other kinds, too."""
