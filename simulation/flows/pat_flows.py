"""Makes the flows of PAT (parallel aggregated trees): AllGather and ReduceScatter between servers of one GPU each."""

from simulation.flows.groups import RankGroup
from simulation.flows.names import ALL_GATHER
from simulation.flows.pieces import cut, unit_bytes
from simulation.flows.train import PAT, FlowSchedule, FlowTrain

KIND = "PAT"


def pat_schedule(op: str, group: RankGroup, size_bytes: int, first_id: int) -> FlowSchedule:
    """Every block is spread (AllGather) or added up (ReduceScatter) over a binomial tree of its own.

    A rank sends to the ranks 1, 2, 4, ... places on: in AllGather the furthest first, in ReduceScatter the nearest.
    A flow carries one block, and `size_bytes` are those of all blocks. Blocks without bytes have no flow.
    Source: "PAT: a new algorithm for all-gather and reduce-scatter operations at scale", S. Jeaugey, arXiv 2506.20252;
    the number of flows of a rank and their targets are those of SimCCL 2.30.
    """
    members = group.members
    count = len(members)
    blocks = [size for size in cut(size_bytes, count, unit_bytes(size_bytes, count)) if size]
    gathers = op == ALL_GATHER
    edges = tree_edges(count) if gathers else tree_edges(count)[::-1]
    number = {edge: place for place, edge in enumerate(edges)}
    into = {place + (1 << dimension): (place, dimension) for place, dimension in edges}
    out_of: dict[int, list[tuple[int, int]]] = {}
    for edge in edges:
        out_of.setdefault(edge[0], []).append(edge)
    place_of = {rank: place for place, rank in enumerate(members)}

    def trains(source: int) -> list[FlowTrain]:
        here = place_of[source]
        made = []
        for step, (place, dimension) in enumerate(edges):
            hop = 1 << dimension
            block = (here - place if gathers else here + place + hop) % count
            if block >= len(blocks):
                continue
            before = [into[place]] if gathers and place else [] if gathers else out_of.get(place + hop, [])
            flow_id, target = first_id + step * len(blocks) + block, members[(here + hop) % count]
            made.append(
                FlowTrain(
                    source,
                    0,
                    range(flow_id, flow_id + 1),
                    target,
                    blocks[block],
                    step,
                    count - 1,
                    KIND,
                    tuple((first_id + number[edge] * len(blocks) + block,) for edge in before),
                    tuple(members[here - (1 << edge[1])] for edge in before) or (target,),
                )
            )
        return made

    return FlowSchedule(PAT, first_id, len(blocks) * (count - 1), size_bytes * (count - 1), members, trains)


def tree_edges(count: int) -> list[tuple[int, int]]:
    """The edges (place, dimension) of a binomial tree over `count` places: from a place to the one 2 ** dimension on.

    A place passes on over the dimensions below its own lowest bit, the root over all; the longest edges come first.
    """
    dimensions = range((count - 1).bit_length() - 1, -1, -1)
    return [
        (place, dimension) for dimension in dimensions for place in range(0, count - (1 << dimension), 2 << dimension)
    ]
