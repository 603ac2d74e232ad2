"""Writes the tables beside the flows: rings, trees and groups, in the form of the recordings of SimAI 1.6."""

from collections.abc import Iterable, Iterator, Sequence

from simulation.flows.groups import RankGroup
from simulation.flows.rings import all_rings
from simulation.flows.trees import all_trees


def rings_table(group: RankGroup) -> Iterator[bytes]:
    """One row for each ring and rank: its neighbours, and the ranks where the ring enters and leaves its server."""
    yield b"ring,rank,prev,next,node_recv,node_send\n"
    for ring, hops in enumerate(all_rings(group)):
        lines = (f"{ring},{hop.rank},{hop.previous},{hop.following},{hop.entry},{hop.exit}\n" for hop in hops)
        yield "".join(lines).encode()


def trees_table(group: RankGroup) -> Iterator[bytes]:
    """One row for each tree and rank: its parent, -1 for the root, and its children; ranks no tree covers have none."""
    yield b"tree,rank,up,down\n"
    for number, tree in enumerate(all_trees(group)):
        lines = []
        for rank in group.members:
            up = tree.up.get(rank)
            lines.append(f"{number},{rank},{-1 if up is None else up},{_list(tree.down.get(rank, ()))}\n")
        yield "".join(lines).encode()


def groups_table(groups: Iterable[RankGroup]) -> Iterator[bytes]:
    """One row for each group: its ranks and the NVSwitches of its servers."""
    yield b"group_index,type,nNodes,nRanks,ranks,nvswitches\n"
    for group in groups:
        line = (
            f"{group.number},{group.kind},{group.server_count},{len(group.members)},"
            f"{_list(group.members)},{_list(group.switches)}\n"
        )
        yield line.encode()


def _list(numbers: Sequence[int]) -> str:
    return "".join(f"{number};" for number in numbers)
