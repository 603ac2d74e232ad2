"""Models the time of each algorithm of a collective, by the cost model of `analytical`."""

from simulation.analytical.algorithms import NVLS as MODEL_NVLS
from simulation.analytical.algorithms import NVLS_RING, NVLS_TREE, PAIRWISE
from simulation.analytical.algorithms import PAT as MODEL_PAT
from simulation.analytical.algorithms import RING as MODEL_RING
from simulation.analytical.algorithms import TREE as MODEL_TREE
from simulation.analytical.collective_time import CollectiveTimes
from simulation.analytical.machine import Cluster, Division, Overlaps, Question
from simulation.analytical.placement import GroupPlacement
from simulation.analytical.repairs import ALL_SWITCHABLE
from simulation.flows.groups import RankGroup
from simulation.flows.names import BETWEEN, CELLS

NAMES = {
    MODEL_RING: "ring", MODEL_TREE: "tree", MODEL_NVLS: "nvls", NVLS_TREE: f"nvls-{BETWEEN[0]}",
    NVLS_RING: f"nvls-{BETWEEN[1]}", MODEL_PAT: "pat", PAIRWISE: "pairs",
}  # fmt: skip
_ONE = Division(1, 1, 1, 1, 1, 1, 0)


def modelled(
    op: str, group: RankGroup, size_bytes: int, machine: tuple[float, float, float | None, str]
) -> list[tuple[str, float]]:
    """The algorithms of a collective of `size_bytes` with their times (us), the one that is taken first.

    machine: as LinkSpeeds has it, nvls None where it is not possible.
    """
    server = max(map(len, group.servers))
    nvlink, nic, nvls, gpu_type = machine
    cluster = Cluster(len(group.members), server, server, nvlink, nic, nvls, gpu_type, "")
    times = CollectiveTimes(Question(cluster, _ONE, Overlaps(0, 0, 0, 0)), ALL_SWITCHABLE, None)
    local = group.local_count
    placed = GroupPlacement(len(group.members), 1, len(group.servers), local, float(local))
    found = times.time_at(placed, CELLS[op], "TP", size_bytes)
    return [(NAMES[each.way.algorithm], each.time_us) for each in found.considered]
