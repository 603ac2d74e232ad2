"""Checks that one flow for all that are alike gives each its time: on few ranks of the same network, all simulated."""

from collections.abc import Iterator
from contextlib import suppress

from common.errors import InputProblems
from simulation.flows.groups import RankGroup
from simulation.flows.train import FlowSchedule
from simulation.network.flow_level.port_routes import PortRoutes
from simulation.network.flow_level.simulate import CollapseCheck, FlowRun, FlowWishes, simulate
from simulation.network.job import WAITS, GroupCollective, Job, JobPart, JobPhase, ScheduleMaker

CHECKED_FROM = 500  # flows of a job: simulating fewer, each on its own, costs no more than the check
GROUPS, MOST_BYTES = 2, 1 << 20  # groups of each kind in the small case, and bytes of its collectives
SHAPES = (4, 2), (1, 4), (1, 8)  # servers, and ranks of each: the first that lets the algorithm be the same


def check_collapsing(job: Job, ways: PortRoutes, wishes: FlowWishes, make: ScheduleMaker) -> CollapseCheck | None:
    """Each kind of collective of a job on few ranks, with what is alike simulated once, and with all simulated.

    None where the job has few flows, or where in no small case that the network has ways for anything is alike.
    """
    if not _has_many(job):
        return None
    wishes = wishes._replace(slowness={}, most_ways=None)
    found = []
    for small in _small_jobs(job, make):
        with suppress(InputProblems):  # which the whole job tells; a ring of few ranks may have hops that it has not
            once, whole = (simulate(ways, small, wishes._replace(apart=apart)) for apart in (False, True))
            if once.simulated < whole.simulated:
                found.append(CollapseCheck(whole.flows, once.simulated, _farthest(once, whole)))
    if not found:
        return None
    flows, simulated, farthest = zip(*found, strict=True)
    return CollapseCheck(sum(flows), sum(simulated), max(farthest))


def _has_many(job: Job) -> bool:
    flows = 0
    for collective in job.collectives:
        for schedule in collective.schedules:
            flows += schedule.flow_count
            if flows >= CHECKED_FROM:
                return True
    return False


def _small_jobs(job: Job, make: ScheduleMaker) -> Iterator[Job]:
    """One of each kind of collective: by what is done, in which groups, by which algorithm."""
    known = set[tuple[str, str, int]]()
    for each in job.collectives:
        algorithm = each.schedules[0].algorithm
        if not each.groups or (each.op, each.kind, algorithm) in known:
            continue
        known.add((each.op, each.kind, algorithm))
        for servers, local in SHAPES:
            if (servers > 1) != (len(each.groups[0].servers) > 1):
                continue
            groups = [_cut(group, servers, local) for group in each.groups[:GROUPS]]
            size = min(each.size_bytes * len(groups[0].members) // each.group_ranks, MOST_BYTES)
            schedules = [make(each.op, group, size, algorithm) for group in groups]
            if all(schedule.algorithm == algorithm and schedule.flow_count for schedule in schedules):
                yield _job(each, groups, schedules)
                break


def _cut(group: RankGroup, servers: int, local: int) -> RankGroup:
    """The first ranks of the first servers of a group."""
    its = tuple([ranks[:local] for ranks in group.servers[:servers]])
    chosen = {rank for ranks in its for rank in ranks}
    return group._replace(
        members=tuple([rank for rank in group.members if rank in chosen]),
        servers=its,
        slots=tuple([slots[:local] for slots in group.slots[:servers]]),
        switches=group.switches[: len(its) * group.planes],
    )


def _job(each: GroupCollective, groups: list[RankGroup], schedules: list[FlowSchedule]) -> Job:
    members = {rank for group in groups for rank in group.members}
    ranks = max(members) + 1
    collective = each._replace(schedules=schedules, groups=groups, group_ranks=len(groups[0].members))
    programs = [[], [JobPhase(0, 0, 0, 0, WAITS)]]
    part = JobPart(each.op, 0, ranks, range(1))
    return Job([each.op], programs, [int(rank in members) for rank in range(ranks)], [collective], [part])


def _farthest(one: FlowRun, other: FlowRun) -> float:
    """The largest difference between starts and ends of the same flow, and between the ends of a rank (ns)."""
    worst = float(max(abs(a - b) for a, b in zip(one.finished, other.finished, strict=True)))
    for ours, theirs in zip(one.groups(), other.groups(), strict=True):
        pairs = zip(one.times(ours.number, ours.kind), other.times(theirs.number, theirs.kind), strict=True)
        for found, wanted in pairs:
            worst = max(worst, *(abs(a - b) for a, b in zip(found, wanted, strict=True)))
    return worst
