"""Makes the flows of an AllReduce over double binary trees: up to the roots, and down again."""

from simulation.flows.groups import RankGroup
from simulation.flows.pieces import cut_twice
from simulation.flows.train import TREE, FlowSchedule
from simulation.flows.trees import RankTree, all_trees
from simulation.flows.waves import Numbering, WaveStep

MOST_CHUNKS = 64
SMALLEST_CHUNK = 16 << 10  # bytes


def tree_schedule(group: RankGroup, size_bytes: int, first_id: int) -> FlowSchedule:
    """An AllReduce in which every second channel is the other tree, so that each of the two carries half of the bytes.

    A channel's share goes in up to 64 chunks of at least 16 KiB, which follow one another.
    """
    trees = all_trees(group)[:size_bytes]
    share = size_bytes // len(trees)
    chunks = max(1, min(MOST_CHUNKS, share // SMALLEST_CHUNK))
    numbering = Numbering(first_id)
    for channel, (tree, sizes) in enumerate(zip(trees, cut_twice(size_bytes, len(trees), chunks), strict=True)):
        numbering.add(channel, tree_steps(tree), sizes)
    return numbering.schedule(TREE)


def tree_steps(tree: RankTree) -> list[WaveStep]:
    """Up: every rank sends its sum to its parent once its children have sent theirs. Down: the root's sum to all.

    Ranks of the same distance from the leaves go in the order of the group.
    """
    steps: list[WaveStep] = []
    received: dict[int, list[int]] = {rank: [] for rank in tree.up}
    ready = [rank for rank, children in tree.down.items() if not children]
    for rank in ready:  # grows
        parent = tree.up[rank]
        if parent is None:
            continue
        received[parent].append(len(steps))
        steps.append(WaveStep(rank, parent, tuple(received[rank]), KIND))
        if len(received[parent]) == len(tree.down[parent]):
            ready.append(parent)
    reached = [(tree.root, tuple(received[tree.root]))]
    for rank, parents in reached:  # grows
        for child in tree.down[rank]:
            reached.append((child, (len(steps),)))
            steps.append(WaveStep(rank, child, parents, KIND))
    return steps


KIND = "TREE_INIT"
