"""The placement of a group is that of the worst of its kind: compared with every group, counted GPU by GPU."""

from collections import Counter
from itertools import product

from simulation.analytical.machine import Cluster, Division
from simulation.analytical.placement import place, ranks_and_stride
from workloads.formats.simai_text import DP, DP_EP, EP, EP_TP, TP

SIZES = (1, 2, 3, 4, 6, 8)


def counted(group: str, division: Division, cluster: Cluster) -> tuple[int, int]:
    """The most servers that a group of the kind spans, and the fewest of its GPUs in one of several servers."""
    ranks, stride = ranks_and_stride(group, division)
    servers, fewest = 1, ranks
    for first, offset in product(range(0, cluster.gpus, ranks * stride), range(stride)):
        held = Counter((first + offset + place * stride) // cluster.gpus_per_server for place in range(ranks))
        if len(held) > 1:
            servers, fewest = max(servers, len(held)), min(fewest, *held.values())
    return servers, fewest


def test_the_worst_group_of_every_kind_is_found() -> None:
    compared = 0
    for tp, ep, more, pp, per_server in product(SIZES, (1, 2, 3), (1, 2, 4, 5), (1, 3), (4, 6, 8)):
        division = Division(tp, ep, pp, ep * more, 1, 1, 0)
        cluster = Cluster(tp * ep * more * pp, per_server, per_server, 1.0, 1.0, None, "", "")
        for group in (TP, EP, EP_TP, DP, DP_EP):
            found = place(group, division, cluster)
            if found.ranks > 1:
                assert (found.servers, found.per_server) == counted(group, division, cluster), (division, cluster)
                compared += 1
    assert compared > 1000
