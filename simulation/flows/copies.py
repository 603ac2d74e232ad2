"""Makes the flows of alike groups once: whose members and NVSwitches stand in the same places."""

from collections.abc import Callable, Hashable, Mapping
from itertools import pairwise

from simulation.flows.groups import RankGroup
from simulation.flows.names import ALL_TO_ALL
from simulation.flows.train import FlowSchedule, FlowTrain, ScheduleCopy

Schedules = Callable[[str, RankGroup, int], FlowSchedule]


def in_copies(schedules: Schedules) -> Schedules:
    """Makes the same schedules, numbered from the same id, those of alike groups as copies of the first one's."""
    known: dict[Hashable, tuple[tuple[int, ...], FlowSchedule]] = {}

    def found(op: str, group: RankGroup, size_bytes: int) -> FlowSchedule:
        nodes = group.members + group.switches
        if any(one >= other for one, other in pairwise(nodes)):  # sources stand in ascending order
            return schedules(op, group, size_bytes)
        key = op, size_bytes, _shape(op, group)
        if key not in known:
            known[key] = nodes, schedules(op, group, size_bytes)
            return known[key][1]
        first, schedule = known[key]
        return copied(schedule, dict(zip(first, nodes, strict=True)))

    return found


def _shape(op: str, group: RankGroup) -> Hashable:
    """All of a group that its flows depend on, but for the numbers of its nodes; rails matter to AllToAll alone."""
    places = {rank: place for place, rank in enumerate(group.members)}
    servers = tuple(tuple([places[rank] for rank in ranks]) for ranks in group.servers)
    return group.kind, len(group.members), servers, len(group.switches), group.slots if op == ALL_TO_ALL else ()


def copied(schedule: FlowSchedule, nodes: Mapping[int, int]) -> FlowSchedule:
    """The same flows between other nodes, which stand in the same order: `nodes` by those of the schedule."""
    back = {copy: node for node, copy in nodes.items()}
    return schedule._replace(
        sources=[nodes[source] for source in schedule.sources],
        trains=lambda source: [_moved(train, nodes) for train in schedule.trains(back[source])],
        like=ScheduleCopy(schedule, nodes),
    )


def _moved(train: FlowTrain, nodes: Mapping[int, int]) -> FlowTrain:
    targets = train.targets
    return train._replace(
        source=nodes[train.source],
        targets=nodes[targets] if isinstance(targets, int) else [nodes[target] for target in targets],
        previous=tuple([nodes[rank] for rank in train.previous]),
    )
