"""Makes the flows of an AllReduce that NVSwitches add up: within one server, and between servers by tree or ring."""

from collections.abc import Sequence

from simulation.flows.groups import RankGroup
from simulation.flows.nvls_ring import INSIDE, NvlsRings
from simulation.flows.pieces import cut, cut_twice, unit_bytes
from simulation.flows.train import NVLS, NVLS_TREE, FlowSchedule, by_source, empty_schedule
from simulation.flows.trees import server_tree
from simulation.flows.waves import Numbering, WaveStep, fan

CHUNKS = 4
BETWEEN_TREE = "NVLS_TREE"


def original_nvls_schedule(group: RankGroup, size_bytes: int, first_id: int) -> FlowSchedule:
    """The flows of SimAI 1.6: four chunks of size // 4 bytes, what is left over is lost; none for several servers.

    The original keeps a chunk's size in a signed 32-bit integer, so that from 8 GiB on it wraps round.
    """
    if group.server_count > 1:
        return empty_schedule(NVLS, first_id)
    size = size_bytes // CHUNKS % (1 << 32)
    if size >= 1 << 31:
        size += (1 << 64) - (1 << 32)
    numbering = Numbering(first_id)
    for chunk in range(CHUNKS):
        for switch in group.switches:
            numbering.add(0, _one_server(group.members, switch, 0), [size], chunk, CHUNKS)
    return _with_children(numbering.schedule(NVLS))


def _with_children(schedule: FlowSchedule) -> FlowSchedule:
    """The same flows, few of them, each naming the flows that wait for it."""
    trains = [train for source in schedule.sources for train in schedule.trains(source)]
    children: dict[int, list[tuple[int]]] = {}
    for train in trains:
        for (parent,) in train.parents:
            children.setdefault(parent, []).append((train.ids[0],))
    named = [train._replace(children=tuple(children.get(train.ids[0], ()))) for train in trains]
    grouped = by_source(named)
    return schedule._replace(trains=lambda source: grouped[source])


def _one_server(ranks: Sequence[int], switch: int, number: int) -> list[WaveStep]:
    """Every rank sends to the switch, and the switch the sum to every rank. `number` is that of the first step."""
    ups = tuple(range(number, number + len(ranks)))
    return fan(ranks, [switch], (), INSIDE) + fan([switch], ranks, ups, INSIDE)


def nvls_schedule(group: RankGroup, size_bytes: int, first_id: int, between: str) -> FlowSchedule:
    """An AllReduce in which switches add inside servers, and `between` (tree, ring) joins the servers' sums."""
    numbering = Numbering(first_id)
    if group.server_count == 1:
        chunks = min(CHUNKS, size_bytes)
        sizes = cut(size_bytes, chunks, unit_bytes(size_bytes, chunks))
        numbering.add(0, _one_server(group.members, group.switches[0], 0), sizes)
        return numbering.schedule(NVLS)
    if between == "tree":
        channels = min(2 * group.local_count, size_bytes)
        chunks = min(CHUNKS, size_bytes // channels)
        for channel, sizes in enumerate(cut_twice(size_bytes, channels, chunks)):
            numbering.add(channel, _tree_steps(group, channel // 2, channel % 2), sizes)
        return numbering.schedule(NVLS_TREE)
    channels = min(group.local_count, size_bytes)
    chunks = min(group.server_count, size_bytes // channels)
    return NvlsRings(group, cut_twice(size_bytes, channels, chunks), first_id).schedule()


def _gather(group: RankGroup, head: int) -> tuple[list[WaveStep], list[int]]:
    """In every server all ranks send to the switch, which sends the sum to local rank `head`; returns that step too."""
    steps: list[WaveStep] = []
    sums = []
    for ranks, switch in zip(group.servers, group.switches, strict=True):
        begin = len(steps)
        steps += fan(ranks, [switch], (), INSIDE)
        sums.append(len(steps))
        steps.append(WaveStep(switch, ranks[head], tuple(range(begin, len(steps))), INSIDE))
    return steps, sums


def _spread(steps: list[WaveStep], group: RankGroup, head: int, totals: Sequence[tuple[int, ...]]) -> None:
    """In every server local rank `head`, once it has the total, sends it over the switch to all ranks."""
    for ranks, switch, parents in zip(group.servers, group.switches, totals, strict=True):
        steps.append(WaveStep(ranks[head], switch, parents, INSIDE))
        steps += fan([switch], ranks, (len(steps) - 1,), INSIDE)


def _tree_steps(group: RankGroup, head: int, shift: int) -> list[WaveStep]:
    """Sums of servers go up a binary tree over the servers' heads, and the total comes down."""
    steps, sums = _gather(group, head)
    heads = [ranks[head] for ranks in group.servers]
    root, children = server_tree(len(heads), shift)
    top_down = [root]
    for server in top_down:  # grows
        top_down += children[server]
    above = {child: server for server, below in enumerate(children) for child in below}
    received = [[number] for number in sums]
    for server in reversed(top_down[1:]):
        received[above[server]].append(len(steps))
        steps.append(WaveStep(heads[server], heads[above[server]], tuple(received[server]), BETWEEN_TREE))
    totals = {root: tuple(received[root])}
    for server in top_down:
        for child in children[server]:
            parents = totals[server]
            totals[child] = (len(steps),)
            steps.append(WaveStep(heads[server], heads[child], parents, BETWEEN_TREE))
    _spread(steps, group, head, [totals[server] for server in range(len(heads))])
    return steps
