"""Names of collectives, groups and algorithms, as options and files have them."""

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = RING_OPS = ("AllReduce", "AllGather", "ReduceScatter")
ALL_TO_ALL, BROADCAST, SEND_RECEIVE = "AllToAll", "Broadcast", "SendRecv"
OPS = (*RING_OPS, ALL_TO_ALL, BROADCAST, SEND_RECEIVE)
ORIGINAL_OPS = OPS[:4]
AUTO = "auto"
EVERY_ALGORITHM = (AUTO, "ring", "tree", "nvls", "pat")
BETWEEN = ("tree", "ring")
"""Algorithms between servers in NVLS."""
GROUP_KINDS = ("TP", "DP", "EP", "DP_EP", "PP")
ORIGINAL_KINDS = GROUP_KINDS[:4]
EVERY_KIND = (*GROUP_KINDS, "EP_TP", "EMBEDDING", "ALL")
"""The last three are asked for by workloads of frameworks; their members are in groups of the other kinds, too."""
